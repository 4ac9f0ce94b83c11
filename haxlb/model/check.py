"""Health checks of the configuration, defaults applied."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from haxlb.model.addresses import IPAddress
from haxlb.model.hashed_once import HashedOnce
from haxlb.model.made_often import made_often
from haxlb.model.units import SECOND_US


class CheckKind(Enum):
    """Kinds of health check, by keepalived's block names."""

    TCP = "TCP_CHECK"
    HTTP = "HTTP_GET"
    SSL = "SSL_GET"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpUrl:
    """One `url` block: every criterion that is given must hold."""

    path: str
    digest: str | None = None
    """md5 of the body, 32 lower-case hex digits."""
    status_codes: tuple[tuple[int, int], ...] = ((200, 299),)
    """Accepted codes as inclusive ranges."""
    virtualhost: str | None = None
    regex: str | None = None
    regex_no_match: bool = False


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class Check(HashedOnce):
    """One checker of one real server, with its timing."""

    __hash__ = HashedOnce.__hash__

    kind: CheckKind
    address: IPAddress
    """connect_ip, or the real server."""
    port: int
    """connect_port, or the real server's."""
    bind_address: IPAddress | None = None
    bind_port: int = 0
    connect_timeout_us: int = 5 * SECOND_US
    """Total deadline of a TCP_CHECK, or of each url from connect to last byte (keepalived: of the connect and of each
    read; see docs/reference/health.md)."""
    delay_loop_us: int = 60 * SECOND_US
    """Pause from the end of a probe to the next one."""
    warmup_us: int | None = None
    """First probe comes within this; None = within one delay_loop, at most one second."""
    retry: int | None = None
    """None = haxlb's two-up/two-down; N = N further attempts, so N + 1 consecutive failures take the server down."""
    delay_before_retry_us: int = SECOND_US
    urls: tuple[HttpUrl, ...] = ()
    """HTTP_GET and SSL_GET; probed in order, all must pass."""
    http_protocol: str = "1.0"
    """1.0 or 1.1."""
    virtualhost: str | None = None
    """Host header where the url names none."""
    sni: str | None = None
    """Server name sent in the TLS handshake; None = none is sent."""

    @property
    def target(self) -> str:
        """`address:port`, of IPv6 `[address]:port`."""
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"  # noqa: PLR2004 - the family
