"""A server and a client of HTTP and UDP, as processes of hosts that see each other through NAT.

`python -m tests.netns.nat_peer serve` listens on every address, port 8080 of TCP and 5353 of UDP, and says so;
`… fetch URL`, `… post URL BYTES` and `… echo ADDRESS PORT SIZE` print what came back, as one JSON object.
"""

from __future__ import annotations

import hashlib
import http.client
import http.server
import json
import socket
import sys
import threading
from urllib.parse import urlsplit

WEB_PORT, ECHO_PORT = 8080, 5353
PATIENCE_S = 60.0


def content(size: int) -> bytes:
    """Bytes of which no part is like another."""
    block = hashlib.sha256(str(size).encode()).digest()
    return b"".join(block[number % 31 :] + number.to_bytes(4, "big") for number in range(size // 20))[:size].ljust(size)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say(content(int(self.path[1:])))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._say(hashlib.sha256(body).hexdigest().encode())

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Client", self.client_address[0])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: stderr is the test's."""


class _Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


def serve() -> None:
    web = _Server(("::", WEB_PORT), _Handler)
    echo = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    echo.bind(("::", ECHO_PORT))
    threading.Thread(target=web.serve_forever, daemon=True).start()
    print("ready", flush=True)
    while True:
        data, sender = echo.recvfrom(65536)
        echo.sendto(data[::-1], sender)


def ask(method: str, url: str, body: bytes | None) -> dict[str, object]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    connection.request(method, parts.path or "/", body)
    answer = connection.getresponse()
    got = answer.read()
    connection.close()
    return {"status": answer.status, "size": len(got), "digest": hashlib.sha256(got).hexdigest(),
            "text": got[:64].decode("latin-1"), "client": answer.headers["X-Client"]}  # fmt: skip


def echo(address: str, port: int, size: int) -> dict[str, object]:
    data = content(size)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(PATIENCE_S)
        channel.connect((address, port))
        channel.send(data)
        return {"same": channel.recv(65536) == data[::-1]}


def main(verb: str, *words: str) -> None:
    if verb == "serve":
        serve()
    elif verb == "fetch":
        print(json.dumps(ask("GET", words[0], None)))
    elif verb == "post":
        print(json.dumps(ask("POST", words[0], content(int(words[1])))))
    else:
        print(json.dumps(echo(words[0], int(words[1]), int(words[2]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
