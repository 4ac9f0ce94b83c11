from __future__ import annotations

import sys

import pytest

GOOD = """\
vrrp_instance A {
    interface eth0
    virtual_router_id 51
    authentication {
        auth_type PASS
        auth_pass secret
    }
    virtual_ipaddress {
        10.0.0.1/24
    }
}
virtual_server 10.0.0.1 80 {
    lb_algo rr
    real_server 10.0.0.2 80 {
        TCP_CHECK {
            connect_timeout 3
        }
    }
    real_server 10.0.0.3 80 {
        TCP_CHECK {
            connect_timeout 3
        }
    }
}
vrrp_instance B {
    interface eth1
}
"""


def shape(section):
    """The used statements as nested lists of keywords."""
    return [
        (each.keyword.name, shape(each.section))
        if each.section and each.section.block != "lines"
        else each.keyword.name
        for each in section.entries
    ]


def dropped(number: int, text: str = "}") -> str:
    """GOOD without its nth line, which must hold a brace."""
    lines = GOOD.splitlines(keepends=True)
    assert text in lines[number - 1]
    del lines[number - 1]
    return "".join(lines)


@pytest.fixture
def good(reading):
    read = reading(GOOD)
    assert read.complaints.all == ()
    return shape(read.root)


@pytest.mark.parametrize("text", ["\n{\n", "{", " \n\n  # c\n {  "])
def test_an_opening_brace_may_stand_anywhere(reading, good, text):
    read = reading(GOOD.replace(" {\n", text + "\n"))
    assert read.complaints.all == ()
    assert shape(read.root) == good


def test_everything_may_be_glued(reading, good):
    read = reading(GOOD.replace("\n    }\n", "}\n"))
    assert read.complaints.all == ()
    assert shape(read.root) == good


@pytest.mark.parametrize(
    ("line", "opened_at", "names"),
    [
        (7, 4, ["authentication"]),
        (10, 8, ["virtual_ipaddress"]),
        (11, 1, ["vrrp_instance A"]),
        (17, 15, ["TCP_CHECK"]),
        (18, 14, ["real_server 10.0.0.2 80"]),
        (22, 20, ["TCP_CHECK"]),
        (24, 12, ["virtual_server 10.0.0.1 80"]),
        (27, 25, ["vrrp_instance B"]),
    ],
)
def test_a_missing_closing_brace_is_said_once_where_its_block_began(reading, good, line, opened_at, names):
    read = reading(dropped(line))
    (complaint,) = read.complaints.all
    assert (complaint.severity.value, complaint.code, complaint.span.line) == ("fatal", "missing-brace", opened_at)
    assert all(each in complaint.message for each in names)
    assert shape(read.root) == good


@pytest.mark.parametrize("line", [1, 4, 8, 12, 15, 25])
def test_a_missing_opening_brace_is_said_where_it_is_missing(reading, good, line):
    lines = GOOD.splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace("{", "")
    read = reading("".join(lines))
    (complaint,) = read.complaints.all
    assert (complaint.code, complaint.span.line) == ("missing-brace", line)
    assert shape(read.root) == good


def test_without_indentation_the_next_keyword_tells(reading, good):
    flat = "".join(each.lstrip() for each in dropped(10).splitlines(keepends=True))
    read = reading(flat)
    (complaint,) = read.complaints.all
    assert complaint.code == "missing-brace"
    # Which of the two was forgotten cannot be told: the instance is the one that is open when the next block comes.
    assert complaint.span.line == 1
    assert shape(read.root) == good


def test_a_surplus_closing_brace(reading, found, good):
    read = reading(GOOD + "}\n" + "global_defs {\n}\n")
    assert found(read) == [("fatal", "surplus-brace", 28, 1, 2)]
    assert shape(read.root) == [*good, ("global_defs", [])]


def test_a_block_that_is_missing_its_end_and_one_that_has_two(reading, found):
    text = dropped(11) + "}\n"
    assert [each[:3] for each in found(reading(text))] == [("fatal", "missing-brace", 1)]


def test_several_missing_at_the_end(reading):
    read = reading("virtual_server 10.0.0.1 80 {\n real_server 10.0.0.2 80 {\n  TCP_CHECK {\n")
    (complaint,) = read.complaints.all
    assert complaint.span.line == 3
    assert (
        "`TCP_CHECK` (line 3), `real_server 10.0.0.2 80` (line 2), `virtual_server 10.0.0.1 80` (line 1)"
        in complaint.message
    )


def test_an_unknown_block_does_not_upset_what_follows(reading, found, good):
    text = GOOD.replace(
        "        TCP_CHECK {", "        FOO_CHECK {\n         a {\n }\n        }\n        TCP_CHECK {", 1
    )
    read = reading(text)
    assert found(read) == [("error", "unknown-keyword", 15, 9, 18)]
    assert shape(read.root) == good


def test_a_value_with_a_block(reading, found):
    read = reading(
        "virtual_server 10.0.0.1 80 {\n real_server 10.0.0.2 80 { weight 1 TCP_CHECK { retry 1 } }\n lb_algo rr\n}\n"
    )
    assert [each[:3] for each in found(read)] == [
        ("error", "unexpected-block", 2),
        ("error", "glued-statement", 2),
    ] or [each[:3] for each in found(read)] == [("error", "glued-statement", 2), ("error", "unexpected-block", 2)]
    assert shape(read.root) == [("virtual_server", [("real_server", ["weight"]), "lb_algo"])]


def test_a_brace_that_belongs_to_nothing(reading, found):
    assert found(reading("{\n}\n")) == [("fatal", "unexpected-brace", 1, 1, 2)]


def test_a_block_keyword_without_a_block(reading, found):
    read = reading("vrrp_instance A {\n interface eth0\n authentication\n priority 5\n}\n")
    assert found(read) == [("error", "missing-block", 3, 2, 16)]
    assert read.root.entry("vrrp_instance").section.value("priority") == 5


def test_depth_does_not_matter(reading):
    read = reading("\n".join(["x {"] * 20_000))
    assert {each.code for each in read.complaints.all} == {"missing-brace", "unknown-keyword"}


def steps(act) -> int:
    """Lines of Python that it runs: its time, whatever else the machine does."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        del frame, argument
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: "a {\n" * depth + "}\n" * depth,
        lambda depth: "a {\nb\n" * depth + "}\n" * depth,
        lambda depth: "a { " * depth + "} " * depth + "\n",
        lambda depth: "{\n" * depth + "}\n" * depth,
        lambda depth: "vrrp_instance A {\n" * depth + "}\n" * depth,
        lambda depth: "vrrp_instance A {\n" * depth,
        lambda depth: "vrrp_instance A {\n" + "a {\n" * depth + "}\n",
        lambda depth: "virtual_server 10.0.0.1 80\nreal_server 10.0.0.2 80\n" * depth + "}\n" * depth,
    ],
    ids=["unknown", "with statements", "on one line", "bare", "in themselves", "unclosed", "in a block", "unopened"],
)
def test_steps_grow_with_the_depth_of_nesting_not_with_its_square(reading, nested):
    few, many = (steps(lambda depth=depth: reading(nested(depth))) for depth in (100, 400))
    assert many < 4.5 * few
