from __future__ import annotations

import pytest

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.source import Span
from keepalived_compat.values import Script


def in_instance(line):
    return f"vrrp_instance A {{\n  {line}\n}}\n"


def in_server(line):
    return f"virtual_server 10.0.0.1 80 {{\n  {line}\n}}\n"


def in_check(line, kind="TCP_CHECK"):
    return f"virtual_server 10.0.0.1 80 {{\n real_server 10.0.0.2 80 {{\n {kind} {{\n  {line}\n }}\n }}\n}}\n"


def complaint(reading, text):
    (found,) = reading(text).complaints.all
    return found


@pytest.mark.parametrize(
    ("text", "severity", "code", "place", "says"),
    [
        (in_instance("priorty 100"), "error", "unknown-keyword", (2, 3, 10), "did you mean `priority`?"),
        (in_instance("Priority 100"), "error", "unknown-keyword", (2, 3, 11), "did you mean `priority`?"),
        (in_instance("lb_algo rr"), "error", "misplaced-keyword", (2, 3, 10), "it belongs in virtual_server"),
        ("interface eth0\n", "error", "misplaced-keyword", (1, 1, 10), "garp_group, vrrp_instance"),
        (in_instance("priority 0"), "error", "bad-value", (2, 12, 13), "1 to 255"),
        (in_instance("priority 5s"), "error", "bad-value", (2, 12, 14), "1 to 255"),
        (in_instance("virtual_router_id 256"), "fatal", "bad-value", (2, 21, 24), "1 to 255"),
        (in_instance("interface"), "fatal", "missing-argument", (2, 3, 12), "it takes: text"),
        (in_instance("priority 5 6"), "warning", "surplus-words", (2, 14, 15), ""),
        (in_instance("virtual_router_id 51 priority 100"), "error", "glued-statement", (2, 24, 32), "line of its own"),
        (in_instance("nopreempt false"), "warning", "surplus-words", (2, 13, 18), "delete the line"),
        (in_instance("garp_master_delay 5s"), "warning", "inexact-value", (2, 21, 23), ""),
        ("SSL {\n}\n", "warning", "not-supported-yet", (1, 1, 4), ""),
        (in_instance("debug"), "note", "ignored", (2, 3, 8), ""),
        (in_instance("lvs_sync_daemon_interface eth0"), "warning", "obsolete", (2, 3, 28), "delete it"),
        (in_instance('notify_master "/x \'open"'), "error", "bad-value", (2, 17, 27), ""),
        (in_instance("notify_master /x master"), "warning", "script-user", (2, 20, 26), '"/x master"'),
        (in_instance("notify_master /x\n  notify_master /y"), "warning", "given-twice", (3, 3, 16), "keep one"),
        (in_instance("state MASTER\n  state BACKUP"), "warning", "given-twice", (3, 3, 8), "keep one"),
        (in_server("nat_mask 255.255.255.0"), "warning", "obsolete", (2, 3, 11), "delete it"),
        (in_server("inhibit_on_fail"), "warning", "old-spelling", (2, 3, 18), "write `inhibit_on_failure`"),
        (in_server("lb_algo wrrr"), "error", "bad-value", (2, 11, 15), "did you mean `wrr`?"),
        (in_server("delay_loop 0"), "error", "bad-value", (2, 14, 15), ""),
        (in_check("nb_get_retry 3"), "warning", "old-spelling", (4, 3, 15), "write `retry`"),
        (in_check("retry 3", "MISC_CHECK"), "error", "not-supported-yet", (3, 2, 12), ""),
        (in_check("connect_port 70000"), "error", "bad-value", (4, 16, 21), ""),
        ("bal_defs {\n}\n", "error", "unknown-keyword", (1, 1, 9), "did you mean `global_defs`?"),
        ("global_defs {\n router_id\n}\n", "error", "missing-argument", (2, 2, 11), ""),
        ("vrrp_instance {{ name }} {\n}\n", "fatal", "unfilled-template", (1, 15, 25), "render the template"),
    ],
)
def test_a_complaint(reading, text, severity, code, place, says):  # noqa: PLR0917 - a table
    found = [each for each in reading(text).complaints.all if each.code == code]
    assert [(each.severity.value, each.span[1:]) for each in found] == [(severity, place)]
    assert says in found[0].hint


