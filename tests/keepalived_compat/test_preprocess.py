from __future__ import annotations

import pytest

from keepalived_compat.preprocess import expand_braces

INSTANCE = "vrrp_instance A {\n  interface eth0\n}\n"


def names(section):
    return [each.words[1].text for each in section.all("vrrp_instance")]


def only_instance(read):
    return read.root.entry("vrrp_instance").section


class TestConditions:
    TEXT = "vrrp_instance A {\n@lb1 priority 150\n@lb2 priority 100\n@^lb1 nopreempt\n}\n"

    @pytest.mark.parametrize(("config_id", "priority", "nopreempt"), [("lb1", 150, False), ("lb2", 100, True)])
    def test_a_line_is_for_one_director(self, reading, config_id, priority, nopreempt):
        section = only_instance(reading(self.TEXT, config_id=config_id))
        assert section.value("priority") == priority
        assert section.has("nopreempt") == nopreempt

    def test_the_column_is_that_of_the_file(self, reading, found):
        read = reading("vrrp_instance A {\n@lb1   priority x\n}\n")
        assert found(read) == [("error", "bad-value", 2, 17, 18)]

    def test_a_condition_without_a_line_is_dropped(self, reading, found):
        assert found(reading("@lb1\n")) == [("error", "bad-condition", 1, 1, 5)]


class TestDefinitions:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("$IF=eth0\n", "eth0"),
            ("$IF= eth0\n", "eth0"),
            ("$A=th\n$IF=e${A}0\n", "eth0"),
            ("$IF=eth1\n$IF=eth0\n", "eth0"),
            ("$IF=${_INSTANCE}\n", "lb1"),
        ],
    )
    def test_a_name_is_replaced(self, reading, text, value):
        assert only_instance(reading(text + "vrrp_instance A {\n interface $IF\n}\n")).value("interface") == value

    def test_several_lines(self, reading):
        read = reading("$COMMON= interface eth0 \\\n  priority 77 \\\n nopreempt\nvrrp_instance A {\n  $COMMON\n}\n")
        section = only_instance(read)
        assert (section.value("interface"), section.value("priority"), section.has("nopreempt")) == ("eth0", 77, True)
        assert read.complaints.all == ()

    def test_a_complaint_about_one_of_several_lines_points_at_it(self, reading, found):
        read = reading("$COMMON= interface eth0 \\\n  priority 777\nvrrp_instance A {\n  $COMMON\n}\n")
        assert found(read) == [("error", "bad-value", 2, 12, 15)]

    def test_a_complaint_about_a_value_points_at_its_use(self, reading, found):
        read = reading("$P=777\nvrrp_instance A {\n  priority $P\n}\n")
        assert found(read) == [("error", "bad-value", 3, 12, 14)]

    def test_an_undefined_name_is_said_once_and_as_badly_as_its_consequence(self, reading, found):
        read = reading("vrrp_instance A {\n virtual_router_id ${VRID}\n}\n")
        assert found(read) == [("fatal", "undefined-name", 2, 20, 27)]

    def test_a_misspelt_name_gets_the_nearest(self, reading):
        (complaint,) = reading("$INTERFACE=eth0\nvrrp_instance A {\n interface $INTERFCE\n}\n").complaints.all
        assert complaint.hint == "did you mean `INTERFACE`?"

    def test_a_glued_name_stays(self, reading, found):
        read = reading("$NET=10.0.0.1\nvrrp_instance A {\n virtual_ipaddress {\n $NET/24\n }\n}\n")
        assert found(read) == [("warning", "glued-definition", 4, 2, 6)]

    def test_a_definition_of_itself_ends(self, reading, found):
        assert found(reading("$A=${A}${A}\n$A\n")) == [("error", "endless-definition", 2, 1, 3)]

    def test_a_hash_from_a_definition_begins_a_comment(self, reading):
        read = reading("vrrp_instance A {\n interface eth0${_HASH}x\n}\n")
        assert only_instance(read).value("interface") == "eth0"

    def test_sequences_are_refused_by_name(self, reading, found):
        assert found(reading("~LST(n, 1, 3) $n\n")) == [("error", "not-supported-yet", 1, 1, 17)]


