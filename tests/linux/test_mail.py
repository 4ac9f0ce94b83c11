from __future__ import annotations

import asyncio
import contextlib
import email
import email.policy
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiosmtpd import smtp as aiosmtp
from aiosmtpd.controller import Controller

from haxlb.daemon.notifications import Mail
from haxlb.linux import mail as module
from haxlb.linux.mail import Mailer
from haxlb.linux.smtp import DIALOGUE_LIMIT, converse
from haxlb.model.notification import MailSettings
from haxlb.model.status import MailStatus

SECOND_US = 1_000_000
HELLO = Mail(subject="[lb1] VRRP Instance VI_1 - Entering MASTER state", body="state: MASTER\n")


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


class Lines:
    """A log that remembers, and that a test can wait for."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []
        self.changed = asyncio.Event()

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((level, event, fields))
        self.changed.set()

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(level, event) for level, event, _ in self.lines]

    async def until(self, event: str) -> dict[str, object]:
        while True:
            for _, each, fields in self.lines:
                if each == event:
                    return fields
            self.changed.clear()
            await self.changed.wait()


@dataclass
class Post:
    """A real SMTP server's behaviour."""

    received: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    helo: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """To DATA, one each; none left = it is taken."""
    refuses: dict[str, str] = field(default_factory=dict)
    """Recipients, with the answer."""
    tried: int = 0

    async def handle_EHLO(  # noqa: N802 - aiosmtpd's hook
        self,
        server: aiosmtp.SMTP,
        session: aiosmtp.Session,
        envelope: aiosmtp.Envelope,
        hostname: str,
        responses: list[str],
    ) -> list[str]:
        self.helo.append(hostname)
        session.host_name = hostname
        return responses

    async def handle_RCPT(  # noqa: N802
        self,
        server: aiosmtp.SMTP,
        session: aiosmtp.Session,
        envelope: aiosmtp.Envelope,
        address: str,
        options: list[str],
    ) -> str:
        if address in self.refuses:
            return self.refuses[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: aiosmtp.SMTP, session: aiosmtp.Session, envelope: aiosmtp.Envelope) -> str:  # noqa: N802
        self.tried += 1
        if self.answers:
            return self.answers.pop(0)
        assert envelope.mail_from is not None
        assert isinstance(envelope.content, bytes)
        self.received.append((envelope.mail_from, list(envelope.rcpt_tos), envelope.content))
        return "250 taken"


class Listening(Controller):
    """On a port that is its own from the beginning: one that was free a moment ago may be another's."""

    def __init__(self, behaviour: Post) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        super().__init__(behaviour, hostname="127.0.0.1", port=port, ready_timeout=60)

    def _create_server(self) -> Coroutine[Any, Any, asyncio.AbstractServer]:
        return self.loop.create_server(self._factory_invoker, sock=self._listener)


@pytest.fixture
def post() -> Iterator[tuple[Post, int]]:
    behaviour = Post()
    controller = Listening(behaviour)
    controller.start()
    yield behaviour, controller.port
    controller.stop()


def settings(port: int, **changes: Any) -> MailSettings:
    given: dict[str, Any] = {
        "server": "127.0.0.1",
        "port": port,
        "sender": "haxlb@example.com",
        "recipients": ("one@example.com", "two@example.com"),
        "connect_timeout_us": 10 * SECOND_US,
        **changes,
    }
    return MailSettings(**given)


def test_one_mail_goes_to_all_recipients_in_one_dialogue(post: tuple[Post, int]) -> None:
    behaviour, port = post
    assert converse(settings(port, helo_name="lb1.example.com"), HELLO, 1_800_000_000.0) is None
    ((sender, recipients, content),) = behaviour.received
    assert (sender, recipients) == ("haxlb@example.com", ["one@example.com", "two@example.com"])
    assert behaviour.helo == ["lb1.example.com"]
    message = email.message_from_bytes(content, policy=email.policy.default)
    assert message["Subject"] == HELLO.subject
    assert message["To"] == "one@example.com, two@example.com"
    assert message["From"] == "haxlb@example.com"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"].datetime.timestamp() == 1_800_000_000
    assert message.get_content().replace("\r\n", "\n") == HELLO.body


def test_without_a_helo_name_and_a_sender_the_host_stands_for_them(post: tuple[Post, int]) -> None:
    behaviour, port = post
    assert converse(settings(port, sender=""), HELLO, 0) is None
    assert behaviour.helo == [socket.gethostname()]
    assert behaviour.received[0][0] == f"haxlb@{socket.gethostname()}"