@pytest.mark.parametrize(
    "text",
    [
        in_instance("priority 100"),
        in_instance("preempt\n nopreempt"),
        in_instance("virtual_ipaddress {\n 10.0.0.1\n }\n virtual_ipaddress {\n 10.0.0.2\n }"),
        in_server("protocol tcp"),
        in_server("lvs_sched rr\n lvs_method DR"),
        in_check("retry 0"),
        "global_defs {\n}\nglobal_defs {\n}\n",
        "! nothing\n",
        "",
    ],
)
def test_nothing_to_say(reading, text):
    assert reading(text).complaints.all == ()


def test_mistakes_are_found_in_blocks_that_are_not_supported(reading, found):
    read = reading("vrrp_instance A {\n auth_hmac {\n  active_kye 1\n  time_window x\n }\n}\n")
    assert found(read) == [
        ("fatal", "refused", 2, 2, 11),
        ("error", "unknown-keyword", 3, 3, 13),
        ("error", "bad-value", 4, 15, 16),
    ]


def test_lines_are_judged_in_blocks_that_are_not_supported(reading, found):
    read = reading("linkbeat_interfaces {\n  eth0 soon\n}\n")
    assert found(read) == [("note", "ignored", 1, 1, 20), ("error", "bad-value", 2, 8, 12)]


def test_what_cannot_be_done_says_what_to_write_instead(reading):
    read = reading("virtual_server 10.0.0.1 80 {\n persistence_engine sip\n}\n")
    (complaint,) = read.complaints.all
    assert (complaint.severity.value, complaint.code) == ("error", "not-supported")
    assert complaint.hint == "persistence_timeout keeps a client at its server by the client's address"


def test_a_zero_that_keepalived_refuses_is_a_note(reading, found):
    assert found(reading("global_defs {\n vrrp_garp_interval 0\n}\n")) == [("note", "zero-value", 2, 21, 22)]


def test_a_value_is_bad_once(reading):
    complaints = Complaints()
    complaints.error("bad-value", Span("f", 1, 1, 2), "one reason")
    complaints.error("bad-value", Span("f", 1, 1, 2), "another reason")
    complaints.error("other", Span("f", 1, 1, 2), "another matter")
    assert [each.message for each in complaints.all] == ["one reason", "another matter"]


def test_of_two_scripts_the_first_counts_and_of_two_states_the_last(reading):
    read = reading(in_instance("notify_master /x\n notify_master /y\n state MASTER\n state BACKUP"))
    section = read.root.entry("vrrp_instance").section
    assert section.value("notify_master").argv == ("/x",)
    assert section.value("state") == "BACKUP"


def test_a_command_in_single_quotes(reading):
    read = reading(in_instance("notify '/x/y.sh a b'"))
    assert read.root.entry("vrrp_instance").section.value("notify").argv == ("/x/y.sh", "a", "b")
    assert read.complaints.all == ()


def test_the_user_and_the_group_of_a_command(reading):
    read = reading(in_instance("notify \"/x/y.sh a\" web www\n  notify_stop '/z b' web"))
    section = read.root.entry("vrrp_instance").section
    assert section.value("notify") == Script(argv=("/x/y.sh", "a"), user="web", group="www")
    assert section.value("notify_stop") == Script(argv=("/z", "b"), user="web")
    assert read.complaints.all == ()


def test_words_after_a_tracked_script_are_not_its_user(reading, found):
    read = reading("vrrp_script s {\n script /x a\n}\n")
    assert found(read) == [("warning", "surplus-words", 2, 12, 13)]


def test_a_password_is_never_shown(reading):
    read = reading("vrrp_instance A {\n authentication {\n auth_pass hunter22 extra5\n }\n}\n")
    (found,) = read.complaints.all
    assert found.code == "surplus-words"
    assert "extra5" not in found.message
    assert read.sources.line("/etc/keepalived/keepalived.conf", 3) == " auth_pass ******** ******"


def test_thousands_of_unknown_words_are_fast_and_all_said(reading):
    read = reading("\n".join(f"wrod{number} x" for number in range(5000)))
    assert len(read.complaints.all) == 5000
