"""What speakers of one virtual router say differently, although all of them must say the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from haxlb.model.units import SECOND_US
from haxlb.vrrp.advert import AUTH_HEADER, AUTH_PASS
from haxlb.vrrp.dissect import Dissection

_MOST_NAMED = 8
"""Speakers, or addresses, in one sentence."""


class About(Enum):
    """What a disagreement is about."""

    MASTERS = "two masters"
    VERSION = "version"
    INTERVAL = "interval"
    AUTHENTICATION = "authentication"
    ADDRESSES = "addresses"
    CHECKSUM = "checksum"
    CAST = "unicast and multicast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The last advert of one speaker that could be believed, and how it sends them."""

    who: str
    advert: Dissection
    casts: frozenset[bool]
    """True: to a group; False: to one host."""


def differences(all_said: Sequence[Said]) -> Iterator[tuple[About, str]]:
    """What is different, with a sentence that names who says what. Nothing for one speaker alone."""
    # Version 3 learns the master's interval; version 2 drops what differs (RFC 3768 section 7.1).
    second = [each for each in all_said if each.advert.version == 2]  # noqa: PLR2004
    third = [each for each in all_said if each.advert.version == 3]  # noqa: PLR2004
    yield from _differ(About.VERSION, all_said, lambda each: each.advert.version, lambda each: f"{each.advert.version}")
    yield from _differ(About.INTERVAL, second, lambda each: each.advert.interval_us, _interval)
    yield from _differ(About.AUTHENTICATION, second, lambda each: each.advert.auth_type, _authentication)
    passwords = [each for each in second if each.advert.auth_type == AUTH_PASS]
    if len({each.advert.auth_data for each in passwords}) > 1:
        # Which of them is the right one, and what it is, stays unsaid.
        yield About.AUTHENTICATION, f"the passwords of {_named([each.who for each in passwords])} differ"
    yield from _addresses(all_said)
    yield from _differ(About.CHECKSUM, third, lambda each: each.advert.form, lambda each: each.advert.form.value)
    yield from _casts(all_said)


def _differ(
    about: About, all_said: Sequence[Said], value: Callable[[Said], Hashable], words: Callable[[Said], str]
) -> Iterator[tuple[About, str]]:
    if len({value(each) for each in all_said}) > 1:
        yield about, f"{about.value}: {_named([f'{each.who} {words(each)}' for each in all_said])}"


def _interval(said: Said) -> str:
    return f"{said.advert.interval_us / SECOND_US:g} s"


def _authentication(said: Said) -> str:
    return authentication(said.advert)


def authentication(advert: Dissection) -> str:
    """none, PASS, AH, or the number of a type that does not exist."""
    known = {0: "none", AUTH_PASS: "PASS", AUTH_HEADER: "AH"}
    return known.get(advert.auth_type, f"type {advert.auth_type}")


def _addresses(all_said: Sequence[Said]) -> Iterator[tuple[About, str]]:
    """Their order does not matter."""
    lists = [frozenset(each.advert.addresses) for each in all_said]
    if len(set(lists)) < 2:  # noqa: PLR2004 - one list is no difference
        return
    common = frozenset.intersection(*lists)
    parts = []
    for said, addresses in zip(all_said, lists, strict=True):
        own = [str(each) for each in said.advert.addresses if each in addresses - common]
        parts.append(f"{said.who} {_named(own) if own else 'none'}")
    shared = f" besides the {len(common)} that all have" if common else ""
    yield About.ADDRESSES, f"addresses{shared}: {'; '.join(parts[:_MOST_NAMED])}{_more(len(parts))}"


def _casts(all_said: Sequence[Said]) -> Iterator[tuple[About, str]]:
    if len({cast for each in all_said for cast in each.casts}) > 1:
        named = [f"{each.who} {' and '.join(_cast(cast) for cast in sorted(each.casts))}" for each in all_said]
        yield About.CAST, f"unicast and multicast: {_named(named)}"


def _cast(multicast: bool) -> str:  # noqa: FBT001 - the two kinds
    return "multicast" if multicast else "unicast"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + _more(len(names))


def _more(number: int) -> str:
    return f" and {number - _MOST_NAMED} more" if number > _MOST_NAMED else ""
