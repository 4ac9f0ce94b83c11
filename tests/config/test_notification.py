"""Who is told, and as whom scripts run."""

from __future__ import annotations

import pytest

from haxlb.config.printer import keepalived_conf
from haxlb.model.commands import Command
from haxlb.model.notification import MailSettings, NotificationSettings, NotifyFifo, ScriptSettings

S = 1_000_000
INSTANCE = "vrrp_instance A {\ninterface eth0\nvirtual_router_id 1\n%s\nvirtual_ipaddress {\n10.0.0.1\n}\n}\n"


@pytest.fixture
def of(loading, codes):
    """What lines of global_defs make: (settings, complaints)."""

    def read(*lines: str, instance: str = "", after: str = ""):
        text = "global_defs {\n" + "\n".join(lines) + "\n}\n" + INSTANCE % instance + after
        loaded = loading(text)
        assert loading(keepalived_conf(loaded.config)).config == loaded.config
        return loaded.config.notification, codes(loaded)

    return read


def test_nothing(of):
    assert of() == (NotificationSettings(), [])


def test_fifos(of):
    found, said = of(
        "notify_fifo /run/all web www",
        'notify_fifo_script "/bin/read -x" nobody',
        "vrrp_notify_fifo /run/vrrp",
        "lvs_notify_fifo /run/lvs",
        "fifo_write_vrrp_states_on_reload",
        "vrrp_notify_priority_changes",
    )
    assert said == []
    assert found == NotificationSettings(
        fifos=(
            NotifyFifo(
                path="/run/all",
                user="web",
                group="www",
                script=Command(argv=("/bin/read", "-x"), user="nobody"),
            ),
            NotifyFifo(path="/run/vrrp", lvs=False),
            NotifyFifo(path="/run/lvs", vrrp=False),
        ),
        fifo_states_on_reload=True,
        priority_changes=True,
    )


@pytest.mark.parametrize(
    ("lines", "paths", "expected"),
    [
        (("notify_fifo /run/a", "vrrp_notify_fifo /run/a"), ["/run/a"], ("error", "given-twice")),
        (("notify_fifo /run/a", "notify_fifo /run/b"), ["/run/a"], ("warning", "given-twice")),
        (("lvs_notify_fifo_script /bin/x",), [], ("warning", "useless-option")),
    ],
)
def test_fifos_that_are_not_used(of, lines, paths, expected):
    found, said = of(*lines)
    assert ([each.path for each in found.fifos], said) == (paths, [expected])


def test_scripts(of):
    found, said = of(
        "script_user web www",
        "enable_script_security",
        "set_supplementary_groups",
        'startup_script "/bin/up now" nobody',
        "startup_script_timeout 3",
        "shutdown_script /bin/down",
        "shutdown_script_timeout 4",
    )
    assert said == []
    assert found.scripts == ScriptSettings(
        user="web",
        group="www",
        security=True,
        supplementary_groups=True,
        startup=Command(argv=("/bin/up", "now"), user="nobody"),
        startup_timeout_us=3 * S,
        shutdown=Command(argv=("/bin/down",)),
        shutdown_timeout_us=4 * S,
    )


MAIL = ("notification_email {", "a@example.com b@example.com", "c@example.com", "}", "smtp_server mx.example.com 2525")


def test_mail(of):
    found, said = of(
        *MAIL,
        "notification_email_from lb@example.com",
        "smtp_helo_name lb1",
        "smtp_connect_timeout 7",
        "no_email_faults",
    )
    assert said == []
    assert found.mail == MailSettings(
        server="mx.example.com",
        port=2525,
        helo_name="lb1",
        connect_timeout_us=7 * S,
        sender="lb@example.com",
        recipients=("a@example.com", "b@example.com", "c@example.com"),
        faults=False,
    )


@pytest.mark.parametrize(
    ("lines", "instance"),
    [
        (("smtp_server 192.0.2.1",), ""),
        (("notification_email {", "}"), ""),
        (("notification_email {", "}", "smtp_server 192.0.2.1"), "smtp_alert"),
        (("smtp_alert",), ""),
        (("smtp_alert_vrrp true",), ""),
        ((), "smtp_alert"),
    ],
)
def test_mail_that_cannot_be_sent(of, lines, instance):
    found, said = of(*lines, instance=instance)
    assert (found.mail, said) == (None, [("warning", "no-mail")])


def test_a_mail_server_without_a_port_that_can_be_used(of):
    found, said = of(*MAIL[:-1], "smtp_server mx smtp")
    assert (found.mail.port, said) == (25, [("error", "bad-value")])


def test_a_mail_server_that_is_none(of):
    found, said = of(*MAIL[:-1], "smtp_server 192.0.2.25:25", instance="smtp_alert")
    assert (found.mail, said) == (None, [("error", "bad-value")])
    found, said = of(*MAIL[:-1], "smtp_server fd00::25")
    assert (found.mail.server, said) == ("fd00::25", [])


SERVER = (
    "virtual_server 10.0.0.1 80 {\nlb_algo rr\nlb_kind DR\nprotocol TCP\n%s\n"
    "real_server 10.0.0.2 80 {\nTCP_CHECK {\n}\n%s\n}\n}\n"
)


@pytest.mark.parametrize(
    ("lines", "own", "expected"),
    [
        ((), ("", "", ""), (False, False, False)),
        (MAIL, ("", "", ""), (False, False, True)),
        ((*MAIL, "smtp_alert"), ("", "", ""), (True, True, True)),
        ((*MAIL, "smtp_alert false"), ("", "", ""), (False, False, False)),
        ((*MAIL, "smtp_alert_vrrp", "smtp_alert_checker false"), ("", "", ""), (True, False, False)),
        ((*MAIL, "smtp_alert"), ("smtp_alert off",) * 3, (False, False, False)),
        (MAIL, ("smtp_alert",) * 3, (True, True, True)),
    ],
)
def test_who_mails(loading, lines, own, expected):
    text = "global_defs {\n" + "\n".join(lines) + "\n}\n" + INSTANCE % own[0] + SERVER % own[1:]
    config = loading(text).config
    (instance,), (server,) = config.instances, config.virtual_servers
    assert (instance.smtp_alert, server.smtp_alert, server.real_servers[0].smtp_alert) == expected
    assert loading(keepalived_conf(config)).config == config


def test_priority_changes(loading):
    text = "global_defs {\nvrrp_notify_priority_changes\n}\n" + INSTANCE % "notify_priority_changes no"
    config = loading(text).config
    assert (config.notification.priority_changes, config.instances[0].notify_priority_changes) == (True, False)
    assert loading(keepalived_conf(config)).config == config
