"""What an operator is told of a failover: by scripts, by a FIFO and its reader, by a mail server in a namespace."""

from __future__ import annotations

import contextlib
import email
import email.policy
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab

from haxlb.model.instance import Role
from tests.netns.site import Director
from tests.netns.standin import eventually, whole_lines

pytestmark = pytest.mark.netns

MAIL_HOST, MAIL_PORT = "10.7.0.10", 2525


def configuration(name: str, priority: int, directory: Path) -> str:
    """VI_1's first script hangs; VI_2 is the one whose story is told."""
    return f"""
global_defs {{
    router_id {name}
    script_user root
    notification_email {{
        ops@example.com
        pager@example.com
    }}
    notification_email_from haxlb@example.com
    smtp_server {MAIL_HOST} {MAIL_PORT}
    smtp_connect_timeout 60
    vrrp_notify_fifo {directory}/fifo
    vrrp_notify_fifo_script "{directory}/reader copied"
    vrrp_notify_priority_changes true
    startup_script {directory}/startup
    shutdown_script {directory}/shutdown
}}
vrrp_instance VI_1 {{
    version 3
    interface eth0
    virtual_router_id 51
    priority {priority}
    advert_int 0.1
    virtual_ipaddress {{
        10.7.0.100/24
    }}
    notify_backup {directory}/hang
}}
vrrp_instance VI_2 {{
    version 3
    interface eth0
    virtual_router_id 52
    priority {priority}
    advert_int 0.1
    virtual_ipaddress {{
        10.7.0.101/24
    }}
    notify_master "{directory}/script own 'two words'"
    notify {directory}/script
    smtp_alert
}}
"""


class Party:
    """A director whose operator listens."""

    def __init__(self, lab: Lab, name: str, priority: int, number: int, directory: Path) -> None:
        host = lab.host(name, f"10.7.0.{number}/24", director=True)
        self.directory = directory / name
        self.director = Director(host, self.directory, configuration(name, priority, self.directory))
        self._script("hang", "trap '' TERM\necho $$ > hang.pid\nexec sleep 600")
        # A line is one write: who reads amid two sees half of it.
        self._script("script", 'words=$(printf "<%s>" "$@")\necho "$words $PWD" >> out')
        self._script("reader", 'while read -r line; do echo "$line" >> "$1"; done < "$2"')
        self._script("startup", "ip -br address show dev eth0 > startup.out")
        self._script("shutdown", "ip -br address show dev eth0 > shutdown.out")

    def _script(self, name: str, text: str) -> None:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)

    def read(self, name: str) -> list[str]:
        return whole_lines(self.directory / name)

    def told(self) -> list[str]:
        """What VI_2's scripts were given, and that they ran beside the configuration."""
        lines = [line.rpartition(" ") for line in self.read("out")]
        assert {place for _, _, place in lines} <= {str(self.directory)}
        return [words for words, _, _ in lines]

    def lines(self, instance: str = "VI_2") -> list[str]:
        """What the FIFO's reader has copied."""
        return [line for line in self.read("copied") if f'"{instance}"' in line]


