"""What the kernel would hold: maps of dictionaries, with eyes on what packets may be reading."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator

from haxlb.forwarding import layout
from haxlb.forwarding.hashing import any_port_bit
from haxlb.forwarding.layout import INDEX, Sizes
from haxlb.forwarding.ledger import Ledger
from haxlb.forwarding.plan import deaths, plan
from haxlb.forwarding.records import (
    BackendRecord,
    FrontendRecord,
    Generation,
    ServiceRecord,
    identity_of,
    is_portless,
    is_withdrawn,
    unpack_endpoint,
)
from haxlb.forwarding.steps import Delete, Fill, Phase, Plan, Step, Write
from haxlb.forwarding.transition import settle
from haxlb.forwarding.wanted import Load, WantedTable
from haxlb.model.addresses import Endpoint
from tests.forwarding.tables import WEB, server

SIZES = Sizes(services=3, frontends=6, backends=8, rings=1 << 13, flow_buckets_log2=1)
LIFETIME_S = 900
_ARRAYS = ("rings", "exceptions")


class Kernel:
    """Packets are thought of as slow: one that has looked at a service goes on until somebody waits for it."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        self.sizes = sizes
        self.shapes = {shape.name: shape for shape in layout.shapes(sizes)}
        self.maps: dict[str, dict[bytes, bytes]] = {name: {} for name in self.shapes}
        self.memory = {name: bytearray(self.shapes[name].entries * self.shapes[name].value_size) for name in _ARRAYS}
        self.now_s = 1000
        self.loads: dict[int, Load] = {}
        self.read_by_packets: set[tuple[str, int, int]] = set()
        """Elements of rings, hops, peers and generations that packets under way have found."""
        self.watched = True
        self.ledger = self.read()

    # -- the planner's life

    def apply(self, wanted: WantedTable) -> list[Step]:
        """As Forwarder.apply; the steps that it took."""
        taken: list[Step] = []
        for each in self.phases(wanted):
            taken += self.carry_out(each)
        self.check_ledger()
        return taken

    def phases(self, wanted: WantedTable) -> Iterator[Phase]:
        """The phases of a change, each to be carried out before the next one is asked for."""
        yield from deaths(wanted, self.ledger).phases
        while True:
            planned = plan(wanted, self.ledger, self.now_s)
            yield from planned.phases
            if planned.complete:
                return
            self.wait()
            self.ledger.quiesce()

    def settle(self) -> Plan:
        """As Forwarder.settle."""
        if not self.ledger.quiet:
            self.wait()
            self.ledger.quiesce()
        done = settle(self.ledger, self.now_s, LIFETIME_S, lambda index: self.loads.get(index, Load()))
        for phase in done.phases:
            self.carry_out(phase)
        self.check_ledger()
        return done

    def carry_out(self, phase: Phase) -> list[Step]:
        if phase.wait:
            self.wait()
        for step in phase.steps:
            self.step(step)
        return list(phase.steps)

    def wait(self) -> None:
        """Every packet that was being handled has been."""
        self.read_by_packets.clear()

    def restart(self) -> None:
        """Whoever has written is no more; who comes knows what the maps say."""
        self.ledger = self.read()

    def check_ledger(self) -> None:
        """What the planner thinks that the maps say is what they say."""
        actual = self.read()
        for what in (
            "frontends",
            "withdrawn",
            "portless",
            "any_port_bits",
            "services",
            "backends",
            "living",
            "in_transition",
        ):
            assert getattr(self.ledger, what) == getattr(actual, what), what
        assert self.ledger.service_of == actual.service_of
        assert {k: v for k, v in self.ledger.members.items() if v} == {k: v for k, v in actual.members.items() if v}
        assert {k: v for k, v in self.ledger.offered.items() if v} == {k: v for k, v in actual.offered.items() if v}

    # -- writes

    def step(self, step: Step) -> None:
        """Carry out one, and see that no packet under way reads it."""
        packets = self.seen()
        match step:
            case Fill():
                if step.map == "rings" and self.watched:
                    size = len(step.content) // layout.ELEMENT_BYTES
                    touched = {("element", at, 0) for at in range(step.first, step.first + size)}
                    assert not touched & (packets | self.read_by_packets), "slots are written that a packet may read"
                first = step.first * self.shapes[step.map].value_size
                memory = self.memory[step.map]
                assert first + len(step.content) <= len(memory)
                memory[first : first + len(step.content)] = step.content
            case Write():
                self._check_write(step, packets)
                if step.map in ("endpoints", "endpoints6") and not (is_withdrawn(step.key) or is_portless(step.key)):
                    self._check_bit(unpack_endpoint(step.key))
                self.maps[step.map][step.key] = step.value
                assert len(self.maps[step.map]) <= self.shapes[step.map].entries
            case Delete():
                del self.maps[step.map][step.key]
        self.read_by_packets |= packets

    def _check_bit(self, endpoint: Endpoint) -> None:
        at, bit = divmod(any_port_bit(endpoint.address), 8)
        assert endpoint.port or self.any_port_bits()[at] >> bit & 1, "no packet looks for this endpoint"

    def _check_write(self, step: Write, packets: set[tuple[str, int, int]]) -> None:
        before = self.maps[step.map].get(step.key)
        if before is None or not self.watched:
            return
        may_read = packets | self.read_by_packets
        (index,) = INDEX.unpack(step.key) if step.map in ("services", "backends") else (0,)
        if step.map == "services":
            was, now = ServiceRecord.unpack(before), ServiceRecord.unpack(step.value)
            for place in range(3):
                if was.generations[place] != now.generations[place]:
                    assert ("generation", index, place) not in may_read
            for place in range(2):
                if was.peers[place] != now.peers[place]:
                    assert ("peer", index, place) not in may_read
        if step.map == "backends":
            one, other = BackendRecord.unpack(before), BackendRecord.unpack(step.value)
            for place in range(2):
                if one.hops[place] != other.hops[place]:
                    assert ("hop", index, place) not in may_read

    def seen(self) -> set[tuple[str, int, int]]:
        """What packets that come now find."""
        found: set[tuple[str, int, int]] = set()
        offered = {record.service for record in self.frontends("offered").values()}
        offered |= {record.service for record in self.frontends("portless").values()}
        for index, record in self.services().items():
            if index not in offered:
                continue
            found.add(("generation", index, record.current))
            for generation in record.in_use:
                elements = -(-generation.length // layout.RING_SLOTS_PER_ELEMENT)
                found |= {("element", generation.first + at, 0) for at in range(elements)}
            if record.former is not None:
                found.add(("generation", index, record.former))
            if record.peer is not None:
                found.add(("peer", index, int(bool(record.select & 0x10))))
        found |= {
            ("hop", index, int(bool(record.state & 2)))
            for index, record in self.backends().items()
            if record.alive and record.service in offered
        }
        return found

    # -- readings

    def read(self) -> Ledger:
        return Ledger(
            self.sizes,
            frontends=self.frontends("offered"),
            withdrawn=self.frontends("withdrawn"),
            portless=self.frontends("portless"),
            any_port_bits=self.any_port_bits(),
            services=self.services(),
            backends=self.backends(),
            rings=memoryview(self.memory["rings"]),
            exceptions=memoryview(self.memory["exceptions"]),
        )

    def frontends(self, what: str = "offered") -> dict[Endpoint, FrontendRecord]:
        found = {}
        for name in ("endpoints", "endpoints6"):
            for key, value in self.maps[name].items():
                kind = "withdrawn" if is_withdrawn(key) else "portless" if is_portless(key) else "offered"
                if kind == what:
                    found[unpack_endpoint(key)] = FrontendRecord.unpack(value)
        return found

    def any_port_bits(self) -> bytes:
        return self.maps["any_port_bits"].get(INDEX.pack(0), bytes(layout.ADDRESS_BITS // 8))

    def services(self) -> dict[int, ServiceRecord]:
        return {INDEX.unpack(key)[0]: ServiceRecord.unpack(raw) for key, raw in self.maps["services"].items()}

    def backends(self) -> dict[int, BackendRecord]:
        return {INDEX.unpack(key)[0]: BackendRecord.unpack(raw) for key, raw in self.maps["backends"].items()}

    def slots(self, generation: Generation) -> list[int]:
        first = generation.first * layout.ELEMENT_BYTES
        return list(array("H", bytes(self.memory["rings"][first : first + 2 * generation.length])))

    def index_of(self, number: int) -> int:
        """Of a server of tests.forwarding.tables."""
        address = server(number).address
        (index,) = (i for i, record in self.backends().items() if record.address == address and not record.retired)
        return index

    def service_at(self, endpoint: Endpoint = WEB) -> int:
        return self.frontends()[endpoint].service

    def record(self, endpoint: Endpoint = WEB) -> ServiceRecord:
        return self.services()[self.service_at(endpoint)]

    def ring(self, endpoint: Endpoint = WEB) -> list[str]:
        """Addresses of the slots in force."""
        backends = self.backends()
        return [str(backends[slot].address) for slot in self.slots(self.record(endpoint).generation)]

    def shares(self, endpoint: Endpoint = WEB) -> Counter[str]:
        return Counter(self.ring(endpoint))

    def exceptions(self, endpoint: Endpoint = WEB) -> list[int]:
        """Slots of the ring in force that are marked, where marks count."""
        record, index = self.record(endpoint), self.service_at(endpoint)
        if not record.select & 0x40:
            return []
        first = index * layout.EXCEPTION_ELEMENTS * layout.EXCEPTION_BYTES
        bits = self.memory["exceptions"][first : first + layout.RING_SLOTS // 8]
        return [slot for slot in range(record.generation.length) if bits[slot // 8] >> slot % 8 & 1]

    def says(self, wanted: WantedTable) -> None:
        """The maps say what is wanted: an independent reading of them."""
        frontends = self.frontends()
        assert set(frontends) == {each for service in wanted.services for each in service.endpoints}
        services, backends = self.services(), self.backends()
        for service in wanted.services:
            (index,) = {frontends[each].service for each in service.endpoints}
            record = services[index]
            assert record.identity == identity_of(service.name)
            assert not record.retired
            servers = {
                (each.address, each.port): each
                for each in backends.values()
                if each.service == index and not each.retired
            }
            assert set(servers) == {(each.address, each.port) for each in service.servers}
            for each in service.servers:
                known = servers[each.address, each.port]
                assert known.alive == each.gets_packets
                assert known.weight == each.weight
                if each.gets_packets:
                    assert known.hop == each.next_hop
            in_force = {(backends[slot].address, backends[slot].port) for slot in set(self.slots(record.generation))}
            assert in_force == {
                (each.address, each.port) for each in service.servers if each.gets_packets and each.weight
            }
