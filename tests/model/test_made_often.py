"""The faster `__init__` of values that are made often: in all else they are the dataclasses that they were."""

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from ipaddress import IPv4Address

import pytest

from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.check import Check, CheckKind
from haxlb.model.made_often import made_often
from haxlb.model.virtual_server import RealServer, VirtualServer

ADDRESS = IPv4Address("192.0.2.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    first: int
    second: str = "two"
    third: tuple[int, ...] = (3,)


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class Often:
    first: int
    second: str = "two"
    third: tuple[int, ...] = (3,)


@pytest.mark.parametrize("given", [{"first": 1}, {"first": 1, "second": ""}, {"third": (), "first": 0}])
def test_it_has_the_fields_that_the_dataclass_gives_it(given):
    often, plain = Often(**given), Plain(**given)
    assert repr(often) == repr(plain).replace("Plain", "Often")
    assert often == Often(**given)
    assert hash(often) == hash(plain)


@pytest.mark.parametrize("given", [{}, {"second": "a"}, {"first": 1, "fourth": 4}])
def test_what_is_missing_or_unknown_is_refused(given):
    with pytest.raises(TypeError, match=r"Often\.__init__|first|fourth"):
        Often(**given)


def test_it_takes_keywords_alone():
    with pytest.raises(TypeError, match="positional"):
        Often(1)


def test_it_stays_frozen():
    often = Often(first=1)
    with pytest.raises(FrozenInstanceError):
        often.first = 2
    assert replace(often, first=2) == Often(first=2)


def test_a_default_that_is_made_anew_each_time_is_refused():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Factory:
        each: list[int] = field(default_factory=list)

    with pytest.raises(TypeError, match=r"Factory\.each"):
        made_often(Factory)


def test_positional_fields_are_refused():
    @dataclass(frozen=True, slots=True)
    class Positional:
        each: int

    with pytest.raises(TypeError, match=r"Positional\.each"):
        made_often(Positional)


@pytest.mark.parametrize(
    "value",
    [
        Check(kind=CheckKind.TCP, address=ADDRESS, port=80),
        RealServer(address=ADDRESS, port=80),
        Endpoint(address=ADDRESS, port=80, protocol=Protocol.TCP),
        VirtualServer(endpoint=Endpoint(address=ADDRESS, port=80, protocol=Protocol.TCP)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_values_of_the_model_have_their_defaults(value):
    given = {each.name: getattr(value, each.name) for each in fields(value)}
    assert type(value)(**given) == value
    assert all(given[each.name] == each.default for each in fields(value) if each.name not in ("endpoint", *_GIVEN))


_GIVEN = ("kind", "address", "port", "protocol")