def test_names_beyond_ascii_and_lines_with_a_dot_arrive_whole(post: tuple[Post, int]) -> None:
    behaviour, port = post
    mail = Mail(subject="[lb1] VRRP Instance Zürich - Entering MASTER state", body="instance: Zürich\n.\n..\nend\n")
    assert converse(settings(port), mail, 0) is None
    message = email.message_from_bytes(behaviour.received[0][2], policy=email.policy.default)
    assert message["Subject"] == mail.subject
    assert message.get_content().replace("\r\n", "\n") == mail.body


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": "a@example.com\r\nBcc: all@example.com"},
        {"recipients": ("a@example.com\nRCPT TO:<b@example.com>",)},
        {"sender": "haxlb@exa\0mple.com"},
        {"sender": "haxlb@example.com\r"},
        {"sender": "zürich@example.com"},
    ],
)
def test_an_address_that_none_can_be_sends_nothing(post: tuple[Post, int], changes: dict[str, Any]) -> None:
    behaviour, port = post
    problem = converse(settings(port, **changes), HELLO, 0)
    assert problem is not None
    assert problem.permanent
    assert behaviour.received == []


def test_a_line_break_in_a_subject_sends_nothing(post: tuple[Post, int]) -> None:
    behaviour, port = post
    problem = converse(settings(port), Mail(subject="a\r\nBcc: b@example.com", body=""), 0)
    assert problem is not None
    assert problem.permanent
    assert behaviour.received == []


def test_a_line_break_in_the_helo_name_sends_nothing(post: tuple[Post, int]) -> None:
    behaviour, port = post
    problem = converse(settings(port, helo_name="lb1\r\nMAIL FROM:<a@example.com>"), HELLO, 0)
    assert problem is not None
    assert problem.permanent
    assert behaviour.received == []


def test_a_recipient_that_is_refused_keeps_the_mail_from_nobody_else(post: tuple[Post, int]) -> None:
    behaviour, port = post
    behaviour.refuses["one@example.com"] = "550 no such user"
    problem = converse(settings(port), HELLO, 0)
    assert [recipients for _, recipients, _ in behaviour.received] == [["two@example.com"]]
    assert problem is not None
    assert problem.permanent  # else the others would get it twice
    assert problem.message == "refused for one@example.com: 550 no such user"


@pytest.mark.parametrize(("answer", "permanent"), [("550 no such user", True), ("450 busy", False)])
def test_when_all_are_refused_the_code_says_whether_to_try_again(
    post: tuple[Post, int], answer: str, permanent: Any
) -> None:
    behaviour, port = post
    behaviour.refuses = {"one@example.com": answer, "two@example.com": answer}
    problem = converse(settings(port), HELLO, 0)
    assert problem is not None
    assert problem.permanent is permanent


# -- the queue


def test_mails_arrive_in_order(post: tuple[Post, int]) -> None:
    behaviour, port = post

    async def test() -> None:
        log = Lines()
        mailer = Mailer(log)
        mailer.configure(settings(port))
        for number in range(5):
            mailer.send(Mail(subject=f"mail {number}", body=""))
        await mailer.finish(30)
        assert log.events == []

    run(test())
    subjects = [email.message_from_bytes(content)["Subject"] for _, _, content in behaviour.received]
    assert subjects == [f"mail {number}" for number in range(5)]


def test_a_server_that_is_busy_is_asked_again(post: tuple[Post, int]) -> None:
    behaviour, port = post
    behaviour.answers = ["451 try later", "421 too many"]

    async def test() -> None:
        log = Lines()
        mailer = Mailer(log, pauses_s=(0.01, 0.01))
        mailer.configure(settings(port))
        mailer.send(HELLO)
        mailer.send(Mail(subject="second", body=""))
        await mailer.finish(30)
        assert log.events == [("warning", "mail_not_sent")] * 2
        assert log.lines[0][2]["reason"] == "the server says 451 try later"

    run(test())
    assert [email.message_from_bytes(content)["Subject"] for _, _, content in behaviour.received] == [
        HELLO.subject,
        "second",
    ]


def test_what_the_server_does_not_take_in_three_attempts_is_dropped_with_a_line(post: tuple[Post, int]) -> None:
    behaviour, port = post
    behaviour.answers = ["451 try later"] * 3

    async def test() -> None:
        log = Lines()
        mailer = Mailer(log, pauses_s=(0.01, 0.01))
        mailer.configure(settings(port))
        mailer.send(HELLO)
        await mailer.finish(30)
        assert log.events == [("warning", "mail_not_sent")] * 2 + [("error", "mail_dropped")]
        assert log.lines[-1][2]["subject"] == HELLO.subject
        assert mailer.status == MailStatus(dropped=1, problem=f"127.0.0.1:{port}: the server says 451 try later")
        mailer.send(HELLO)
        assert mailer.status.waiting == 1
        await mailer.finish(30)
        assert mailer.status == MailStatus(delivered=1, dropped=1)

    run(test())
    assert behaviour.tried == 4
    assert len(behaviour.received) == 1


def test_a_final_no_is_not_asked_again(post: tuple[Post, int]) -> None:
    behaviour, port = post
    behaviour.answers = ["554 no"]

    async def test() -> None:
        log = Lines()
        mailer = Mailer(log, pauses_s=(60, 60))
        mailer.configure(settings(port))
        mailer.send(HELLO)
        fields = await log.until("mail_dropped")
        assert fields["reason"] == "the server says 554 no"
        await mailer.finish(30)

    run(test())
    assert behaviour.tried == 1


