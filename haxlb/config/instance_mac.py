"""`use_vmac` and `use_ipvlan`: the interface of its own that an instance's addresses live on."""

from __future__ import annotations

import re
from ipaddress import ip_interface

from haxlb.model.instance import VirtualMac
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span, Word

_OCTETS = re.compile(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){4,5}", re.ASCII)
_LONGEST_INTERFACE = 15
_RFC_PREFIX = {4: "00:00:5e:00:01", 6: "00:00:5e:00:02"}
"""RFC 9568 section 7.3."""
_OPTIONS = ("name", "group")
"""With a value."""
_FLAG = "netlink_notify_msg"
_MODES = ("bridge", "private", "vepa")


def looks_like_option(text: str, *, ipvlan: bool) -> bool:
    """Whether a word after `use_vmac` or `use_ipvlan` is read as something else than a name."""
    if text in _OPTIONS or (text == _FLAG and not ipvlan):
        return True
    return text in _MODES or _is_address(text) if ipvlan else _OCTETS.fullmatch(text) is not None


class MacNames:
    """The names of all interfaces that are made, each for one instance."""

    def __init__(self, prefix: str, address_prefix: str = "") -> None:
        """Of instances, and of addresses alone; the first one, where the second is empty."""
        self._prefix = prefix
        self._address_prefix = address_prefix or prefix
        self._taken: dict[str, Span] = {}

    def first(self, name: str, where: Span) -> Span | None:
        """Take a name that is written; the place where it was taken before, None when it is free."""
        first = self._taken.setdefault(name, where)
        return None if first == where else first

    def default(self, family: int, vrid: int, where: Span) -> str:
        """keepalived's: vrrp.VRID, vrrp6.VRID; with a number where several instances have one VRID."""
        return self._free(self._prefix, family, vrid, where)

    def of_addresses(self, family: int, vrid: int, where: Span) -> str:
        """Likewise, for an interface that only addresses are on."""
        return self._free(self._address_prefix, family, vrid, where)

    def _free(self, prefix: str, family: int, vrid: int, where: Span) -> str:
        name, count = f"{prefix}{'6' if family == 6 else ''}.{vrid}", 0  # noqa: PLR2004 - the family
        while name in self._taken:
            count += 1
            # Of either family: keepalived 2.2.7 leaves the 6 out here.
            name = f"{prefix}{count}.{vrid}"
        self._taken[name] = where
        return name


def router_mac(family: int, vrid: int) -> str:
    """The virtual router's MAC (RFC 9568 section 7.3)."""
    return f"{_RFC_PREFIX[family]}:{vrid:02x}"


def read_virtual_mac(
    section: Section,
    *,
    instance: str,
    family: int,
    vrid: int,
    names: MacNames,
    unicast: bool,
    strict: bool,
    complaints: Complaints,
) -> VirtualMac | None:
    """The macvlan or ipvlan of an instance; None without."""
    mac, ipvlan = section.entry("use_vmac"), section.entry("use_ipvlan")
    entry = mac or ipvlan
    if entry is None:
        base = section.entry("vmac_xmit_base")
        if base is not None:
            complaints.warning(
                "useless-option", base.words[0], f"{instance}: vmac_xmit_base without use_vmac is ignored"
            )
        return None
    if mac is not None and ipvlan is not None:
        complaints.error(
            "given-twice",
            ipvlan.words[0],
            f"{instance} has use_vmac and use_ipvlan; use_ipvlan is not used",
            "keep one",
        )
    if unicast and not section.has("vmac_xmit_base"):
        complaints.warning(
            "inexact-value",
            entry.words[0],
            f"{instance}: {entry.keyword.name} with unicast_peer sends from the instance's interface, as if"
            " vmac_xmit_base stood here, as in keepalived",
            "add `vmac_xmit_base`",
        )
    return _Reader(entry, instance=instance, family=family, vrid=vrid, complaints=complaints, names=names).read(
        xmit_base=section.has("vmac_xmit_base") or unicast, strict=strict
    )


