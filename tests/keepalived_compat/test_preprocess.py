from __future__ import annotations

import pytest

from keepalived_compat.preprocess import expand_braces
from keepalived_compat.reading import read

INSTANCE = "vrrp_instance A {\n  interface eth0\n}\n"


def names(section):
    return [each.words[1].text for each in section.all("vrrp_instance")]


def routers(read):
    return [each.section.value("router_id") for each in read.root.all("global_defs")]


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


def test_a_line_of_odd_blanks_and_a_comment_is_empty(reading, found):
    assert "unknown-keyword" not in [each[1] for each in found(reading("\N{NO-BREAK SPACE}\N{NO-BREAK SPACE} # a\n"))]


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

    def test_an_undefined_name_within_a_bad_value_is_said_once(self, reading, found):
        read = reading("vrrp_instance A {\n priority 1${P}\n virtual_router_id ${P}${Q}5\n interface ${I}\n}\n")
        said = found(read)
        assert [each[1] for each in said] == ["undefined-name"] * 4
        assert [(each[0], each[2]) for each in said] == [("error", 2), ("fatal", 3), ("error", 3), ("error", 4)]

    def test_another_mistake_beside_an_undefined_name_is_said(self, reading, found):
        read = reading("vrrp_instance A {\n advert_int ${A} 7x\n priority 777; ${A}\n}\n")
        assert ("error", "undefined-name", 2, 13, 17) in found(read)
        assert ("error", "bad-value", 3, 11, 15) in found(read)

    def test_a_misspelt_name_gets_the_nearest(self, reading):
        (complaint,) = reading("$INTERFACE=eth0\nvrrp_instance A {\n interface $INTERFCE\n}\n").complaints.all
        assert complaint.hint == "did you mean `INTERFACE`?"

    def test_a_glued_name_stays(self, reading, found):
        read = reading("$NET=10.0.0.1\nvrrp_instance A {\n virtual_ipaddress {\n $NET/24\n }\n}\n")
        assert found(read) == [("warning", "glued-definition", 4, 2, 6)]

    def test_a_definition_of_itself_ends(self, reading, found):
        assert found(reading("$A=${A}${A}\n$A\n")) == [("error", "endless-definition", 2, 1, 3)]

    def test_a_definition_of_itself_is_found_out_once(self, reading, found):
        said = found(reading("$A=${A}${A}\n$A\nx $A\n"))
        assert said[:2] == [("error", "endless-definition", 2, 1, 3), ("error", "unknown-keyword", 3, 1, 2)]
        assert said[2:] == [("error", "endless-definition", 3, 3, 5)]

    def test_a_hash_from_a_definition_begins_a_comment(self, reading):
        read = reading("vrrp_instance A {\n interface eth0${_HASH}x\n}\n")
        assert only_instance(read).value("interface") == "eth0"

    def test_what_is_built_in(self, reading):
        text = "global_defs {\n router_id ${_PWD}_${_INSTANCE}_$_INSTANCE\n}\n"
        assert routers(reading(text)) == ["/etc/keepalived_lb1_lb1"]

    def test_the_environment(self, tmp_path, monkeypatch):
        monkeypatch.setenv("WHO", "me")
        (tmp_path / "k.conf").write_text("global_defs {\n router_id ${_ENV WHO}\n}\n")
        assert routers(read(tmp_path / "k.conf", config_id="x")) == ["me"]
        inside = read(tmp_path / "k.conf", config_id="x", environment={"WHO": "other"})
        assert routers(inside) == ["other"]

    @pytest.mark.parametrize("name", ["${_ENV NO_SUCH}", "${_ENV}", "${_RANDOM 9 1}", "${_RANDOM x}", "${_PWD x}"])
    def test_a_built_in_name_without_a_value(self, reading, found, name):
        read = reading(f"global_defs {{\n router_id {name}\n}}\n")
        assert found(read) == [("error", "undefined-name", 2, 12, 12 + len(name))]

    def test_chance_is_the_same_for_the_same_director_and_another_for_another(self, reading):
        text = "global_defs {\n router_id ${_RANDOM}_${_RANDOM 7}_${_RANDOM 5 6}\n}\n"
        drawn = [routers(reading(text, config_id=each))[0] for each in ("lb1", "lb1", "lb2")]
        assert drawn[0] == drawn[1] != drawn[2]
        whole, above, between = (int(each) for each in drawn[0].split("_"))
        assert 0 <= whole <= 32767
        assert 7 <= above <= 32767
        assert 5 <= between <= 6


