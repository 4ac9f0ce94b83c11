"""What processes of ours have in common, tried on one that crashes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from haxlb.daemon.messages import AskStatus, Logged, decode, encode
from haxlb.model.errors import Bug

CRASHES = """
import sys
from haxlb.daemon.messages import AskStatus
from haxlb.linux import child

class Crashes:
    def handle(self, message):
        raise ValueError("x" * 20000)
    async def leave(self, reason):
        pass

sys.exit(child.main("speaker", "hx", AskStatus, lambda pipe: Crashes(), "about"))
"""


def crash(stderr):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", CRASHES, "--fd", str(theirs.fileno())], pass_fds=(theirs.fileno(),), stderr=stderr
        )
        theirs.close()
        ours.sendall(encode(AskStatus(ticket=1)))
        code = process.wait(timeout=60)
        received = b""
        while chunk := ours.recv(1 << 16):
            received += chunk
    return code, [decode(line) for line in received.splitlines()]


def test_a_crash_ends_the_process_at_once_and_is_told():
    code, (said,) = crash(subprocess.DEVNULL)
    assert code == Bug.exit_code
    assert isinstance(said, Logged)
    assert (said.level, said.event) == ("error", "speaker_crashed")
    assert "ValueError: xxx" in said.fields["traceback"]


def test_a_log_that_nobody_reads_does_not_keep_a_crashed_process_alive():
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        filled = os.write(writing, bytes(1 << 20))
        os.read(reading, 4096)  # room for a part of it
        os.set_blocking(writing, True)
        assert filled >= 4096
        code, _ = crash(writing)
        assert code == Bug.exit_code
    finally:
        os.close(reading)
        os.close(writing)
