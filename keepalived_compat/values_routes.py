"""Lines of `virtual_routes` and `static_routes` (the words of `ip route`) as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_network

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.source import Word
from keepalived_compat.values_line import FAMILIES, INET6, Address, Dropped, LineReader, Network

TYPES = ("unicast", "local", "broadcast", "multicast", "throw", "unreachable", "prohibit", "blackhole", "nat")
_NOWHERE = ("throw", "unreachable", "prohibit", "blackhole")
_U32 = 2**32 - 1
_NUMBERS = {
    "metric": (0, _U32),
    "priority": (0, _U32),
    "preference": (0, _U32),
    "expires": (0, _U32),
    "hoplimit": (0, 255),
    "advmss": (0, _U32),
    "reordering": (0, _U32),
    "window": (0, _U32),
    "cwnd": (0, _U32),
    "ssthresh": (0, _U32),
    "initcwnd": (0, _U32),
    "initrwnd": (0, _U32),
    "quickack": (0, 1),
    "fastopen_no_cookie": (0, 1),
}
_TEXTS = {
    "tos": "tos",
    "dsfield": "tos",
    "table": "table",
    "protocol": "protocol",
    "scope": "scope",
    "realms": "realms",
    "congctl": "congctl",
    "rtt": "rtt",
    "rttvar": "rttvar",
    "rto_min": "rto_min",
    "vrf": "vrf",
    "track_group": "track_group",
}
_CHOICES = {"pref": ("low", "medium", "high"), "ttl-propagate": ("enabled", "disabled"), "features": ("ecn",)}
_ENCAPS = ("mpls", "ip", "ip6", "ila")
OPTIONS = (
    *TYPES,
    *("to", "default", "via", "gw", "dev", "oif", "src", "from", "onlink", "encap", "mtu", "nexthop", "or", "no_track"),
    *FAMILIES,
    *_NUMBERS,
    *_TEXTS,
    *_CHOICES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """One way of a route with several."""

    via: Address | None = None
    device: str = ""
    weight: int = 1
    onlink: bool = False
    realms: str = ""
    encap: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLine:
    """A route that follows the master, or that the host is to have."""

    word: Word
    """The destination as it stands in the file."""
    destination: Network
    kind: str = "unicast"
    via: Address | None = None
    device: str = ""
    source: Address | None = None
    from_prefix: Network | None = None
    metric: int | None = None
    onlink: bool = False
    mtu_locked: bool = False
    encap: tuple[str, ...] = ()
    """The words after `encap`."""
    numbers: tuple[tuple[str, int], ...] = ()
    """Metrics of ip-route(8) by their name, as given."""
    texts: tuple[tuple[str, str], ...] = ()
    """tos, table, protocol, scope, realms, …: names of /etc/iproute2 are not looked up."""
    nexthops: tuple[NextHop, ...] = ()
    no_track: bool = False

    def text(self, name: str) -> str:
        """The value of an option, empty when it was not given."""
        return dict(self.texts).get(name, "")

    def number(self, name: str) -> int | None:
        """The value of a metric, None when it was not given."""
        return dict(self.numbers).get(name)


def read_routes(lines: Iterable[list[Word]], complaints: Complaints, *, block: str) -> tuple[RouteLine, ...]:
    """The routes of a block, in file order. A line with anything wrong is not used, as in keepalived."""
    found = []
    for line in lines:
        try:
            found.append(_Route(LineReader(line, complaints, block=block, loss="the route is not used")).read())
        except Dropped:
            continue
    return tuple(found)


class _Route:
    """Reads one line."""

    def __init__(self, line: LineReader) -> None:
        self._line = line
        self._family = 0
        self._kind = "unicast"
        self._destination: Word | None = None
        self._fields: dict[str, object] = {}
        self._numbers: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._hops: list[NextHop] = []

    def read(self) -> RouteLine:
        line = self._line
        if line.peek() in TYPES and (kind := line.word()) is not None:
            self._kind = kind.text
        last: Word | None = None
        while (word := line.word()) is not None:
            last = word
            self._word(word)
        if self._destination is None:
            raise (
                Dropped if last is None else line.drop(last, "the route has no destination", "DESTINATION via GATEWAY")
            )
        destination = self._network(self._destination)
        self._complain_of_lack(self._destination)
        return RouteLine(
            word=self._destination,
            destination=destination,
            kind=self._kind,
            numbers=tuple(self._numbers.items()),
            texts=tuple(self._texts.items()),
            nexthops=tuple(self._hops),
            **self._fields,  # type: ignore[arg-type]
        )

    def _network(self, word: Word) -> Network:
        if word.text in ("default", "default6"):
            return ip_network("::/0" if self._family == INET6 or word.text == "default6" else "0.0.0.0/0")
        return self._line.network(word, self._family)

    def _complain_of_lack(self, word: Word) -> None:
        tracked = not self._fields.get("no_track") and self._line.block == "virtual_routes"
        named = self._fields.get("device") or any(each.device for each in self._hops)
        if tracked and not named and self._kind not in _NOWHERE:
            self._line.complaints.warning(
                "untracked-route",
                word,
                f"{self._line.block}: the route to {word.text} names no interface: its loss is not noticed",
                "add `dev INTERFACE`, or `no_track`",
            )

    def _word(self, word: Word) -> None:  # noqa: C901, PLR0912 - a table of words
        line, fields = self._line, self._fields
        match word.text:
            case "to":
                self._to(line.value(word))
            case "inet" | "inet6":
                self._family = FAMILIES[word.text]
            case "via" | "gw":
                self._via(word)
            case "dev" | "oif":
                fields["device"] = line.interface(word)
            case "src":
                fields["source"] = line.address(line.value(word), self._family)
            case "from":
                fields["from_prefix"] = line.network(line.value(word), INET6)
            case "onlink":
                fields["onlink"] = True
            case "no_track":
                fields["no_track"] = True
            case "mtu":
                fields["mtu_locked"] = line.accept("lock") is not None
                self._numbers["mtu"] = line.number(word, 0, _U32)
            case "encap":
                fields["encap"] = _encap(line, word)
            case "nexthop":
                self._hops.append(self._hop(word))
            case "or":
                line.complaints.warning("old-spelling", word, "`or` is an old spelling", "write `nexthop via ADDRESS`")
                self._hops.append(NextHop(via=line.address(line.value(word), self._family)))
            case text if text in _NUMBERS:
                number = line.number(word, *_NUMBERS[text])
                if text in ("metric", "priority", "preference"):
                    fields["metric"] = number
                else:
                    self._numbers[text] = number
            case text if text in _CHOICES:
                self._texts[text] = _chosen(line, word)
            case text if text in _TEXTS:
                self._texts[_TEXTS[text]] = line.value(word).text
            case _:
                if self._destination is not None:
                    raise line.unknown(word, OPTIONS)
                self._to(word)

    def _to(self, word: Word) -> None:
        if word.text == "default6":
            self._line.complaints.warning(
                "old-spelling", word, "`default6` is an old spelling", "write `inet6 default`"
            )
            self._family = INET6
        elif word.text != "default":
            self._family = self._line.network(word, self._family).version
        self._destination = word

    def _via(self, word: Word) -> None:
        if word.text == "gw":
            self._line.complaints.warning(
                "old-spelling", word, "`gw` is an old spelling, taken as `via`", "write `via`"
            )
        family = self._line.accept(*FAMILIES)
        # A gateway may be of the other family when its family is named (RTA_VIA).
        address = self._line.address(self._line.value(word), FAMILIES[family.text] if family else self._family)
        self._fields["via"] = address
        if not family and not self._family:
            self._family = address.version

    def _hop(self, word: Word) -> NextHop:
        line = self._line
        hop: dict[str, object] = {}
        while (option := line.accept("via", "dev", "weight", "onlink", "realms", "encap")) is not None:
            match option.text:
                case "via":
                    family = line.accept(*FAMILIES)
                    wanted = FAMILIES[family.text] if family else self._family
                    hop["via"] = line.address(line.value(option), wanted)
                case "dev":
                    hop["device"] = line.interface(option)
                case "weight":
                    hop["weight"] = line.number(option, 1, 256)
                case "onlink":
                    hop["onlink"] = True
                case "realms":
                    hop["realms"] = line.value(option).text
                case _:
                    hop["encap"] = _encap(line, option)
        if not hop:
            raise line.drop(word, "`nexthop` says nothing", "nexthop via ADDRESS dev INTERFACE weight N")
        return NextHop(**hop)  # type: ignore[arg-type]


def _encap(line: LineReader, option: Word) -> tuple[str, ...]:
    """The words of an encapsulation: its type, then pairs of a name and a value; mpls and ila take one value."""
    kind = line.value(option)
    if kind.text not in _ENCAPS:
        raise line.drop(kind, f"`{kind.text}` is no encapsulation", ", ".join(_ENCAPS))
    if kind.text in ("mpls", "ila"):
        return kind.text, line.value(kind).text
    words = [kind.text]
    while (name := line.accept("id", "dst", "src", "tos", "ttl", "hoplimit", "tc", "flags")) is not None:
        words += [name.text, line.value(name).text]
    return tuple(words)


def _chosen(line: LineReader, option: Word) -> str:
    found = line.value(option)
    choices = _CHOICES[option.text]
    if found.text not in choices:
        raise line.drop(found, f"`{option.text} {found.text}` is not known", ", ".join(choices))
    return found.text
