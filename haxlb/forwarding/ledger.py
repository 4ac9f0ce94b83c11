"""What the maps say, and who has which index: read from the maps alone, kept up to date by the plans that are made.

Indices are what flows remember, so they are stable. A server, a service or an endpoint that leaves keeps its index and
finds it again when it returns; only when no index is unused is the longest retired one given to another. A backend's
incarnation then changes, and flows of the earlier server are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import filterfalse

from haxlb.forwarding.arena import Arena, Extent
from haxlb.forwarding.layout import ADDRESS_BITS, ELEMENT_BYTES, EXCEPTION_BYTES, EXCEPTION_ELEMENTS, Sizes
from haxlb.forwarding.maglev import Populate, populate
from haxlb.forwarding.records import BackendRecord, FrontendRecord, Generation, ServiceRecord
from haxlb.forwarding.ring import Recipe, elements_of
from haxlb.forwarding.wanted import WantedService
from haxlb.model.addresses import Endpoint, IPAddress

Server = tuple[int, IPAddress, int]
"""Service index, address and port."""
Thing = tuple[str, int, int]
"""What a packet may be reading though it is not in force any more: its kind, index and place."""


class Ledger:
    """Of one forwarder. Plans change it as they are made: who fails to carry one out reads the maps anew."""

    def __init__(
        self,
        sizes: Sizes,
        *,
        frontends: Mapping[Endpoint, FrontendRecord] | None = None,
        withdrawn: Mapping[Endpoint, FrontendRecord] | None = None,
        portless: Mapping[Endpoint, FrontendRecord] | None = None,
        services: Mapping[int, ServiceRecord] | None = None,
        backends: Mapping[int, BackendRecord] | None = None,
        any_port_bits: bytes = bytes(ADDRESS_BITS // 8),
        rings: memoryview,
        exceptions: memoryview,
        populate: Populate = populate,
    ) -> None:
        """`rings` and `exceptions` are those maps, as they are whenever they are read; `populate` is maglev's."""
        self.sizes = sizes
        self.populate = populate
        self.frontends = dict(frontends or {})
        self.withdrawn = dict(withdrawn or {})
        """The last frontends of endpoints that are not offered any more."""
        self.portless = dict(portless or {})
        """Those of haxlb.forwarding.portless."""
        self.any_port_bits = bytearray(any_port_bits)
        """Of the addresses that have endpoints for all ports, or had some."""
        self.services = dict(services or {})
        self.backends = dict(backends or {})
        self._rings = rings
        self._exceptions = exceptions
        self.applied: dict[str, WantedService] = {}
        """What the maps say by name, as far as this process made it so."""
        self.recipes: dict[int, Recipe] = {}
        """What the slots in force were computed from, likewise."""
        self.service_of = {record.identity: index for index, record in self.services.items()}
        self.backend_of: dict[Server, int] = {record.identity: index for index, record in self.backends.items()}
        self.members: dict[int, set[int]] = {}
        """Backends of each service that have not left it."""
        for index, record in self.backends.items():
            if not record.retired:
                self.members.setdefault(record.service, set()).add(index)
        self.offered: dict[int, set[Endpoint]] = {}
        """Endpoints of each service."""
        for endpoint, frontend in self.frontends.items():
            self.offered.setdefault(frontend.service, set()).add(endpoint)
        self.in_transition = {
            index for index, record in self.services.items() if not record.retired and record.in_transition
        }
        self.living = {index for index, record in self.services.items() if not record.retired}
        """Services that are wanted."""
        self.arena = Arena(sizes.rings, self._extents())
        self.recent: set[Thing] | None = None
        """What packets may still be reading; None = anything."""
        taken = {each.index for each in (*self.frontends.values(), *self.withdrawn.values())}
        self._unused_frontends = filterfalse(taken.__contains__, iter(range(1, sizes.frontends + 1)))
        self._unused_services = filterfalse(set(self.services).__contains__, iter(range(1, sizes.services + 1)))
        self._unused_backends = filterfalse(set(self.backends).__contains__, iter(range(1, sizes.backends)))
        self._retired_services = _Retired(
            ((index, record.retired) for index, record in self.services.items()),
            lambda index: self.services[index].retired,
        )
        self._retired_backends = _Retired(
            ((index, record.retired) for index, record in self.backends.items()),
            lambda index: self.backends[index].retired,
        )
        ages = [record.retired for record in self.services.values()]
        ages += [record.retired for record in self.backends.values()]
        self.retirement = 1 + max(ages, default=0)
        """What those that leave by the next plan are marked with."""

    def _extents(self) -> Iterator[Extent]:
        for record in self.services.values():
            if not record.retired:
                for generation in record.in_use:
                    if generation.length:
                        yield generation.first, elements_of(generation.length)

    def slots(self, generation: Generation) -> memoryview:
        """The bytes of the slots of a generation, two for each."""
        first = generation.first * ELEMENT_BYTES
        return self._rings[first : first + 2 * generation.length]

    def exception_bits(self, service: int, slots: int) -> bytes:
        """One bit for each of the first so many slots of a service."""
        first = service * EXCEPTION_ELEMENTS * EXCEPTION_BYTES
        return bytes(self._exceptions[first : first + -(-slots // 8)])

    def is_recent(self, thing: Thing) -> bool:
        """Whether a packet may still be reading it, though it is not in force."""
        return self.recent is None or thing in self.recent

    def quiesce(self) -> None:
        """Every packet that was being handled when the last plan had been carried out has been."""
        self.recent = set()
        self.arena.release()

    @property
    def quiet(self) -> bool:
        """Nothing waits for packets to end."""
        return self.recent is not None and not self.recent and not self.arena.rests

    # -- indices

    def unused_frontend(self) -> int | None:
        """One that nobody ever had."""
        return next(self._unused_frontends, None)

    def unused_service(self) -> int | None:
        """Likewise."""
        return next(self._unused_services, None)

    def unused_backend(self) -> int | None:
        """Likewise."""
        return next(self._unused_backends, None)

    def retire_service(self, index: int, record: ServiceRecord) -> None:
        """It is not wanted any more."""
        self.services[index] = record
        self.living.discard(index)
        self._retired_services.add(record.retired, index)

    def retire_backend(self, index: int, record: BackendRecord) -> None:
        """Likewise."""
        self.backends[index] = record
        self._retired_backends.add(record.retired, index)

    def longest_retired_service(self) -> int | None:
        """One that was retired before the present plan, to be given to another; None where there is none."""
        return self._retired_services.take(self.retirement)

    def longest_retired_backend(self) -> int | None:
        """Likewise."""
        return self._retired_backends.take(self.retirement)


class _Retired:
    """Indices by the time of their retirement."""

    def __init__(self, ages: Iterable[tuple[int, int]], age_of: Callable[[int], int]) -> None:
        self._heap = [(retired, index) for index, retired in ages if retired]
        heapify(self._heap)
        self._age_of = age_of

    def add(self, retired: int, index: int) -> None:
        heappush(self._heap, (retired, index))

    def take(self, before: int) -> int | None:
        while self._heap and self._heap[0][0] < before:
            retired, index = heappop(self._heap)
            # It may have returned since, and left again.
            if self._age_of(index) == retired:
                return index
        return None