class TestSequences:
    """What keepalived 2.2.7 makes of each."""

    @pytest.mark.parametrize(
        ("text", "made"),
        [
            ("~SEQ(i,3) x$i", "x1 x2 x3"),
            ("~SEQ(i,-3) x$i", "x-1 x-2 x-3"),
            ("~SEQ(i,0) x$i", "x1 x0"),
            ("~SEQ(i,3,1) x$i", "x3 x2 x1"),
            ("~SEQ(i,1,2,6) x$i", "x1 x3 x5"),
            ("~SEQ(i,6,-2,1) x$i", "x6 x4 x2"),
            ("~SEQ(i,5,5) x$i", "x5"),
            ("~SEQ(i,-1,1) x$i", "x-1 x0 x1"),
            ("~SEQ(i,+2) x$i", "x1 x2"),
            ("~SEQx(i,9,17) x${i}", "x9 xa xb xc xd xe xf x10 x11"),
            ("~SEQ(i,0x10,0x12) x$i", "x16 x17 x18"),
            ("~SEQ(i,010) x$i", "x1 x2 x3 x4 x5 x6 x7 x8"),
            ("~SEQ ( i , 2 )x$i", "x1 x2"),
            ("~SEQ(i,1,2) ~SEQ(j,1,2) x${i}_$j", "x1_1 x1_2 x2_1 x2_2"),
            ("$A=a${i} \\\nb${i}\n~SEQ(i,1,2) $A", "a1 b1 a2 b2"),
            ("$A=~SEQ(j,1,2) b${i}_${j}\n~SEQ(i,1,2) $A", "b1_1 b1_2 b2_1 b2_2"),
            ("$A=x1 \\\n~SEQ(j,1,2) y$j \\\nz$j\n$A", "x1 y1 y2 z2"),
            ("$i=7\n~SEQ(i,1,2) x$i\ny$i", "x1 x2 y2"),
            ("$N=2\n~SEQ(i,$N) x$i", "x1 x2"),
            ("~SEQ(i,2) @lb1 x$i", "x1 x2"),
            ("~SEQ(i,2) @^lb1 x$i", ""),
            ("@lb1 ~SEQ(i,2) x$i", "x1 x2"),
            ("~LST(i,a,b,c) x$i", "xa xb xc"),
            ("~LST(a, 1 , 3 ) x${a}_", "x1_ x3_"),
            ("~LST(a,1,,3) x${a}_", "x1_ x_ x3_"),
            ("~LST({a,b},{1,2},{3}) x${a}_${b}_", "x1_2_ x3__"),
            ("~LST({a,b}, { 1 , 2 } , 3) x${a}_${b}", "x1_2 x3_"),
        ],
    )
    def test_what_is_made(self, reading, text, made):
        read = reading(text + "\n")
        said = [each.message.split("`")[1] for each in read.complaints.all if each.code == "unknown-keyword"]
        assert said == made.split()
        assert {each.code for each in read.complaints.all} <= {"unknown-keyword"}

    @pytest.mark.parametrize(
        ("text", "severity"),
        [
            ("~SEQ(i) x", "error"),
            ("~SEQ(i,1,2,3,4) x", "error"),
            ("~SEQ(i,a) x", "error"),
            ("~SEQ(i,1,0,3) x", "error"),
            ("~SEQ(i,1,-1,5) x", "error"),
            ("~SEQ(i,2", "error"),
            ("~SEQ(1,2) x", "error"),
            ("~SEQx(i,-1,2) x", "error"),
            ("~SEQ(i,1,4000000000) x", "error"),
            ("~LST(a) x", "error"),
            ("~LST(a,{1,2}) x", "error"),
            ("~LST(a, 1 2) x", "error"),
            ("~SEQ(i,2)", "warning"),
            ("$A=~SEQ(i,2) $A\n$A", "error"),
        ],
    )
    def test_what_makes_nothing(self, reading, found, text, severity):
        read = reading(text + "\n")
        assert {each[:2] for each in found(read)} == {(severity, "bad-sequence")}

    def test_all_of_them_together_are_bounded(self, reading, found):
        read = reading("~SEQ(i,1,150000) @x y\n~SEQ(i,1,150000) @x y\n")
        assert found(read) == [("error", "bad-sequence", 2, 1, 17)]

    def test_blocks_are_made(self, reading):
        text = "$I=vrrp_instance VI_$i { \\\n interface eth$i \\\n virtual_router_id 1$i \\\n }\n~SEQ(i,2,4) $I\n"
        read = reading(text)
        assert read.complaints.all == ()
        found = [each.section.value("virtual_router_id") for each in read.root.all("vrrp_instance")]
        assert found == [12, 13, 14]


