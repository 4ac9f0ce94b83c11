"""Virtual servers as `keepalived -t` judges them: what it complains of, haxlb does, and takes what it takes."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from haxlb.config import load
from haxlb.config.verdict import verdict

REAL = "real_server 10.0.0.2 80 {\n%s\nTCP_CHECK {\n}\n}\n"
GROUP = "virtual_server_group web {\n%s\n}\n"
WHOLE = {"lb_algo": "rr", "lb_kind": "DR", "protocol": "TCP"}


def service(head: str = "192.0.2.1 80", *lines: str, real: str = REAL % "", **words: str | None) -> str:
    block = "".join(f"{name} {word}\n" for name, word in (WHOLE | words).items() if word)
    own = "".join(f"{each}\n" for each in lines)
    return f"virtual_server {head} {{\n{block}{own}{real}}}\n"


def of(line: str) -> str:
    return service(real=REAL % line)


TAKEN = {
    "DR": service(),
    **{f"lb_algo {algo}": service(lb_algo=algo) for algo in ("lc", "wlc", "lblc", "lblcr", "sh", "dh", "mh", "sed")},
    **{f"lb_algo {algo}": service(lb_algo=algo) for algo in ("nq", "fo", "ovf", "wrr")},
    "NAT": service(lb_kind="NAT", real=REAL.replace("80", "8080") % ""),
    "TUN": service(lb_kind="TUN"),
    "gue": service(lb_kind="TUN type gue port 6080 csum"),
    "gre": service(lb_kind="TUN type gre nocsum"),
    "a server's own method": of("lvs_method NAT"),
    "thresholds": of("uthreshold 10\nlthreshold 5"),
    "UDP": service("192.0.2.1 53", protocol="UDP", real=REAL.replace(" 80", " 53") % "").replace("rr\n", "rr\nops\n"),
    "persistence": service("192.0.2.1 80", "persistence_timeout", "persistence_granularity 255.255.255.0"),
    "all ports": service("192.0.2.1", "persistence_timeout 50", real="real_server 10.0.0.2 {\n}\n"),
    "a group": GROUP % "192.0.2.1-20 80\n192.0.3.0/28 80\n10.0.1.1-10.0.1.3 80" + service("group web"),
    "IPv6": service("2001:db8::1 80", "persistence_granularity 64", real=REAL.replace("10.0.0.2", "2001:db8::2") % ""),
    "IPv6 group": GROUP % "2001:db8::a1-af 80"
    + service("group web", real=REAL.replace("10.0.0.2", "2001:db8::2") % ""),
    "sorry server": service("192.0.2.1 80", "sorry_server 10.0.0.9 80", "sorry_server_lvs_method TUN"),
    "hash flags": service("192.0.2.1 80", "sh-port", "sh-fallback", lb_algo="sh"),
    "timeouts": "global_defs {\nlvs_timeouts tcp 7200 tcpfin 60 udp 30\n}\n" + service(),
}
DISLIKED = {
    "no lb_algo": service(lb_algo=None),
    "no lb_kind": service(lb_kind=None),
    "no protocol": service(protocol=None),
    "unknown lb_algo": service(lb_algo="leastconn"),
    "unknown lb_kind": service(lb_kind="FULLNAT"),
    "all ports without persistence": service("192.0.2.1", real=REAL.replace(" 80", "") % ""),
    "ops of TCP": service("192.0.2.1 80", "ops"),
    "sh-port of rr": service("192.0.2.1 80", "sh-port"),
    "another port by DR": service(real=REAL.replace("80", "8080") % ""),
    "gue without a port": of("lvs_method TUN type gue"),
    "gre with a port": of("lvs_method TUN type gre port 5"),
    "gre with remcsum": of("lvs_method TUN type gre remcsum"),
    "ipip with csum": of("lvs_method TUN type ipip csum"),
    "unknown tunnel": of("lvs_method TUN type foo"),
    "a server of the other family": service(real=REAL.replace("10.0.0.2", "2001:db8::2") % "" + REAL % ""),
    "ip_family": service("192.0.2.1 80", "ip_family inet6"),
    "a server twice": service(real=2 * (REAL % "")),
    "a group with host bits": GROUP % "192.0.2.1/24 80\n192.0.2.1 80" + service("group web"),
    "timeouts": "global_defs {\nlvs_timeouts tcp 2678401\n}\n" + service(),
    "no server": service(real=""),
    "a mark without a group": service("fwmark 5", protocol=None),
}


def judged(tmp_path, text: str) -> int:
    path = tmp_path / "keepalived.conf"
    path.write_text(text)
    return verdict(load(path, settings=None, node="x"), runnable=lambda _: True).value


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TAKEN.items()])
def test_what_keepalived_takes(tmp_path, text):
    assert judged(tmp_path, text) == 0


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in DISLIKED.items()])
def test_what_keepalived_dislikes(tmp_path, text):
    assert judged(tmp_path, text) == 5


@pytest.mark.netns
@pytest.mark.skipif(shutil.which("keepalived") is None, reason="keepalived is not installed")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(pytest.param(text, 0, id=f"takes {name}") for name, text in TAKEN.items()),
        *(pytest.param(text, 5, id=f"dislikes {name}") for name, text in DISLIKED.items()),
    ],
)
def test_keepalived_says_so_itself(tmp_path, text, code):
    path = tmp_path / "keepalived.conf"
    path.write_text(text)
    done = subprocess.run(["keepalived", "-t", "-f", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
