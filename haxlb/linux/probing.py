"""Makes the probes: TCP_CHECK, HTTP_GET and SSL_GET, all on one thread.

Whatever a server does, a probe ends by its deadline with an outcome in words; nothing is raised.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from functools import cached_property

from haxlb.health.outcome import Finding, Outcome, failed, inconclusive, passed, seconds
from haxlb.health.timetable import StartProbe
from haxlb.linux.probing_http import Progress, fetch
from haxlb.linux.probing_source import ProbeSources
from haxlb.linux.probing_stream import OUR_LACK, BindRefused, Stream, Tls, connect, in_words, tls_context
from haxlb.linux.probing_turns import Results, TimeUp, Turn, Turns
from haxlb.model.addresses import IPAddress
from haxlb.model.check import Check, CheckKind, HttpUrl

_ROOT = (HttpUrl(path="/"),)
_CONNECTED = passed("connected")


class Prober:
    """ProbePort."""

    def __init__(self, on_results: Callable[[Results], None]) -> None:
        """`on_results` is called from the running loop with tickets and outcomes that have come at once."""
        self._turns = Turns(on_results)
        self._sources = ProbeSources()
        self._closed = False

    def avoid(self, vips: Iterable[IPAddress]) -> None:
        """Where a check names no source, probes come from none of these as long as there is another address."""
        self._sources.avoid(vips)

    def start(self, probe: StartProbe) -> None:
        """Begin this probe."""
        if not self._closed:
            self._turns.start(probe.ticket, lambda turn: self._probe(probe.check, turn))

    def abandon(self, ticket: int) -> None:
        """End the probe of this ticket without an outcome."""
        self._turns.abandon(ticket)

    def close(self) -> None:
        """End all probes and close their sockets; later ones are not made."""
        self._closed = True
        self._turns.close()
        self._sources.close()

    async def _probe(self, check: Check, turn: Turn) -> Outcome:
        """connect_timeout is the total deadline of the connect, or of each url from connect to last byte."""
        if check.kind is CheckKind.TCP:
            return await self._within_limit(check, None, turn)
        outcome = failed("no url")
        urls = check.urls or _ROOT
        for url in urls:
            outcome = await self._within_limit(check, url, turn)
            if outcome.finding is not Finding.PASSED:
                break
        if len(urls) > 1:
            return Outcome(finding=outcome.finding, reason=f"{outcome.reason} ({url.path})")
        return outcome

    async def _within_limit(self, check: Check, url: HttpUrl | None, turn: Turn) -> Outcome:
        progress = Progress()
        turn.limit(check.connect_timeout_us / 1_000_000)
        try:
            return await self._ask(check, url, progress)
        except TimeUp:
            return failed(f"no {progress.lacks} in {seconds(check.connect_timeout_us)}")
        except BindRefused as problem:
            return failed(str(problem))
        except OSError as problem:
            if problem.errno in OUR_LACK and not isinstance(problem, ssl.SSLError):
                return inconclusive(f"this host cannot probe: {in_words(problem)}")
            return failed(in_words(problem))

    async def _ask(self, check: Check, url: HttpUrl | None, progress: Progress) -> Outcome:
        connection = await connect(check, self._sources)
        stream: Stream = connection
        try:
            if url is None:
                return _CONNECTED
            if check.kind is CheckKind.SSL:
                progress.lacks = "TLS handshake"
                stream = tls = Tls(connection, self._tls_context, check.sni)
                await tls.handshake()
            return await fetch(stream, check, url, progress)
        finally:
            stream.close()

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        return tls_context()