class _Reader:
    def __init__(
        self, entry: Entry, *, instance: str, family: int, vrid: int, complaints: Complaints, names: MacNames
    ) -> None:
        self._entry = entry
        self._instance = instance
        self._family = family
        self._vrid = vrid
        self._complaints = complaints
        self._names = names
        self._ipvlan = entry.keyword.name == "use_ipvlan"
        self._name: Word | None = None
        self._mac = ""
        self._group = 0
        self._mode = "bridge" if self._ipvlan else ""
        self._address = ""

    def read(self, *, xmit_base: bool, strict: bool) -> VirtualMac | None:
        self._words()
        if strict and self._mac:
            self._complaints.warning(
                "strict-conflict",
                self._entry.words[0],
                f"{self._instance}: under vrrp_strict the MAC is the one of RFC 9568 section 7.3",
                "delete the MAC",
            )
            self._mac = ""
        if self._ipvlan and self._family == 4 and not self._address:  # noqa: PLR2004 - the family
            self._complaints.error(
                "missing-argument",
                self._entry.words[0],
                f"use_ipvlan: an IPv4 instance needs an address of the ipvlan; {self._instance} has no ipvlan",
                "use_ipvlan ADDRESS/PREFIX",
            )
            return None
        return VirtualMac(
            interface=self._interface(),
            mac="" if self._ipvlan else self._mac or router_mac(self._family, self._vrid),
            xmit_base=xmit_base,
            group=self._group,
            ipvlan=self._mode,
            ipvlan_address=self._address,
        )

    def _words(self) -> None:
        words = iter(self._entry.words[1:])
        for word in words:
            if word.text in _OPTIONS:
                value = next(words, None)
                if value is None:
                    self._complaints.error(
                        "missing-argument", word, f"{self._entry.keyword.name}: `{word.text}` lacks its value"
                    )
                elif word.text == "name":
                    self._name = value
                else:
                    self._take_group(value)
            elif not looks_like_option(word.text, ipvlan=self._ipvlan):
                self._take_name(word)
            elif self._ipvlan:
                self._take_ipvlan(word)
            elif word.text != _FLAG:
                self._take_mac(word)

    def _take_ipvlan(self, word: Word) -> None:
        if word.text in _MODES:
            self._mode = word.text
        elif ip_interface(word.text).version == self._family:
            self._address = str(ip_interface(word.text))
        else:
            self._complaints.error(
                "mixed-family",
                word,
                f"use_ipvlan: {self._instance} speaks IPv{self._family}; the address {word.text} is not used",
            )

    def _take_group(self, word: Word) -> None:
        if word.text.isascii() and word.text.isdigit() and int(word.text[:11]) < 2**32:
            self._group = int(word.text)
        else:
            self._complaints.error("bad-value", word, f"{self._entry.keyword.name}: `{word.text}` is no group")

    def _take_name(self, word: Word) -> None:
        if self._name is not None:
            self._complaints.warning(
                "surplus-words", word, f"{self._entry.keyword.name}: `{word.text}` is not read: it has a name already"
            )
            return
        self._name = word

    def _take_mac(self, word: Word) -> None:
        octets = [int(each, 16) for each in word.text.split(":")]
        if len(octets) == 5:  # noqa: PLR2004 - the VRID is the sixth
            octets.append(self._vrid)
        mac = ":".join(f"{each:02x}" for each in octets)
        if octets[0] & 1 or mac.startswith(tuple(_RFC_PREFIX.values())):
            self._complaints.error(
                "bad-value",
                word,
                f"use_vmac: {word.text} is a group's MAC or one of RFC 9568; the default is used, as in keepalived",
                "02:… is yours to choose",
            )
            return
        self._mac = mac

    def _interface(self) -> str:
        word = self._name
        where = self._entry.words[0].span
        if word is None:
            return self._names.default(self._family, self._vrid, where)
        if len(word.text.encode()) > _LONGEST_INTERFACE:
            self._complaints.error(
                "bad-value",
                word,
                f"{self._entry.keyword.name}: `{word.text}` is longer than {_LONGEST_INTERFACE} characters;"
                " the default name is used",
            )
            return self._names.default(self._family, self._vrid, where)
        first = self._names.first(word.text, word.span)
        if first is not None:
            self._complaints.error(
                "duplicate-name",
                word,
                f"another instance has the interface {word.text}; {self._instance} gets the default name",
                f"the first stands at {first}; give each its own",
            )
            return self._names.default(self._family, self._vrid, where)
        return word.text


def _is_address(text: str) -> bool:
    try:
        ip_interface(text)
    except ValueError:
        return False
    return True
