"""One mail by SMTP: the dialogue with a server, and what went wrong in it. Blocks; imported where mail is sent."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import threading
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid

from haxlb.daemon.notifications import Mail
from haxlb.model.errors import HostError
from haxlb.model.notification import MailSettings
from haxlb.model.units import SECOND_US

DIALOGUE_LIMIT = 3
"""A dialogue may take this many times smtp_connect_timeout, however steadily the server drips."""

_DEFAULT_TIMEOUT_US = 30 * SECOND_US
"""Where 0 is configured: a server must not be able to keep us for ever."""


class Failure(HostError):
    """A mail was not taken; `permanent`: it would not be the next time either."""

    def __init__(self, message: str, *, remedy: str, permanent: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.permanent = permanent


def converse(settings: MailSettings, mail: Mail, at: float) -> Failure | None:
    """One connection, one mail to all recipients; None when the server has taken it for all of them. Blocks."""
    if not all(each.isprintable() for each in (_sender(settings), *settings.recipients, _helo(settings), mail.subject)):
        return _unfit("a control character in an address or a name")
    try:
        message = _message(settings, mail, at).as_bytes()
    except (ValueError, IndexError, AttributeError) as problem:  # email's parser on odd addresses
        return _unfit(problem)
    timeout_s = (settings.connect_timeout_us or _DEFAULT_TIMEOUT_US) / SECOND_US
    client = smtplib.SMTP(timeout=timeout_s, local_hostname=_helo(settings))
    cut = threading.Timer(DIALOGUE_LIMIT * timeout_s, _cut, (client,))
    cut.daemon = True
    cut.start()
    try:
        return _send(client, settings, message)
    except (smtplib.SMTPException, OSError, EOFError, ValueError) as problem:
        return _failure(problem)
    finally:
        cut.cancel()
        client.close()


def _send(client: smtplib.SMTP, settings: MailSettings, message: bytes) -> Failure | None:
    client.connect(settings.server, settings.port)
    refused = client.sendmail(_sender(settings), settings.recipients, message)
    with contextlib.suppress(smtplib.SMTPException, OSError):
        client.quit()  # the mail has been taken: how the server says goodbye is its own affair
    return _refused(refused, of=len(settings.recipients)) if refused else None


def _failure(problem: Exception) -> Failure:
    if isinstance(problem, smtplib.SMTPRecipientsRefused):
        return _refused(problem.recipients)
    if isinstance(problem, smtplib.SMTPResponseException):
        said = f"the server says {problem.smtp_code} {_text(problem.smtp_error)}"
        return Failure(said, remedy="see its log", permanent=problem.smtp_code >= 500)  # noqa: PLR2004 - RFC 5321 4.2.1
    if isinstance(problem, ValueError):  # an address beyond ASCII
        return _unfit(problem)
    remedy = "check smtp_server, and that this host may reach it"
    return Failure(str(problem) or type(problem).__name__, remedy=remedy)


def _cut(client: smtplib.SMTP) -> None:
    sock = client.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _message(settings: MailSettings, mail: Mail, at: float) -> EmailMessage:
    """Raises ValueError for what no header can hold."""
    message = EmailMessage(policy=SMTP.clone(cte_type="7bit"))  # a server need not speak 8BITMIME
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


def _unfit(problem: Exception | str) -> Failure:
    return Failure(f"it cannot be sent: {problem}", remedy="check the addresses and smtp_helo_name", permanent=True)


def _refused(recipients: dict[str, tuple[int, bytes]], *, of: int = 0) -> Failure:
    """All (`of` 0) or some of the recipients were refused; for some it is not tried again, the others have it."""
    said = "; ".join(f"{address}: {code} {_text(text)}" for address, (code, text) in recipients.items())
    permanent = bool(of) or all(code >= 500 for code, _ in recipients.values())  # noqa: PLR2004 - RFC 5321 4.2.1
    return Failure(f"refused for {said}", remedy="check notification_email", permanent=permanent)


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said
