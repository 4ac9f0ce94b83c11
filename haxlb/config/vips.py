"""Lines of `virtual_ipaddress` to values: `ADDR[/PREFIX] [dev IF] [scope S] [brd ADDR|+|-] [label L] …`."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

from haxlb.model.addresses import Vip
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.source import Word

_SCOPES = {"global": 0, "universe": 0, "site": 200, "link": 253, "host": 254, "nowhere": 255}
"""rtnetlink(7)."""
_LONGEST_LABEL = 15
"""IFNAMSIZ without its NUL."""
_LONGEST_PREFIX = 32
_WIDEST_WITH_BROADCAST = 30
_WITH_VALUE = ("dev", "scope", "brd", "broadcast", "label", "peer", "preferred_lft", "track_group")
_FLAGS_IPV6 = ("home", "-nodad", "nodad", "mngtmpaddr", "autojoin")
_FLAGS_IGNORED = ("noprefixroute", "no_track", "use_vmac")


def read_vips(lines: Iterable[list[Word]], *, interface: str, complaints: Complaints) -> list[tuple[Vip, Word]]:
    """The virtual addresses of a block, each with the word that names it."""
    found = []
    for line in lines:
        vip = _vip(line, interface, complaints)
        if vip is not None:
            found.append((vip, line[0]))
    return found


def _vip(line: list[Word], interface: str, complaints: Complaints) -> Vip | None:
    first = line[0]
    text, slash, prefix_text = first.text.partition("/")
    try:
        address = ip_address(text)
    except ValueError:
        complaints.error(
            "bad-value", first, f"`{text}` is not an IP address; the line is not used", "one ADDRESS[/PREFIX] a line"
        )
        return None
    if isinstance(address, IPv6Address):
        complaints.error("not-supported-yet", first, f"IPv6 is not supported yet: {address} does not follow the master")
        return None
    prefix = _LONGEST_PREFIX
    if slash:
        if prefix_text.isascii() and prefix_text.isdigit() and int(prefix_text[:4]) <= _LONGEST_PREFIX:
            prefix = int(prefix_text[:4])
        else:
            complaints.error(
                "bad-value", first, f"`/{prefix_text}` is not a prefix length; 32 is taken", "0 to 32, no netmask"
            )
    options = _options(line, complaints)
    if options is None:
        return None
    return Vip(
        address=address,
        prefix_length=prefix,
        interface=options["dev"].text if "dev" in options else interface,
        label=_label(options.get("label"), complaints),
        scope=_scope(options.get("scope"), complaints),
        broadcast=_broadcast(options.get("brd"), address, prefix, complaints),
    )


def _options(line: list[Word], complaints: Complaints) -> dict[str, Word] | None:
    """The words after the address by option; None when one lacks its value, which makes keepalived drop the address."""
    options: dict[str, Word] = {}
    words = iter(line[1:])
    for word in words:
        if word.text in _WITH_VALUE:
            value = next(words, None)
            if value is None:
                complaints.error("missing-argument", word, f"`{word.text}` lacks its value; the address is not used")
                return None
            options["brd" if word.text == "broadcast" else word.text] = value
            if word.text in ("peer", "preferred_lft", "track_group"):
                complaints.warning("not-supported-yet", word, f"`{word.text}` is not supported yet and is ignored")
        elif word.text in _FLAGS_IPV6 or word.text in _FLAGS_IGNORED:
            complaints.note("ignored", word, f"`{word.text}` is ignored")
        else:
            _complain_of_option(word, complaints)
    return options


def _complain_of_option(word: Word, complaints: Complaints) -> None:
    try:
        ip_address(word.text.partition("/")[0])
    except ValueError:
        hint = did_you_mean(word.text, (*_WITH_VALUE, *_FLAGS_IPV6, *_FLAGS_IGNORED))
        complaints.error("unknown-keyword", word, f"unknown word `{word.text}` after an address; it is ignored", hint)
    else:
        complaints.error(
            "surplus-words",
            word,
            f"only the first address of a line counts; `{word.text}` is not used",
            "one address a line, and its netmask as a prefix length: 192.0.2.1/24",
        )


def _label(word: Word | None, complaints: Complaints) -> str | None:
    if word is None:
        return None
    if len(word.text.encode()) > _LONGEST_LABEL:
        complaints.error("bad-value", word, f"the label is longer than {_LONGEST_LABEL} characters and is not used")
        return None
    return word.text


def _scope(word: Word | None, complaints: Complaints) -> int:
    if word is None:
        return 0
    if word.text in _SCOPES:
        return _SCOPES[word.text]
    if word.text.isascii() and word.text.isdigit() and int(word.text[:4]) < 256:  # noqa: PLR2004 - rtm_scope is a byte
        return int(word.text[:4])
    complaints.error(
        "bad-value", word, f"`{word.text}` is no scope; global is taken", f"{', '.join(_SCOPES)}, or 0 to 255"
    )
    return 0


def _broadcast(word: Word | None, address: IPv4Address, prefix: int, complaints: Complaints) -> IPv4Address | None:
    if word is None:
        return None
    if word.text in "+-":
        if prefix > _WIDEST_WITH_BROADCAST:
            complaints.error(
                "bad-value", word, f"`brd {word.text}` needs a prefix of at most 30; no broadcast address is set"
            )
            return None
        network = IPv4Network((address, prefix), strict=False)
        return network.broadcast_address if word.text == "+" else network.network_address
    try:
        return IPv4Address(word.text)
    except ValueError:
        complaints.error("bad-value", word, f"`{word.text}` is not an IPv4 address; no broadcast address is set")
        return None