class TestOrigins:
    """A complaint about an expanded line shows where it stands and where it came from."""

    def of(self, read):
        (complaint,) = read.complaints.all
        return [(each.span.line, each.span.column, each.span.end_column, each.message) for each in complaint.related]

    def test_a_value_names_its_definition(self, reading):
        read = reading("$P=777\nvrrp_instance A {\n  priority $P\n}\n")
        assert self.of(read) == [(1, 4, 7, "`$P` gets its value here")]

    def test_a_line_of_a_definition_names_its_use(self, reading):
        read = reading("$C= interface eth0 \\\n  priority 777\nvrrp_instance A {\n  $C\n}\n")
        assert self.of(read) == [(4, 3, 5, "this line is put in here, by `$C`")]

    def test_a_value_of_a_sequence_names_it(self, reading):
        read = reading("~LST(p, 5) nonsense_$p\n")
        assert self.of(read) == [(1, 1, 11, "`$p` gets its value here")]

    def test_a_plain_line_has_none(self, reading):
        assert self.of(reading("vrrp_instance A {\n  priority 777\n}\n")) == []


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
            ("includer none.conf", "error"),
            ("includer none-*.conf", "note"),
            ("includem none-*.conf", "note"),
            ("includew none.conf", "fatal"),
            ("includeb none.conf", "error"),
            ("includeb none-*.conf", "note"),
            ("includea none.conf", "fatal"),
            ("includea none-*.conf", "fatal"),
            ("includem {main,none}.conf", "error"),
            ("includeb {main,none}.conf", "fatal"),
            ("includea {main,none}.conf", "fatal"),
            ("includea run.sh", "fatal"),
        ],
    )
    def test_what_cannot_be_included(self, reading, found, line, severity):
        read = reading(line + "\n", closed_dot_conf=None, run_dot_sh="x", main_dot_conf="")
        assert found(read) == [(severity, "include-problem", 1, 1, len(line) + 1)]

    def test_a_loop_is_said_and_ends(self, reading):
        read = reading("include a.conf\n", a_dot_conf="include b.conf\n", b_dot_conf=INSTANCE + "include a.conf\n")
        assert [each.code for each in read.complaints.all] == ["include-loop"]
        assert names(read.root) == ["A"]

    def test_a_chain_of_includes_has_an_end(self, reading):
        chain = {f"f{n}_dot_conf": f"include f{n + 1}.conf\n" for n in range(400)}
        (complaint,) = reading("include f0.conf\n", **chain).complaints.all
        assert (complaint.code, complaint.span.file.rpartition("/")[2]) == ("include-problem", "f98.conf")
        assert "nested 100 deep" in complaint.message

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

    @pytest.mark.parametrize("line", ["\u00a0\u00a0", "\u3000global_defs {\n}"])
    def test_a_blank_that_is_none_is_said_at_the_beginning_too(self, reading, found, line):
        assert [each[:3] for each in found(reading(line + "\n"))] == [("warning", "odd-blank", 1)]

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
