from __future__ import annotations

import pytest

from keepalived_compat.grammar import choice, integer, milliseconds, seconds
from keepalived_compat.values import (
    Taken,
    Unusable,
    boolean,
    chosen,
    command,
    endpoint_address,
    microseconds,
    number,
    port,
)


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("010", 10), ("255", 255)])
def test_whole_numbers_are_decimal(text, value):
    assert number(text, integer(0, 255)) == Taken(value=value)


@pytest.mark.parametrize("text", ["", "x", "0x10", "256", "-1", "1e2", "٣", "9" * 5000, "+5"])
def test_not_a_number_in_range(text):
    with pytest.raises(Unusable):
        number(text, integer(0, 255))


def test_trailing_letters_are_dropped_where_keepalived_does():
    taken = number("5s", integer(0, 255))
    assert (taken.value, bool(taken.caveat)) == (5, True)
    with pytest.raises(Unusable):
        number("5s", integer(0, 255, strict=True))


@pytest.mark.parametrize(
    ("text", "value", "exact"),
    [
        ("1", 1_000_000, True),
        (".5", 500_000, True),
        ("1.", 1_000_000, True),
        ("0.000001", 1, True),
        ("1.0000005", 1_000_001, False),
        ("3s", 3_000_000, False),
    ],
)
def test_seconds_become_microseconds(text, value, exact):
    taken = microseconds(text, seconds(0.000001, 255))
    assert (taken.value, not taken.caveat) == (value, exact)


@pytest.mark.parametrize(("text", "value"), [("10", 10_000), ("1.5", 1_500), ("1000.0004", 1_000_000)])
def test_milliseconds_become_microseconds(text, value):
    assert microseconds(text, milliseconds(1)).value == value


@pytest.mark.parametrize("text", ["0", "256", ".", "", "s", "-1", "1" * 400])
def test_not_seconds_in_range(text):
    with pytest.raises(Unusable):
        microseconds(text, seconds(0.000001, 255))


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("on", True), ("yes", True), ("no", False), ("off", False)]
)
def test_booleans(text, value):
    assert boolean(text) == Taken(value=value)


def test_a_boolean_in_capitals_is_taken_and_said():
    taken = boolean("TRUE")
    assert (taken.value, bool(taken.caveat)) == (True, True)
    with pytest.raises(Unusable):
        boolean("1")


def test_a_word_in_another_case():
    assert chosen("tcp", choice("TCP", any_case=True)) == Taken(value="TCP")
    assert chosen("master", choice("MASTER")).caveat
    with pytest.raises(Unusable):
        chosen("pass", choice("PASS", exact_case=True))
    with pytest.raises(Unusable) as refused:
        chosen("MASTR", choice("MASTER", "BACKUP"))
    assert "`MASTER`" in refused.value.hint


def test_an_address_loses_its_prefix():
    taken = endpoint_address("10.0.0.1/24")
    assert (str(taken.value), bool(taken.caveat)) == ("10.0.0.1", True)
    with pytest.raises(Unusable):
        endpoint_address("www.example.org")


@pytest.mark.parametrize(("text", "value"), [("80", 80), ("0", None), ("65535", 65535)])
def test_ports(text, value):
    assert port(text) == value


@pytest.mark.parametrize("text", ["http", "65536", "-1", "80/tcp"])
def test_not_a_port(text):
    with pytest.raises(Unusable, match="not a port"):
        port(text)


def test_commands_are_split_without_a_shell():
    assert command("/x/y.sh a 'b c' $HOME") == ("/x/y.sh", "a", "b c", "$HOME")
    for bad in ("", "  ", "/x 'open"):
        with pytest.raises(Unusable):
            command(bad)


def test_a_redirection_is_for_the_shell():
    assert command("</dev/tcp/127.0.0.1/80") == ("/bin/sh", "-c", "</dev/tcp/127.0.0.1/80")
