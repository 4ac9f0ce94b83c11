"""Makes the probes: TCP_CHECK, HTTP_GET and SSL_GET on the running loop, one task each, no thread.

Whatever a server does, a probe ends by its deadline with an outcome in words; nothing is raised.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import cached_property

from haxlb.health.outcome import Finding, Outcome, failed, inconclusive, passed, seconds
from haxlb.health.timetable import StartProbe
from haxlb.linux.probing_http import Progress, fetch
from haxlb.linux.probing_stream import OUR_LACK, BindRefused, Stream, Tls, connect, in_words, tls_context
from haxlb.model.node import Check, CheckKind, HttpUrl

_ROOT = (HttpUrl(path="/"),)


class Prober:
    """ProbePort: calls `on_result(ticket, outcome)` from the running loop."""

    def __init__(self, on_result: Callable[[int, Outcome], None]) -> None:
        self._on_result = on_result
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._closed = False

    def start(self, probe: StartProbe) -> None:
        """Begin this probe."""
        if not self._closed:
            self._tasks[probe.ticket] = asyncio.get_running_loop().create_task(self._run(probe))

    def abandon(self, ticket: int) -> None:
        """End the probe of this ticket without an outcome."""
        task = self._tasks.pop(ticket, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End all probes and wait until their sockets are closed; later ones are not made."""
        self._closed = True
        tasks = list(self._tasks.values())
        for ticket in list(self._tasks):
            self.abandon(ticket)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def probe(self, check: Check) -> Outcome:
        """One probe; connect_timeout is the total deadline of the connect, or of each url from connect to last byte."""
        if check.kind is CheckKind.TCP:
            return await self._within_limit(check, None)
        outcome = failed("no url")
        urls = check.urls or _ROOT
        for url in urls:
            outcome = await self._within_limit(check, url)
            if outcome.finding is not Finding.PASSED:
                break
        if len(urls) > 1:
            return Outcome(finding=outcome.finding, reason=f"{outcome.reason} ({url.path})")
        return outcome

    async def _run(self, probe: StartProbe) -> None:
        try:
            outcome = await self.probe(probe.check)
        except Exception as problem:  # noqa: BLE001 - one odd server must not end the checks of all others
            outcome = failed(f"the probe itself broke: {type(problem).__name__}: {problem}")
        self._tasks.pop(probe.ticket, None)
        # Not from within this task: what goes wrong there belongs to the loop's exception handler.
        asyncio.get_running_loop().call_soon(self._on_result, probe.ticket, outcome)

    async def _within_limit(self, check: Check, url: HttpUrl | None) -> Outcome:
        progress = Progress()
        try:
            async with asyncio.timeout(check.connect_timeout_us / 1_000_000):
                return await self._ask(check, url, progress)
        except TimeoutError as problem:
            if problem.errno:  # the kernel's ETIMEDOUT, not the deadline
                return failed(in_words(problem))
            return failed(f"no {progress.lacks} in {seconds(check.connect_timeout_us)}")
        except BindRefused as problem:
            return failed(str(problem))
        except OSError as problem:
            if problem.errno in OUR_LACK and not isinstance(problem, ssl.SSLError):
                return inconclusive(f"this host cannot probe: {in_words(problem)}")
            return failed(in_words(problem))

    async def _ask(self, check: Check, url: HttpUrl | None, progress: Progress) -> Outcome:
        connection = await connect(check)
        stream: Stream = connection
        try:
            if url is None:
                return passed("connected")
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