class TestIncludes:
    def test_relative_glob_in_order(self, reading):
        read = reading(
            "include conf.d/*.conf\n",
            conf_dot_d__b_dot_conf=INSTANCE.replace("A", "B"),
            conf_dot_d__a_dot_conf=INSTANCE,
        )
        assert names(read.root) == ["A", "B"]
        assert read.complaints.all == ()

    def test_inside_a_block_and_from_a_directory_of_its_own(self, reading):
        read = reading(
            "vrrp_instance A {\n include sub/one.conf\n priority 9\n}\n",
            sub__one_dot_conf="include two.conf\n",
            sub__two_dot_conf="interface eth7\n",
        )
        section = only_instance(read)
        assert (section.value("interface"), section.value("priority")) == ("eth7", 9)

    def test_a_complaint_names_the_included_file(self, reading):
        read = reading("include x.conf\n", x_dot_conf="\nnonsens\n")
        (complaint,) = read.complaints.all
        assert complaint.span == ("/etc/keepalived/x.conf", 2, 1, 8)

    @pytest.mark.parametrize(
        ("line", "severity"),
        [
            ("include none.conf", "error"),
            ("include none-*.conf", "note"),
            ("includem none.conf", "fatal"),
            ("includew none-*.conf", "fatal"),
            ("includer closed.conf", "fatal"),
            ("include closed.conf", "error"),
            ("include run.sh", "error"),
            ('include "none.conf"', "error"),
        ],
    )
    def test_what_cannot_be_included(self, reading, found, line, severity):
        read = reading(line + "\n", closed_dot_conf=None, run_dot_sh="x")
        assert found(read) == [(severity, "include-problem", 1, 1, len(line) + 1)]

    def test_a_loop_is_said_and_ends(self, reading):
        read = reading("include a.conf\n", a_dot_conf="include b.conf\n", b_dot_conf=INSTANCE + "include a.conf\n")
        assert [each.code for each in read.complaints.all] == ["include-loop"]
        assert names(read.root) == ["A"]

    def test_twice_is_no_loop(self, reading):
        read = reading("include a.conf\ninclude a.conf\n", a_dot_conf="global_defs {\n}\n")
        assert read.complaints.all == ()

    def test_include_without_a_file(self, reading, found):
        assert found(reading("include\n")) == [("fatal", "missing-argument", 1, 1, 8)]

    def test_brace_alternatives(self):
        assert expand_braces("a{b,c}{d,e}") == ["abd", "abe", "acd", "ace"]
        assert expand_braces("plain") == ["plain"]
        with pytest.raises(ValueError, match="alternatives"):
            expand_braces("{a,b}" * 20)


class TestBytes:
    def test_line_ends_of_other_systems(self, reading):
        assert names(reading(INSTANCE.replace("\n", "\r\n")).root) == ["A"]

    def test_a_byte_order_mark_is_skipped(self, reading, found):
        read = reading(b"\xef\xbb\xbf" + INSTANCE.encode())
        assert names(read.root) == ["A"]
        assert found(read) == [("warning", "byte-order-mark", 1, 1, 1)]

    def test_latin_1_is_said_where_it_begins(self, reading, found):
        read = reading(b"# plain\n# \xfcber\n" + INSTANCE.encode())
        assert names(read.root) == ["A"]
        assert found(read) == [("warning", "not-utf-8", 2, 1, 1)]

    def test_a_nul_byte_is_fatal(self, reading, found):
        assert found(reading(b"global_defs {\n}\n\0\n")) == [("fatal", "not-text", 3, 1, 1)]

    def test_a_very_long_line_is_dropped(self, reading, found):
        assert found(reading("x" * 10_000_000)) == [("error", "long-line", 1, 1, 2)]

    def test_a_line_that_keepalived_cannot_read_is_read(self, reading, found):
        read = reading("global_defs {\n router_id " + "x" * 1500 + "\n}\n")
        assert found(read) == [("warning", "long-line", 2, 2, 3)]
        assert len(read.root.entry("global_defs").section.value("router_id")) == 1500
