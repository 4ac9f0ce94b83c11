"""Lines of `virtual_ipaddress`, `virtual_ipaddress_excluded`, `static_ipaddress` and `unicast_peer` as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_address

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.source import Word
from keepalived_compat.values_line import INET, INET6, Address, Dropped, LineReader, whole_number

SCOPES = {"global": 0, "universe": 0, "site": 200, "link": 253, "host": 254, "nowhere": 255}
"""rtnetlink(7)."""
FOREVER = 2**32 - 1
"""INFINITY_LIFE_TIME of the kernel's if_addr.h."""
_LONGEST_LABEL = 15
_WIDEST_WITH_BROADCAST = 30
_OPTIONS = ("dev", "scope", "brd", "broadcast", "label", "peer", "preferred_lft", "track_group")
_FLAGS = {
    "home": "home",
    "-nodad": "nodad",
    "nodad": "nodad",
    "mngtmpaddr": "mngtmpaddr",
    "noprefixroute": "noprefixroute",
    "autojoin": "autojoin",
    "no_track": "no_track",
    "use_vmac": "use_vmac",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressLine:
    """An address that an instance, or the host, is to have."""

    word: Word
    """The address as it stands in the file."""
    address: Address
    prefix_length: int
    """32 or 128 where none was written, as in keepalived: not the interface's."""
    device: str = ""
    """Empty: the instance's interface; of static addresses `default_interface`."""
    scope: int | None = None
    """Of rtnetlink; None = not named, which is global."""
    broadcast: Address | None = None
    label: str = ""
    peer: Address | None = None
    preferred_lifetime_s: int | None = None
    """None = not named: 0 for an IPv6 /128 (deprecated, never a source address), else FOREVER."""
    track_group: str = ""
    home: bool = False
    nodad: bool = False
    mngtmpaddr: bool = False
    noprefixroute: bool = False
    autojoin: bool = False
    no_track: bool = False
    use_vmac: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLine:
    """A unicast peer. Named TTL limits imply check_unicast_src."""

    word: Word
    address: Address
    min_ttl: int | None = None
    max_ttl: int | None = None


def read_addresses(lines: Iterable[list[Word]], complaints: Complaints, *, block: str) -> tuple[AddressLine, ...]:
    """The addresses of a block, in file order. What keepalived drops is dropped, with a complaint."""
    found = []
    for line in lines:
        try:
            found.append(_address(LineReader(line, complaints, block=block, loss="the address is not used")))
        except Dropped:
            continue
    return tuple(found)


def read_peers(lines: Iterable[list[Word]], complaints: Complaints) -> tuple[PeerLine, ...]:
    """The lines of `unicast_peer`."""
    found = []
    for line in lines:
        try:
            found.append(_peer(LineReader(line, complaints, block="unicast_peer", loss="the peer is not used")))
        except Dropped:
            continue
    return tuple(found)


def _address(line: LineReader) -> AddressLine:
    word = line.word()
    if word is None:
        raise Dropped
    text, slash, prefix_text = word.text.partition("/")
    try:
        address = ip_address(text)
    except ValueError:
        raise line.drop(word, f"`{text}` is not an IP address", "one ADDRESS[/PREFIX] a line") from None
    prefix = _prefix(line, word, address, prefix_text) if slash else address.max_prefixlen
    values: dict[str, object] = {}
    while (option := line.word()) is not None:
        _option(line, option, address, prefix, values)
    if "peer" in values and slash:
        line.complaints.warning("useless-option", word, f"{line.block}: the prefix of {text} is ignored with a peer")
    return AddressLine(word=word, address=address, prefix_length=prefix, **values)  # type: ignore[arg-type]


def _option(line: LineReader, option: Word, address: Address, prefix: int, values: dict[str, object]) -> None:
    match option.text:
        case "dev":
            values["device"] = line.interface(option)
        case "scope":
            values["scope"] = _scope(line, option, address)
        case "brd" | "broadcast":
            values["broadcast"] = _broadcast(line, option, address, prefix)
        case "label":
            values["label"] = _label(line, option, address)
        case "peer":
            values["peer"] = line.address(line.value(option), address.version)
        case "preferred_lft":
            if line.accept("forever", "infinity"):
                values["preferred_lifetime_s"] = FOREVER
            else:
                values["preferred_lifetime_s"] = line.number(option, 0, FOREVER)
        case "track_group":
            values["track_group"] = line.value(option).text
        case flag if flag in _FLAGS:
            values[_FLAGS[flag]] = True
        case _:
            _complain_of_option(line, option)


def _complain_of_option(line: LineReader, word: Word) -> None:
    """Keepalived ignores the word and keeps the address."""
    try:
        ip_address(word.text.partition("/")[0])
    except ValueError:
        kept = LineReader([], line.complaints, block=line.block, loss="it is ignored")
        kept.unknown(word, (*_OPTIONS, *_FLAGS))
        return
    line.complaints.error(
        "surplus-words",
        word,
        f"only the first address of a line counts; `{word.text}` is not used",
        "one address a line, and its netmask as a prefix length: 192.0.2.1/24",
    )


def _prefix(line: LineReader, word: Word, address: Address, text: str) -> int:
    if text.isascii() and text.isdigit() and int(text[:4]) <= address.max_prefixlen:
        return int(text[:4])
    longest = address.max_prefixlen
    hint = f"0 to {longest}, no netmask"
    line.complaints.error("bad-value", word, f"`/{text}` is not a prefix length; {longest} is taken", hint)
    return longest


def _scope(line: LineReader, option: Word, address: Address) -> int | None:
    word = line.value(option)
    if address.version == INET6:
        line.complaints.warning(
            "useless-option", option, f"{line.block}: an IPv6 address takes no scope; it is ignored"
        )
        return None
    if word.text in SCOPES:
        return SCOPES[word.text]
    number = whole_number(word.text)
    if number is not None and 0 <= number < 256:  # noqa: PLR2004 - rtm_scope is a byte
        return number
    raise line.drop(word, f"`{word.text}` is no scope", f"{', '.join(SCOPES)}, or 0 to 255")


def _label(line: LineReader, option: Word, address: Address) -> str:
    word = line.value(option)
    if address.version == INET6:
        line.complaints.warning(
            "useless-option", option, f"{line.block}: an IPv6 address takes no label; it is ignored"
        )
        return ""
    if len(word.text.encode()) > _LONGEST_LABEL:
        raise line.drop(word, f"the label `{word.text}` has more than {_LONGEST_LABEL} characters", "shorten it")
    return word.text


def _broadcast(line: LineReader, option: Word, address: Address, prefix: int) -> Address:
    word = line.value(option)
    if address.version != INET:
        raise line.drop(option, "an IPv6 address has no broadcast address", f"delete `{option.text} {word.text}`")
    if word.text in ("+", "-"):
        if prefix > _WIDEST_WITH_BROADCAST:
            raise line.drop(word, f"`{option.text} {word.text}` needs a prefix of at most 30", "add one: 192.0.2.1/24")
        network = IPv4Network((int(address), prefix), strict=False)
        return network.broadcast_address if word.text == "+" else network.network_address
    return line.address(word, INET)


def _peer(line: LineReader) -> PeerLine:
    word = line.word()
    if word is None:
        raise Dropped
    address = line.address(word)
    limits: dict[str, int] = {}
    while (option := line.word()) is not None:
        if option.text not in ("min_ttl", "max_ttl"):
            line.complaints.error(
                "surplus-words", option, f"`{option.text}` after a peer's address is not read", "one peer a line"
            )
            break
        limits[option.text] = line.number(option, 0, 255)
    if limits.get("min_ttl", 0) > limits.get("max_ttl", 255):
        raise line.drop(word, "min_ttl is above max_ttl: no advert would be taken")
    return PeerLine(word=word, address=address, min_ttl=limits.get("min_ttl"), max_ttl=limits.get("max_ttl"))