class Post:
    """A real SMTP server in a namespace."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self._maildir = directory / "mail"
        host = lab.host("mx", f"{MAIL_HOST}/24")
        command = (
            *(sys.executable, "-m", "aiosmtpd", "-n"),
            *("-l", f"{MAIL_HOST}:{MAIL_PORT}"),
            *("-c", "aiosmtpd.handlers.Mailbox", str(self._maildir)),
        )
        host.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: f":{MAIL_PORT}" in host.run("ss", "-ltn").stdout, "the mail server listens")

    def subjects(self, node: str) -> list[str]:
        """Of the mails of this director, in the order in which they came."""
        new = self._maildir / "new"
        files = sorted(new.iterdir(), key=_turn) if new.exists() else []
        messages = [email.message_from_bytes(each.read_bytes(), policy=email.policy.default) for each in files]
        assert {str(each["X-RcptTo"]) for each in messages} <= {"ops@example.com, pager@example.com"}
        return [str(each["Subject"]) for each in messages if f"[{node}]" in each["Subject"]]


def _turn(mail: Path) -> int:
    """The number that the server counts its deliveries by: TIME.MxxxPxxxQnumber.HOST (mailbox.Maildir)."""
    return int(mail.name.split(".")[1].rpartition("Q")[2])


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(f"hxnt{os.getpid()}") as made:
        yield made


@pytest.fixture
def post(lab: Lab, tmp_path: Path) -> Post:
    return Post(lab, tmp_path)


@pytest.fixture
def parties(lab: Lab, tmp_path: Path) -> Iterator[tuple[Party, Party]]:
    tmp_path.chmod(0o755)
    pair = Party(lab, "lb1", 150, 1, tmp_path), Party(lab, "lb2", 100, 2, tmp_path)
    yield pair
    for each in pair:
        each.director.close()


def subject(node: str, what: str) -> str:
    return f"[{node}] VRRP Instance VI_2 - {what}"


def test_a_failover_is_told_in_order_by_every_way(post: Post, parties: tuple[Party, Party]) -> None:
    one, two = parties
    one.director.start().becomes(Role.MASTER)
    eventually(lambda: len(one.told()) == 3, "the scripts of VI_2 run although one of VI_1 hangs")
    hanging = int(eventually(lambda: one.read("hang.pid"), "that one has begun to hang")[0])
    assert Path(f"/proc/{hanging}").exists()
    assert "10.7.0.101" not in one.read("startup.out")[0]
    two.director.start().becomes(Role.BACKUP)

    # Each way has its own pace. In a stop they have a few seconds: what came before it is not to need them, too.
    states = ("Entering BACKUP state", "Entering MASTER state", "Stopping")
    eventually(lambda: len(one.lines("VI_1")) == len(one.lines("VI_2")) == 2, "the FIFO's lines of MASTER")
    eventually(lambda: len(post.subjects("lb1")) == 2, "the mails of MASTER")
    assert one.director.stop() == 0
    assert not Path(f"/proc/{hanging}").exists()
    two.director.becomes(Role.MASTER)
    assert one.told() == [
        "<INSTANCE><VI_2><BACKUP><150>",
        "<own><two words>",
        "<INSTANCE><VI_2><MASTER><150>",
        "<INSTANCE><VI_2><STOP><150>",
    ]
    for name in ("VI_1", "VI_2"):
        assert one.lines(name) == [f'INSTANCE "{name}" {state} 150' for state in ("BACKUP", "MASTER", "STOP")]
    assert "10.7.0.101" not in one.read("shutdown.out")[0]
    assert not (one.directory / "fifo").exists()
    eventually(lambda: len(post.subjects("lb1")) == 3, "the mail of the stop is delivered")
    assert post.subjects("lb1") == [subject("lb1", state) for state in states]

    eventually(lambda: len(two.told()) == 3, "the scripts of the other director")
    assert two.told() == [
        "<INSTANCE><VI_2><BACKUP><100>",
        "<own><two words>",
        "<INSTANCE><VI_2><MASTER><100>",
    ]
    eventually(lambda: len(two.lines()) == 2, "its FIFO's lines")
    assert two.lines() == ['INSTANCE "VI_2" BACKUP 100', 'INSTANCE "VI_2" MASTER 100']
    eventually(lambda: len(post.subjects("lb2")) == 2, "its mails")
    assert post.subjects("lb2") == [subject("lb2", state) for state in states[:2]]


def test_a_dead_speaker_is_told_as_fault_and_its_successor_as_what_it_becomes(
    post: Post, parties: tuple[Party, Party]
) -> None:
    one, _ = parties
    with one.director.settings.open("a") as settings:
        settings.write("processes:\n  spare_speaker: false\n")  # with one there would be nothing to tell
    one.director.start().becomes(Role.MASTER)
    eventually(lambda: len(one.told()) == 3, "MASTER is told")
    os.kill(one.director.pid("speaker"), signal.SIGKILL)
    eventually(lambda: len(one.lines()) == 5, "FAULT, BACKUP and MASTER again")
    states = ("BACKUP", "MASTER", "FAULT", "BACKUP", "MASTER")
    assert one.lines() == [f'INSTANCE "VI_2" {state} 150' for state in states]
    eventually(lambda: len(one.told()) == 7, "the scripts, too")
    assert [words.split("><")[2] for words in one.told() if words.startswith("<INSTANCE")] == list(states)
    eventually(lambda: len(post.subjects("lb1")) == 5, "and the mails")
    assert post.subjects("lb1") == [subject("lb1", f"Entering {state} state") for state in states]


def test_a_changed_priority_is_a_line_and_a_fact(post: Post, parties: tuple[Party, Party]) -> None:
    one, _ = parties
    director = one.director
    director.host.run("ip", "link", "add", "hxup", "type", "veth", "peer", "name", "hxdown")
    for name in ("hxup", "hxdown"):
        director.host.run("ip", "link", "set", name, "up")
    text = director.config.read_text()
    tracked = "smtp_alert\n    track_interface {\n        hxup weight -20\n    }"
    director.config.write_text(text.replace("smtp_alert", tracked))
    director.start().becomes(Role.MASTER)
    eventually(lambda: len(one.lines()) == 2 and len(one.told()) == 3, "MASTER is told")
    director.host.run("ip", "link", "set", "hxdown", "down")
    eventually(lambda: one.lines()[-1] == 'INSTANCE "VI_2" MASTER_PRIORITY 130', "the line")
    assert len(one.told()) == 3  # no script hears of it

    def history() -> str:
        status = director.status()
        return "\n".join(status.history if status else ())

    eventually(lambda: "VI_2 priority 150 -> 130: 150 - 20 (track_interface hxup)" in history(), "the fact")
    assert director.stop() == 0


SERVICE = """
virtual_server 10.7.0.101 80 {
    delay_loop 1
    lb_algo wrr
    lb_kind DR
    protocol TCP
    smtp_alert
    real_server 10.7.0.10 80 {
        TCP_CHECK {
            connect_timeout 1
        }
    }
}
"""


def test_a_dead_server_is_told_to_its_fifo_and_by_mail(
    lab: Lab, post: Post, parties: tuple[Party, Party], tmp_path: Path
) -> None:
    one, _ = parties
    fifo = tmp_path / "lvs"
    text = one.director.config.read_text().replace("startup_script", f"lvs_notify_fifo {fifo}\n    startup_script")
    one.director.config.write_text(text + SERVICE)
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    one.director.start()
    said = b""

    def heard() -> bool:
        nonlocal said
        with contextlib.suppress(BlockingIOError):
            said += os.read(end, 4096)
        return said.endswith(b"VS [10.7.0.101]:tcp:80 DOWN\n")

    eventually(heard, "the quorum is lost")
    lines = said.decode().splitlines()
    assert lines[-2:] == ["RS [10.7.0.10]:tcp:80 [10.7.0.101]:tcp:80 DOWN", "VS [10.7.0.101]:tcp:80 DOWN"]
    assert all(line.startswith(("RS ", "VS ")) for line in lines)
    expected = {
        "[lb1] Realserver [10.7.0.10]:tcp:80 of virtual server [10.7.0.101]:tcp:80 - DOWN",
        "[lb1] Virtualserver [10.7.0.101]:tcp:80 - DOWN",
    }
    eventually(lambda: expected <= set(post.subjects("lb1")), "both mails")
    assert one.director.stop() == 0
    os.close(end)


def test_a_dead_supervisor_leaves_no_instance_without_its_stop(post: Post, parties: tuple[Party, Party]) -> None:
    one, _ = parties
    one.director.start().becomes(Role.MASTER)
    eventually(lambda: len(one.told()) == 3 and len(one.lines()) == 2, "MASTER is told")
    assert one.director.process is not None
    one.director.process.kill()
    eventually(lambda: len(one.told()) == 4, "STOP, by the speaker itself")
    assert one.told()[-1] == "<INSTANCE><VI_2><STOP><150>"
    assert one.lines()[-1] == 'INSTANCE "VI_2" MASTER 150'  # a FIFO is the supervisor's: its reader sees the end


def test_a_reload_gives_the_reader_no_end_of_file(post: Post, parties: tuple[Party, Party]) -> None:
    one, _ = parties
    one.director.start().becomes(Role.MASTER)
    eventually(lambda: len(one.lines()) == 2, "the reader reads")
    text = one.director.config.read_text()
    one.director.config.write_text(
        text.replace("script_user root", "script_user root\n    fifo_write_vrrp_states_on_reload")
    )
    answer = one.director.cli("reload")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    eventually(lambda: len(one.lines()) == 3, "the state is written again")
    assert one.lines()[-1] == 'INSTANCE "VI_2" MASTER 150'
    assert "fifo_script_ended" not in one.director.events()
