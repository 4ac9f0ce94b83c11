"""Services: which slots packets look into, and who the other director is."""

from __future__ import annotations

from array import array
from dataclasses import replace

from haxlb.forwarding.backends import Backends, bare
from haxlb.forwarding.frontends import Frontends
from haxlb.forwarding.layout import TALLY_BYTES
from haxlb.forwarding.ledger import Ledger
from haxlb.forwarding.records import (
    COMPARES,
    FORMER_NONE,
    SELECT_EXCEPTIONS,
    SELECT_FORMER_SHIFT,
    SELECT_PEER,
    SELECT_PEER_KNOWN,
    Generation,
    ServiceRecord,
    identity_of,
)
from haxlb.forwarding.ring import Recipe, elements_of, packed, recipe_of, slots_of
from haxlb.forwarding.steps import Fill, write_at
from haxlb.forwarding.transition import Change, exceptions_after, mark, resized
from haxlb.forwarding.wanted import WantedService
from haxlb.forwarding.writing import Writing
from haxlb.model.errors import HostError

_PLACES = (0, 1, 2)
_NO_GENERATIONS = (Generation(), Generation(), Generation())


class Services:
    """The part of a plan that is about services; it calls the others."""

    def __init__(self, writing: Writing, frontends: Frontends, backends: Backends, now_s: int) -> None:
        self._writing = writing
        self._ledger: Ledger = writing.ledger
        self._frontends = frontends
        self._backends = backends
        self._now_s = now_s

    def retire(self, index: int) -> None:
        """It is not wanted any more; its endpoints are withdrawn already."""
        record = self._ledger.services[index]
        for place in _PLACES:
            if place in (record.current, record.former):
                self._writing.free_generation(index, place, record.generations[place])
        retired = replace(record, retired=self._ledger.retirement)
        self._ledger.retire_service(index, retired)
        self._writing.withdrawn.append(write_at("services", index, retired.pack()))
        self._writing.retired = True
        self._ledger.recipes.pop(index, None)
        self._ledger.in_transition.discard(index)
        self._backends.leave(index, set())

    def serve(self, wanted: WantedService) -> None:
        """Make one service what it shall be. Raises HostError."""
        identity = identity_of(wanted.name)
        index = self._ledger.service_of.get(identity)
        fresh = index is None
        if index is None:
            index = self._new(identity)
            if index is None:
                self._writing.complete = False
                return
        self._ledger.living.add(index)
        indices = [self._backends.serve(index, server) for server in wanted.servers]
        complete = self._point(index, wanted, indices, fresh=fresh)
        self._backends.leave(index, {each for each in indices if each is not None})
        complete = self._frontends.offer(index, wanted) and complete and None not in indices
        if complete:
            self._writing.satisfied(wanted)
        else:
            self._writing.complete = False

    def _new(self, identity: bytes) -> int | None:
        ledger = self._ledger
        index = ledger.unused_service()
        record = ServiceRecord(identity=identity)
        if index is None:
            index = ledger.longest_retired_service()
            if index is None:
                if self._writing.retired:
                    return None
                raise HostError(
                    f"the forwarder has room for {ledger.sizes.services} virtual servers, all are taken",
                    remedy="raise forwarding.max_services in haxlb.yml, run `haxlb detach` and restart haxlb",
                )
            del ledger.service_of[ledger.services[index].identity]
            self._writing.write_service(self._writing.renamed, index, record)
            self._writing.cleared.append(write_at("service_tallies", index, bytes(TALLY_BYTES)))
            self._backends.forget(index)
        ledger.services[index] = record
        ledger.service_of[identity] = index
        return index

    def _point(self, index: int, wanted: WantedService, indices: list[int | None], *, fresh: bool) -> bool:
        """Slots and peer: prepare what is not in force, then put it in force by one byte."""
        ledger, writing = self._ledger, self._writing
        record = ledger.services[index]
        prepared = replace(
            record,
            persistence_s=wanted.persistence_s,
            persistence_mask=wanted.persistence_mask,
            persistence_prefix=wanted.persistence_prefix,
        )
        if record.retired:
            for place in _PLACES:
                writing.reuse(("generation", index, place))
            prepared = replace(
                prepared, retired=0, generations=_NO_GENERATIONS, select=FORMER_NONE << SELECT_FORMER_SHIFT
            )
        recipe = recipe_of(wanted, indices)
        flipped: ServiceRecord | None = prepared
        if ledger.recipes.get(index) != recipe or wanted.stateless != prepared.unrecorded or record.retired:
            content = slots_of(recipe, ledger.populate)
            prepared, flipped = self._turn(
                index, prepared, recipe, content, stateless=wanted.stateless, unknown=bool(record.retired), fresh=fresh
            )
        if flipped is None:
            flipped = prepared
            complete = False
        else:
            ledger.recipes[index] = recipe
            complete = True
            # With its slots: flows that only a ring has known so far would be new ones to it.
            flipped = replace(flipped, scheduler=COMPARES.get(wanted.scheduler, 0))
        prepared, flipped = self._meet(index, wanted, prepared, flipped)
        if prepared != record or fresh:
            writing.write_service(writing.prepared, index, prepared)
        if flipped != prepared:
            writing.write_service(writing.flips, index, flipped)
        (ledger.in_transition.add if flipped.in_transition else ledger.in_transition.discard)(index)
        return complete

    def _turn(
        self,
        index: int,
        record: ServiceRecord,
        recipe: Recipe,
        slots: array[int],
        *,
        stateless: bool,
        unknown: bool,
        fresh: bool,
    ) -> tuple[ServiceRecord, ServiceRecord | None]:
        """To other slots, or another way to use the same: the record before and after the flip; None = no room yet."""
        ledger, writing = self._ledger, self._writing
        now, was = record.generation, record.unrecorded and not unknown
        content = slots.tobytes()
        same = (now.length, now.flags) == (len(slots), recipe.flags) and ledger.slots(now) == content
        if same and stateless == was and not unknown:
            return record, record
        former = record.former
        if former is None and was and now.length:
            former = record.current
        place = record.current
        prepared = record
        if not same:
            place = self._place(index, record, former)
            generation = self._generation(recipe, slots)
            if generation is None:
                return record, None
            writing.reuse(("generation", index, place))
            if slots:
                writing.prepared.append(Fill("rings", generation.first, packed(slots)))
            generations = list(record.generations)
            generations[place] = generation
            prepared = replace(record, generations=(generations[0], generations[1], generations[2]))
            if former != record.current:
                writing.free_generation(index, record.current, now)
        exceptions = False
        if stateless and not fresh:
            change = Change(length=len(slots), content=content, comparable=now.flags == recipe.flags)
            exceptions = self._except(index, record, change, former, was=was)
        elif record.select & SELECT_EXCEPTIONS:
            writing.free(("exceptions", index, 0))
        kept = record.select & (SELECT_PEER | SELECT_PEER_KNOWN)
        flipped = replace(
            prepared,
            select=place
            | (FORMER_NONE if former is None else former) << SELECT_FORMER_SHIFT
            | kept
            | SELECT_EXCEPTIONS * exceptions,
            unrecorded=stateless,
            changed_s=self._now_s if former is not None else record.changed_s,
        )
        return prepared, flipped

    def _except(self, index: int, record: ServiceRecord, change: Change, former: int | None, *, was: bool) -> bool:
        """Mark the slots whose flows may be elsewhere; whether there are any."""
        marked = record.select & SELECT_EXCEPTIONS
        somewhere = not was or former is not None or bool(marked)
        if not change.length:
            # It is not known which slots there will be, when there is a server again.
            return somewhere
        if not record.generation.length and not somewhere:
            return False  # it has had no server for so long that it has no flows either
        bits = exceptions_after(self._ledger, index, record, change, unknown=not was)
        if not bits:
            return False
        if not marked:
            self._writing.reuse(("exceptions", index, 0))
        # Until the flip the ring in force reads them, too, and it may be the longer one.
        longest = max(change.length, record.generation.length)
        self._writing.prepared.append(mark(index, resized(bits, change.length, longest), longest))
        return True

    def _place(self, index: int, record: ServiceRecord, former: int | None) -> int:
        """Where the next generation goes: nobody looks there, and best of all nobody has lately."""
        places = [place for place in _PLACES if place not in (record.current, former)]
        return min(places, key=lambda place: self._ledger.is_recent(("generation", index, place)))

    def _generation(self, recipe: Recipe, slots: array[int]) -> Generation | None:
        if not slots:
            return Generation(flags=recipe.flags)
        first = self._writing.room(elements_of(len(slots)))
        if first is not None:
            return Generation(first=first, length=len(slots), flags=recipe.flags)
        if self._ledger.arena.rests:
            return None
        raise HostError(
            f"the forwarder has no room for the slots of all virtual servers: {self._ledger.sizes.rings} elements are "
            "not enough",
            remedy="stop haxlb, run `haxlb detach` and start it: it makes room for all",
        )

    def _meet(
        self, index: int, wanted: WantedService, prepared: ServiceRecord, flipped: ServiceRecord
    ) -> tuple[ServiceRecord, ServiceRecord]:
        """The other director, in the place that is not in force."""
        select = flipped.select
        if wanted.peer is None:
            return prepared, replace(
                flipped, select=select & ~SELECT_PEER_KNOWN
            ) if select & SELECT_PEER_KNOWN else flipped
        peer = bare(wanted.peer)
        if peer == flipped.peer:
            return prepared, flipped
        second = not select & SELECT_PEER
        self._writing.reuse(("peer", index, second))
        self._writing.free(("peer", index, not second))
        peers = (flipped.peers[0], peer) if second else (peer, flipped.peers[1])
        return (
            replace(prepared, peers=peers),
            replace(flipped, peers=peers, select=(select ^ SELECT_PEER) | SELECT_PEER_KNOWN),
        )
