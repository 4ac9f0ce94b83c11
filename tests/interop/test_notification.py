"""The same configuration and the same story for keepalived and for haxlb: what their operators are told is the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from tests.interop.directors import HAXLB, Log
from tests.netns.standin import eventually, whole_lines
from tests.netns.test_notification import MAIL_HOST, MAIL_PORT, Post

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("keepalived") is None, reason="Debian's keepalived is not installed"),
]

NAMES = ("VI_1", "VI_2", "VG_1")


def configuration(node: str, directory: Path) -> str:
    instances = "\n".join(
        f"""
vrrp_instance VI_{number} {{
    version 3
    interface eth0
    virtual_router_id {50 + number}
    priority 150
    advert_int 0.1
    virtual_ipaddress {{
        10.7.0.{100 + number}/24
    }}
    notify "{directory}/script any"
    notify_master "{directory}/script own master"
    notify_backup "{directory}/script own backup"
    notify_fault "{directory}/script own fault"
    notify_stop "{directory}/script own stop"
    smtp_alert
}}
"""
        for number in (1, 2)
    )
    return f"""
global_defs {{
    router_id {node}
    script_user root
    notification_email {{
        ops@example.com
        pager@example.com
    }}
    notification_email_from {node}@example.com
    smtp_server {MAIL_HOST} {MAIL_PORT}
    vrrp_notify_fifo {directory}/fifo
}}
vrrp_sync_group VG_1 {{
    group {{
        VI_1
        VI_2
    }}
    notify "{directory}/script group"
    smtp_alert
}}
{instances}
"""


class Told:
    """One daemon on one host, and what it tells."""

    def __init__(self, node: str, host: Host, directory: Path) -> None:
        directory.mkdir()
        self.node, self.host, self.directory = node, host, directory
        (directory / "keepalived.conf").write_text(configuration(node, directory))
        script = directory / "script"
        script.write_text(f'#!/bin/sh\necho "$*" >> {directory}/out\n')
        script.chmod(0o700)
        self._log = Log(directory / "log")
        self._fifo = -1
        self._process: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        config = ("-f", str(self.directory / "keepalived.conf"))
        if self.node == "haxlb":
            options = ("--runtime-dir", str(self.directory / "run"), "--log-format", "json")
            argv: tuple[str, ...] = (str(HAXLB), "run", *config, *options, "--settings", str(self.directory / "absent"))
        else:
            pids = [word for flag in "prc" for word in (f"-{flag}", str(self.directory / f"pid-{flag}"))]
            argv = ("keepalived", "--dont-fork", "--log-console", "--no-syslog", "--vrrp", *config, *pids)
        os.mkfifo(self.directory / "fifo")
        self._fifo = os.open(self.directory / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        self._process = self._log.start(self.host, *argv, until="BACKUP")

    def read(self) -> None:
        """Take what is in the FIFO over to a file."""
        with (self.directory / "lines").open("ab") as lines:
            while self._fifo >= 0 and (chunk := self._some()):
                lines.write(chunk)

    def _some(self) -> bytes:
        try:
            return os.read(self._fifo, 65536)
        except BlockingIOError:
            return b""

    def lines(self, name: str) -> list[str]:
        self.read()
        return [line for line in whole_lines(self.directory / "lines") if f'"{name}"' in line]

    def scripts(self) -> list[str]:
        return whole_lines(self.directory / "out")

    def mails(self, name: str, post: Post) -> list[str]:
        """Subjects about an instance or the group."""
        mark = f"[{self.node}] "
        return [each.removeprefix(mark) for each in post.subjects(self.node) if f" {name} - " in each]

    def mails_given_up(self) -> int:
        """By haxlb, which waits three seconds at its end for a server that is slow."""
        lines = [json.loads(line) for line in whole_lines(self._log.path)]
        return sum(each.get("waiting", 1) for each in lines if each["event"] == "mail_dropped")

    def reaches(self, state: str, times: int) -> None:

        def reached() -> bool:
            return all(sum(f" {state} " in line for line in self.lines(name)) == times for name in NAMES)

        eventually(reached, f"{self.node}: {state} for the {times}th time")

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=60)
        self.read()
        os.close(self._fifo)
        self._fifo = -1


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(f"hxni{os.getpid()}") as made:
        yield made


def live(lab: Lab, post: Post, node: str, number: int, directory: Path) -> Told:
    """Election, loss of the link, its return, an orderly end: each when all of the one before has been told."""
    told = Told(node, lab.host(node[:4], f"10.7.0.{number}/24"), directory / node)

    def scripts_ran(times: int) -> None:
        # By other ways than the FIFO's; a daemon that ends may end its scripts.
        eventually(lambda: len(told.scripts()) >= times, f"{node}: {times} scripts have run")

    def mails_came(times: int) -> None:
        what = f"{node}: {times} mails about each have come"
        eventually(lambda: all(len(told.mails(name, post)) >= times for name in NAMES), what)

    told.start()
    told.reaches("MASTER", 1)
    scripts_ran(2 * 5)
    if node == "haxlb":
        mails_came(2)
    told.host.run("ip", "link", "set", "eth0", "down")
    told.reaches("FAULT", 1)
    told.host.run("ip", "link", "set", "eth0", "up")
    told.reaches("MASTER", 2)
    scripts_ran(5 * 5)
    mails_came(5 if node == "haxlb" else 2)
    told.stop()
    scripts_ran(6 * 5)
    return told


def test_operators_of_both_are_told_the_same(lab: Lab, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    post = Post(lab, tmp_path)
    theirs, ours = live(lab, post, "keepalived", 1, tmp_path), live(lab, post, "haxlb", 2, tmp_path)
    for name in NAMES:
        assert ours.lines(name) == theirs.lines(name)
        assert len(ours.lines(name)) == 6
    # keepalived starts scripts side by side: their order is chance.
    assert sorted(ours.scripts()) == sorted(theirs.scripts())
    assert len(ours.scripts()) == 6 * 5  # two for each state of an instance, one for the group's
    for name in NAMES:
        said, theirs_said = ours.mails(name, post), theirs.mails(name, post)
        kind = "Group" if name == "VG_1" else "Instance"
        states = ("BACKUP", "MASTER", "FAULT", "BACKUP", "MASTER")
        assert said == [
            *(f"VRRP {kind} {name} - Entering {state} state" for state in states),
            *([f"VRRP {kind} {name} - Stopping"] if len(said) > len(states) else []),
        ]
        # keepalived tries once, and all at the same time: what it says while the link is down, and with its last
        # breath, is lost, and the order of the others is chance.
        assert set(theirs_said) <= set(said)
        assert len(theirs_said) >= 2
    # With its last breath haxlb says all, and which it could not bring.
    missing = len(NAMES) * 6 - sum(len(ours.mails(name, post)) for name in NAMES)
    assert 0 <= missing <= ours.mails_given_up()
