"""What `global_defs` says of FIFOs, mail and scripts."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from haxlb.config.commands import command_of, user_and_group
from haxlb.config.globals import Globals
from haxlb.model.notification import MailSettings, NotificationSettings, NotifyFifo, ScriptSettings
from haxlb.model.units import SECOND_US
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.source import Span
from keepalived_compat.values import Unusable, port

_FIFOS = (("notify_fifo", True, True), ("vrrp_notify_fifo", True, False), ("lvs_notify_fifo", False, True))
"""Keyword, and whether it gets lines about instances and about servers."""


def read_notification(given: Globals, complaints: Complaints) -> NotificationSettings:
    """All of it."""
    user, group = user_and_group(given.entry("script_user"))
    return NotificationSettings(
        fifos=tuple(_fifos(given, complaints)),
        fifo_states_on_reload=given.has("fifo_write_vrrp_states_on_reload"),
        mail=_mail(given, complaints),
        scripts=ScriptSettings(
            user=user,
            group=group,
            security=given.has("enable_script_security"),
            supplementary_groups=given.value("set_supplementary_groups", default=False),
            startup=command_of(given.section("startup_script"), "startup_script"),
            startup_timeout_us=given.value("startup_script_timeout", 10) * SECOND_US,
            shutdown=command_of(given.section("shutdown_script"), "shutdown_script"),
            shutdown_timeout_us=given.value("shutdown_script_timeout", 10) * SECOND_US,
        ),
        priority_changes=given.value("vrrp_notify_priority_changes", default=False),
    )


def _fifos(given: Globals, complaints: Complaints) -> Iterator[NotifyFifo]:
    places: dict[str, Span] = {}
    for name, vrrp, lvs in _FIFOS:
        entry, script = given.entry(name), given.entry(f"{name}_script")
        if entry is None:
            if script is not None:
                complaints.warning(
                    "useless-option",
                    script.words[0],
                    f"{script.keyword.name} without {name} is not run",
                    f"add `{name} PATH`",
                )
            continue
        path = entry.words[1]
        first = places.setdefault(path.text, path.span)
        if first != path.span:
            complaints.error(
                "given-twice",
                path,
                f"{name}: {path.text} is another FIFO already; this one is not written, as in keepalived",
                f"the first stands at {first}; give each its own path",
            )
            continue
        user, group = user_and_group(entry, skip=1)
        yield NotifyFifo(
            path=path.text,
            user=user,
            group=group,
            script=command_of(given.section(f"{name}_script"), f"{name}_script"),
            vrrp=vrrp,
            lvs=lvs,
        )


def _mail(given: Globals, complaints: Complaints) -> MailSettings | None:
    recipients = tuple(dict.fromkeys(word.text for word in given.words("notification_email")))
    entry = given.entry("smtp_server")
    block = given.entry("notification_email")
    if not recipients and (entry is not None or block is not None):
        what = "smtp_server without notification_email" if block is None else "notification_email is empty"
        complaints.warning(
            "no-mail",
            (block or entry).words[0],  # type: ignore[union-attr]
            f"{what}: no mail is sent",
            "add `notification_email { ADDRESS }`" if block is None else "add an address",
        )
    if entry is None or not recipients:
        return None
    host = entry.words[1]
    if ":" in host.text and not _is_address(host.text):
        complaints.error(
            "bad-value", host, f"smtp_server: `{host.text}` is no host; no mail is sent", "smtp_server HOST [PORT]"
        )
        return None
    number: int | None = None
    if len(entry.words) > 2:  # noqa: PLR2004 - the keyword and the host
        try:
            number = port(entry.words[2].text)
        except Unusable as problem:
            complaints.error("bad-value", entry.words[2], f"smtp_server: {problem.message}; 25 is used", "1 to 65535")
    sender = given.entry("notification_email_from")
    return MailSettings(
        server=host.text,
        port=number or 25,
        helo_name=given.value("smtp_helo_name", ""),
        connect_timeout_us=given.value("smtp_connect_timeout", 30) * SECOND_US,
        sender=" ".join(each.text for each in sender.words[1:]) if sender is not None else "",
        recipients=recipients,
        faults=not given.has("no_email_faults"),
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def check_alerts(given: Globals, alerting: Iterator[Span], *, mails: bool, complaints: Complaints) -> None:
    """Who asks for mail has somebody to send it to; said once."""
    asked = [given.entry(name) for name in ("smtp_alert", "smtp_alert_vrrp", "smtp_alert_checker")]
    places = (*(each.words[0].span for each in asked if each is not None and each.value), *alerting)
    if mails or not places or given.has("smtp_server"):
        return
    complaints.warning(
        "no-mail",
        places[0],
        "smtp_alert without smtp_server and notification_email: no mail is sent",
        "add `smtp_server HOST` and `notification_email { ADDRESS }` to global_defs",
    )
