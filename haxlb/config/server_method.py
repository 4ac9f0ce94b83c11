"""`lb_kind` and `lvs_method`: how packets reach a real server."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.model.virtual_server import ForwardingMethod, RealServer, TunnelKind
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.section import Entry
from keepalived_compat.source import Word
from keepalived_compat.values import Unusable, port

_METHODS = {each.value: each for each in ForwardingMethod}
_TUNNELS = {each.value: each for each in TunnelKind}
_CHECKSUMS = ("nocsum", "csum", "remcsum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A forwarding method with the options of its tunnel."""

    kind: ForwardingMethod = ForwardingMethod.NAT
    tunnel: TunnelKind = TunnelKind.IPIP
    port: int = 0
    checksum: bool = False

    @property
    def keeps_ports(self) -> bool:
        """A packet leaves with the port that it came with."""
        return self.kind is not ForwardingMethod.NAT


def method_of(server: RealServer) -> Method:
    """The method of a real server."""
    return Method(kind=server.method, tunnel=server.tunnel, port=server.tunnel_port, checksum=server.tunnel_checksum)


def method_text(method: Method) -> str:
    """As it stands in a configuration."""
    words = [method.kind.value]
    if method.kind is ForwardingMethod.TUN and method.tunnel is not TunnelKind.IPIP:
        words += ["type", method.tunnel.value]
        words += ["port", str(method.port)] if method.tunnel is TunnelKind.GUE else []
        words += ["csum"] if method.checksum else []
    return " ".join(words)


_PLAIN = {each.value: Method(kind=each) for each in (ForwardingMethod.NAT, ForwardingMethod.DR)}
"""Those that have no options."""


class _Refused(Exception):
    """The line is not used; it has been said why."""


def read_method(entry: Entry, complaints: Complaints, *, loss: str) -> Method | None:
    """The method that a line names, None when it cannot be used; `loss` says what counts then."""
    _, name, *options = entry.texts
    if name in _PLAIN and not options:
        return _PLAIN[name]
    try:
        kind = _kind(entry, complaints, loss)
        if kind is ForwardingMethod.TUN:
            return _tunnel(entry, complaints, loss)
    except _Refused:
        return None
    for word in entry.words[2:3]:
        complaints.warning(
            "surplus-words", word, f"{kind.value} takes no further words: `{word.text}` is ignored", "TUN does"
        )
    return Method(kind=kind)


def _kind(entry: Entry, complaints: Complaints, loss: str) -> ForwardingMethod:
    word = entry.words[1]
    if word.text in _METHODS:
        return _METHODS[word.text]
    upper = word.text.upper()
    if upper in _METHODS:
        complaints.warning(
            "inexact-value",
            word,
            f"`{word.text}` is taken as {upper}; keepalived wants capitals, and takes NAT",
            f"write {upper}",
        )
        return _METHODS[upper]
    complaints.error(
        "bad-value",
        word,
        f"{entry.keyword.name}: `{word.text}` is no forwarding method; {loss}",
        did_you_mean(word.text, _METHODS) or "NAT, DR or TUN",
    )
    raise _Refused


def _tunnel(entry: Entry, complaints: Complaints, loss: str) -> Method:
    """`[type ipip|gue|gre] [port PORT] [nocsum|csum|remcsum]`, in any order."""
    name = entry.keyword.name
    tunnel, number, checksum = TunnelKind.IPIP, 0, ""
    last = entry.words[-1]
    words = iter(entry.words[2:])
    for word in words:
        if word.text == "type":
            tunnel = _type(next(words, None), word, name, complaints, loss)
        elif word.text == "port":
            number = _port(next(words, None), word, name, complaints, loss)
        elif word.text in _CHECKSUMS:
            checksum = word.text
        else:
            raise _refuse(complaints, word, f"{name}: unknown word `{word.text}`; {loss}", _options(word.text))
    if (tunnel is TunnelKind.GUE) is not bool(number):
        lack = "lacks its port" if tunnel is TunnelKind.GUE else "has no port"
        raise _refuse(complaints, last, f"{name}: a tunnel of type {tunnel.value} {lack}; {loss}", "type gue port PORT")
    if checksum in ("csum", "remcsum") and tunnel is TunnelKind.IPIP:
        raise _refuse(complaints, last, f"{name}: ipip has no checksum of its own; {loss}", f"delete `{checksum}`")
    if checksum == "remcsum":
        if tunnel is TunnelKind.GRE:
            raise _refuse(complaints, last, f"{name}: gre knows no remcsum, as in keepalived; {loss}", "write csum")
        complaints.warning(
            "not-supported",
            last,
            "remcsum is not supported: it spares network cards a checksum, which XDP does not hand to them; packets are"
            " sent as with nocsum, and a server that expects remcsum takes them",
            "write nocsum, or csum",
        )
    return Method(kind=ForwardingMethod.TUN, tunnel=tunnel, port=number, checksum=checksum == "csum")


def _type(given: Word | None, option: Word, name: str, complaints: Complaints, loss: str) -> TunnelKind:
    if given is None:
        raise _refuse(complaints, option, f"{name}: `type` lacks its value; {loss}", "ipip, gue or gre")
    if given.text not in _TUNNELS:
        hint = did_you_mean(given.text, _TUNNELS) or "ipip, gue or gre"
        raise _refuse(complaints, given, f"{name}: `{given.text}` is no type of tunnel; {loss}", hint)
    return _TUNNELS[given.text]


def _port(given: Word | None, option: Word, name: str, complaints: Complaints, loss: str) -> int:
    try:
        number = port(given.text) if given is not None else None
    except Unusable as problem:
        raise _refuse(complaints, given or option, f"{name}: {problem.message}; {loss}", problem.hint) from None
    if number is None:
        raise _refuse(complaints, given or option, f"{name}: `port` lacks its value; {loss}", "1 to 65535")
    return number


def _options(text: str) -> str:
    return did_you_mean(text, ("type", "port", *_CHECKSUMS)) or "[type ipip|gue|gre] [port PORT] [nocsum|csum]"


def _refuse(complaints: Complaints, where: Word, message: str, hint: str) -> _Refused:
    complaints.error("bad-value", where, message, hint)
    return _Refused()