def test_nobody_listens() -> None:
    async def test(port: int) -> None:
        log = Lines()
        mailer = Mailer(log, pauses_s=())
        mailer.configure(settings(port))
        mailer.send(HELLO)
        fields = await log.until("mail_dropped")
        assert "refused" in str(fields["reason"])
        assert fields["remedy"]
        await mailer.finish(30)

    with socket.socket() as holder:  # of the port, where it does not listen
        holder.bind(("127.0.0.1", 0))
        run(test(holder.getsockname()[1]))


class Dripping:
    """A server that accepts, and then says what it is told to."""

    def __init__(self, say: Callable[[socket.socket, threading.Event], None]) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._say = say
        self._over = threading.Event()
        self.accepted = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                connection, _ = self._socket.accept()
                self.accepted.set()
                with connection, contextlib.suppress(OSError):
                    self._say(connection, self._over)

    def close(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


@pytest.fixture
def silent() -> Iterator[Dripping]:
    def hold(_: socket.socket, over: threading.Event) -> None:
        over.wait(30)

    server = Dripping(hold)
    yield server
    server.close()


@pytest.fixture
def dripping() -> Iterator[Dripping]:
    def drip(connection: socket.socket, over: threading.Event) -> None:
        while not over.wait(0.02):
            connection.sendall(b"220-still here\r\n")

    server = Dripping(drip)
    yield server
    server.close()


def test_a_server_that_says_nothing_costs_the_timeout_and_not_the_loop(silent: Dripping) -> None:
    async def test() -> None:
        hangs = Lines()
        patient = Mailer(hangs)
        patient.configure(settings(silent.port, connect_timeout_us=50 * SECOND_US))
        patient.send(HELLO)
        assert await asyncio.to_thread(silent.accepted.wait, 30)
        assert hangs.events == []  # the dialogue goes on, and so does the loop
        log = Lines()
        mailer = Mailer(log, pauses_s=())
        mailer.configure(settings(silent.port, connect_timeout_us=SECOND_US // 5))
        mailer.send(HELLO)
        assert "timed out" in str((await log.until("mail_dropped"))["reason"])
        await mailer.finish(30)
        await patient.finish(0.01)

    run(test())


def test_a_server_that_drips_is_cut_off(dripping: Dripping) -> None:
    # Without the limit of the whole dialogue this would not end: each read gets something in time.
    assert DIALOGUE_LIMIT * 0.1 < 60
    problem = converse(settings(dripping.port, connect_timeout_us=SECOND_US // 10), HELLO, 0)
    assert problem is not None
    assert not problem.permanent


def test_a_stop_does_not_wait_for_a_server_that_hangs(silent: Dripping) -> None:
    async def test() -> None:
        log = Lines()
        mailer = Mailer(log)
        mailer.configure(settings(silent.port, connect_timeout_us=20 * SECOND_US))
        mailer.send(HELLO)
        mailer.send(HELLO)
        assert await asyncio.get_running_loop().run_in_executor(None, silent.accepted.wait, 30)
        await mailer.finish(0.01)
        assert log.events == [("error", "mail_dropped")]
        assert log.lines[0][2]["waiting"] == 2

    run(test())


def test_a_storm_of_mails_is_bounded(silent: Dripping) -> None:
    async def test() -> None:
        log = Lines()
        mailer = Mailer(log)
        mailer.configure(settings(silent.port))
        mailer.send(HELLO)
        assert await asyncio.get_running_loop().run_in_executor(None, silent.accepted.wait, 30)
        for _ in range(module.QUEUE_LIMIT + 3):
            mailer.send(HELLO)
        assert log.events == [("error", "mail_dropped")] * 3
        assert (mailer.status.dropped, mailer.status.waiting) == (3, module.QUEUE_LIMIT + 1)
        await mailer.finish(0.01)

    run(test())


@pytest.mark.parametrize("what", [None, MailSettings(server="127.0.0.1")])
def test_without_a_server_or_recipients_there_is_no_mail(what: MailSettings | None) -> None:
    async def test() -> None:
        log = Lines()
        mailer = Mailer(log)
        mailer.configure(what)
        mailer.send(HELLO)
        await mailer.finish(30)
        assert log.events == []

    run(test())


def test_a_fault_of_ours_is_logged_and_the_next_mail_is_sent(post: tuple[Post, int]) -> None:
    behaviour, port = post

    async def test() -> None:
        log = Lines()
        mailer = Mailer(log, pauses_s=())
        mailer.configure(settings(port))
        broken: Any = Mail(subject="broken", body=None)  # type: ignore[arg-type]
        mailer.send(broken)
        mailer.send(HELLO)
        await mailer.finish(30)
        assert log.events[0][0] == "error"
        assert (mailer.status.delivered, mailer.status.dropped) == (1, 1)

    run(test())
    assert len(behaviour.received) == 1
