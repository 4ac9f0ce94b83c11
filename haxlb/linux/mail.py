"""MailPort: mail by SMTP, one after the other, in a thread that lives as long as there is something to send."""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid

from haxlb.daemon.notifications import Mail
from haxlb.linux.log import Log
from haxlb.model.errors import HostError
from haxlb.model.node import SECOND_US
from haxlb.model.notification import MailSettings

QUEUE_LIMIT = 256
"""Mails waiting: more than that of one storm nobody reads."""
PAUSES_S = (5.0, 30.0)
"""Between the attempts for one mail; after the last it is dropped."""
DIALOGUE_LIMIT = 3
"""A dialogue may take this many times smtp_connect_timeout, however steadily the server drips."""


@dataclass(frozen=True, slots=True)
class _Letter:
    mail: Mail
    settings: MailSettings
    at: float
    """Seconds since the epoch: a mail that was sent late says when it was written."""


class Mailer:
    """Sends mails in order. The loop never waits: the dialogue is a thread's, which the interpreter does not join."""

    def __init__(self, log: Log, *, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._log = log
        self._pauses_s = pauses_s
        self._loop = asyncio.get_running_loop()
        self._settings: MailSettings | None = None
        self._waiting: deque[_Letter] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        """No more pauses: we are leaving."""
        self._idle = asyncio.Event()
        self._idle.set()

    def configure(self, settings: MailSettings | None) -> None:
        """Use this server and these addresses from now on, or send none."""
        self._settings = settings

    def send(self, mail: Mail) -> None:
        """Queue it; nothing happens where no server or no recipient is configured."""
        if self._settings is None or not self._settings.recipients:
            return
        with self._lock:
            if len(self._waiting) >= QUEUE_LIMIT:
                self._log("error", "mail_dropped", subject=self._waiting.popleft().mail.subject, waiting=QUEUE_LIMIT)
            self._waiting.append(_Letter(mail, self._settings, time.time()))
            if self._thread is not None:
                return
            self._idle.clear()
            self._thread = threading.Thread(target=self._work, name="mail", daemon=True)
        self._thread.start()

    async def finish(self, timeout_s: float) -> None:
        """Send what waits, at most this long and without pauses between attempts; the rest is lost and logged."""
        self._hurry.set()
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            with self._lock:
                lost = len(self._waiting)
                self._waiting.clear()
            self._log("error", "mail_dropped", reason="haxlb stops before the server has taken it", waiting=lost + 1)

    # -- the thread's side

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    self._say(self._idle_unless_busy)
                    return
                letter = self._waiting.popleft()
            self._deliver(letter)

    def _deliver(self, letter: _Letter) -> None:
        for pause_s in (*self._pauses_s, None):
            problem = converse(letter.settings, letter.mail, letter.at)
            if problem is None:
                return
            final = problem.permanent or pause_s is None
            self._say(self._complain, letter, problem, final)
            if final:
                return
            self._hurry.wait(pause_s)

    def _say(self, what: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is there to hear it
            self._loop.call_soon_threadsafe(what, *arguments)

    # -- the loop's side

    def _idle_unless_busy(self) -> None:
        if self._thread is None:
            self._idle.set()

    def _complain(self, letter: _Letter, problem: Failure, final: bool) -> None:  # noqa: FBT001 - from a thread
        self._log(
            "error" if final else "warning",
            "mail_dropped" if final else "mail_not_sent",
            subject=letter.mail.subject,
            server=f"{letter.settings.server}:{letter.settings.port}",
            reason=problem.message,
            remedy=problem.remedy,
        )


class Failure(HostError):
    """A mail was not taken; `permanent`: it would not be the next time either."""

    def __init__(self, message: str, *, remedy: str, permanent: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.permanent = permanent


def converse(settings: MailSettings, mail: Mail, at: float) -> Failure | None:
    """One connection, one mail to all recipients; None when the server has taken it for all of them. Blocks."""
    timeout_s = settings.connect_timeout_us / SECOND_US
    try:
        message = _message(settings, mail, at).as_bytes(policy=SMTP)
        client = smtplib.SMTP(timeout=timeout_s, local_hostname=_helo(settings))
    except ValueError as problem:  # a line break in an address
        return _unfit(problem)
    cut = threading.Timer(DIALOGUE_LIMIT * timeout_s, _cut, (client,))
    cut.daemon = True
    cut.start()
    try:
        client.connect(settings.server, settings.port)
        refused = client.sendmail(_sender(settings), settings.recipients, message)
        with contextlib.suppress(smtplib.SMTPException, OSError):
            client.quit()  # the mail has been taken: how the server says goodbye is its own affair
    except smtplib.SMTPRecipientsRefused as problem:
        return _refused(problem.recipients)
    except smtplib.SMTPResponseException as problem:
        said = f"the server says {problem.smtp_code} {_text(problem.smtp_error)}"
        return Failure(said, remedy="see its log", permanent=problem.smtp_code >= 500)  # noqa: PLR2004 - RFC 5321 4.2.1
    except (smtplib.SMTPException, OSError, EOFError) as problem:
        remedy = "check smtp_server, and that this host may reach it"
        return Failure(str(problem) or type(problem).__name__, remedy=remedy)
    except ValueError as problem:  # smtplib on line breaks, and on what no encoding has
        return _unfit(problem)
    finally:
        cut.cancel()
        client.close()
    return _refused(refused, of=len(settings.recipients)) if refused else None


def _cut(client: smtplib.SMTP) -> None:
    sock = client.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _message(settings: MailSettings, mail: Mail, at: float) -> EmailMessage:
    """Raises ValueError where an address holds a line break: nothing of a name may become a header."""
    message = EmailMessage()
    message["From"] = _sender(settings)
    message["To"] = ", ".join(settings.recipients)
    message["Subject"] = mail.subject
    message["Date"] = formatdate(at, localtime=True)
    message["Message-ID"] = make_msgid(domain=_helo(settings))
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no answer is wanted
    message.set_content(mail.body)
    return message


def _helo(settings: MailSettings) -> str:
    return settings.helo_name or socket.gethostname()


def _sender(settings: MailSettings) -> str:
    return settings.sender or f"haxlb@{socket.gethostname()}"


def _unfit(problem: ValueError) -> Failure:
    return Failure(f"it cannot be sent: {problem}", remedy="check the addresses and smtp_helo_name", permanent=True)


def _refused(recipients: dict[str, tuple[int, bytes]], *, of: int = 0) -> Failure:
    """All (`of` 0) or some of the recipients were refused; for some it is not tried again, the others have it."""
    said = "; ".join(f"{address}: {code} {_text(text)}" for address, (code, text) in recipients.items())
    permanent = bool(of) or all(code >= 500 for code, _ in recipients.values())  # noqa: PLR2004 - RFC 5321 4.2.1
    return Failure(f"refused for {said}", remedy="check notification_email", permanent=permanent)


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said
