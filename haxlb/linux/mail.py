"""MailPort: mail by SMTP, one after the other, in a thread that lives as long as there is something to send."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haxlb.daemon.notifications import Mail
from haxlb.linux.log import Log
from haxlb.model.notification import MailSettings
from haxlb.model.status import MailStatus

if TYPE_CHECKING:
    from haxlb.linux.smtp import Failure

QUEUE_LIMIT = 256
"""Mails waiting: more than that of one storm nobody reads."""
PAUSES_S = (5.0, 30.0)
"""Between the attempts for one mail; after the last it is dropped."""


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
        self._accepted = self._delivered = self._dropped = 0
        self._problem = ""

    def configure(self, settings: MailSettings | None) -> None:
        """Use this server and these addresses from now on, or send none."""
        self._settings = settings

    def send(self, mail: Mail) -> None:
        """Queue it; nothing happens where no server or no recipient is configured."""
        if self._settings is None or not self._settings.recipients:
            return
        self._accepted += 1
        with self._lock:
            if len(self._waiting) >= QUEUE_LIMIT:
                self._dropped += 1
                self._log("error", "mail_dropped", subject=self._waiting.popleft().mail.subject, waiting=QUEUE_LIMIT)
            self._waiting.append(_Letter(mail, self._settings, time.time()))
            if self._thread is not None:
                return
            self._idle.clear()
            self._thread = threading.Thread(target=self._work, name="mail", daemon=True)
        self._thread.start()

    @property
    def status(self) -> MailStatus:
        """What has become of the mails."""
        waiting = self._accepted - self._delivered - self._dropped
        return MailStatus(delivered=self._delivered, dropped=self._dropped, waiting=waiting, problem=self._problem)

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
            try:
                self._deliver(letter)
            except Exception as bug:  # noqa: BLE001 - the thread must outlive it, else no mail is sent any more
                self._say(self._log_bug, letter, repr(bug))

    def _deliver(self, letter: _Letter) -> None:
        from haxlb.linux.smtp import converse  # a node that sends no mail does without smtplib

        for pause_s in (*self._pauses_s, None):
            problem = converse(letter.settings, letter.mail, letter.at)
            if problem is None:
                self._say(self._took)
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

    def _took(self) -> None:
        self._delivered += 1
        self._problem = ""

    def _log_bug(self, letter: _Letter, reason: str) -> None:
        self._log("error", "bug", place="haxlb.linux.smtp", subject=letter.mail.subject, reason=reason)
        self._dropped += 1
        self._problem = reason

    def _complain(self, letter: _Letter, problem: Failure, final: bool) -> None:  # noqa: FBT001 - from a thread
        self._log(
            "error" if final else "warning",
            "mail_dropped" if final else "mail_not_sent",
            subject=letter.mail.subject,
            server=f"{letter.settings.server}:{letter.settings.port}",
            reason=problem.message,
            remedy=problem.remedy,
        )
        self._dropped += final
        self._problem = f"{letter.settings.server}:{letter.settings.port}: {problem.message}"
