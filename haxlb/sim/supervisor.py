"""What a virtual director's supervisor does: the standing, notifier, detector, claimant and history are the real ones.

The rest of the real supervisor (control socket, loading of files, logs) has no part in a drill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from haxlb.daemon.bereavement import Bereavement
from haxlb.daemon.chronicle import Chronicle
from haxlb.daemon.history import History, describe
from haxlb.daemon.messages import ConfigureSpeaker, Tracked
from haxlb.daemon.notifier import Notifier
from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import World as Ports
from haxlb.model.facts import AlarmCleared, AlarmRaised, Fact, ForeignMacHeard, PeerClaimed, PeerHeard, RoleChanged
from haxlb.model.instance import Role
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotifyDue
from haxlb.model.status import InstanceStatus
from haxlb.model.tracking import TrackResult
from haxlb.model.units import SECOND_US
from haxlb.sim.adapters import AddressTable, VirtualClock, VirtualWake
from haxlb.sim.arp_watch import ArpWatch
from haxlb.sim.broker import Broker, Claim
from haxlb.sim.estate import Estate, Notes, SupervisorPorts
from haxlb.sim.lan import Lan, Nic
from haxlb.sim.loop import VirtualLoop
from haxlb.sim.outlets import FifoLog, SilentLog, outlets
from haxlb.splitbrain import Claimant, PublishClaim, SplitBrainDetector


class Rows(History):
    """The history, with the number of its rows: equal ones that follow each other are one line in it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def add(self, sentence: str, at: float) -> None:
        """Note a sentence."""
        super().add(sentence, at)
        self.count += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What is left of a change of role for those who look later."""

    rows: int
    """Of the history, all of them."""
    states: int
    """How often the instance's state was published on MQTT; -1 = there is no broker."""
    state: Role | None
    """The one that is retained."""


class Supervisor:
    """One director's supervisor while it runs; `frozen` stops it, `close` ends it."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        loop: VirtualLoop,
        clock: VirtualClock,
        lan: Lan,
        nics: dict[str, Nic],
        addresses: AddressTable,
        broker: Broker | None,
        heirs: Estate,
        note: Callable[[str], None],
        on_alarm: Callable[[AlarmRaised | AlarmCleared], None],
    ) -> None:
        """`note` writes a line of the timeline."""
        self._name = config.node
        self._clock = clock
        self.standing = Standing(config=config, bpf_directory="")
        self.fifo = FifoLog()
        """What the operator was told, as lines."""
        self.history = Rows()
        ports = SupervisorPorts(
            outlets=outlets(self.fifo), log=SilentLog(), clock=clock, wall=heirs, children=heirs, bequest=heirs
        )
        self._notifier = Notifier(cast("Ports", ports), self.standing, self.take)
        self._bereavement = Bereavement(
            cast("Ports", ports), self.standing, cast("Chronicle", Notes(note)), self._notifier, self._take_of
        )
        self._broker = broker
        self._on_alarm = on_alarm
        self._detector = SplitBrainDetector(config.node, config.instances)
        self._claimant = Claimant()
        self._claimant.configure(config.instances)
        self._wake = VirtualWake(loop, clock, self._on_wake)
        self.arp_watch = ArpWatch(
            loop=loop, clock=clock, lan=lan, nics=nics, addresses=addresses, on_fact=self._on_foreign_mac
        )
        self.arp_watch.peers = {peer: None for each in config.instances for peer in each.peers}
        self._claims: dict[tuple[str, Claim], None] = {}
        self._frozen = False
        self._gone = False
        self._missed: list[Callable[[], None]] = []
        self._connect()

    def take(self, fact: Fact) -> None:
        """A fact of the speaker or of the ARP watch."""
        now = self._clock.now()
        if isinstance(fact, PeerHeard):
            self.arp_watch.peers[fact.address] = None
        for alarm in self._detector.handle(fact, now):
            self._on_alarm(alarm)
        if isinstance(fact, RoleChanged):
            self.history.add(describe(fact).sentence, now / SECOND_US)
            self.standing.roles[fact.instance] = fact.after
            if self._broker is not None:
                self._broker.publish_state(self._name, fact.instance, fact.after)
            self._publish(self._claimant.handle(fact, now))
        self._arm()

    def notify(self, due: NotifyDue) -> None:
        """The speaker says what the operator is to be told."""
        self._notifier.take(due)

    def records(self, instance: str) -> Records:
        """As they are now."""
        if self._broker is None:
            return Records(rows=self.history.count, states=-1, state=None)
        state, times = self._broker.states.get((self._name, instance), (None, 0))
        return Records(rows=self.history.count, states=times, state=state)

    def take_results(self, results: tuple[TrackResult, ...]) -> None:
        """The tracker has found these out."""
        self.standing.take_results(Tracked(results=results))

    def bereaved(self, statuses: tuple[InstanceStatus, ...], *, successor: bool) -> None:
        """The speaker is dead: what cannot be resumed is given up in its stead. `statuses` are the last ones."""
        orders = self.standing.speaker_orders()
        self._bereavement.speaker_died("has died", orders, statuses, successor=successor)

    def speaker_orders(self) -> ConfigureSpeaker:
        """What a fresh speaker is told; if it takes the place of a dead one, what it goes on with."""
        return self.standing.speaker_orders(self._bereavement.successions())

    def reload(self, config: NodeConfig) -> None:
        """Another configuration is in force; the speaker is told separately."""
        now = self._clock.now()
        renamed = self.standing.adopt(config)
        self._notifier.refresh(reloaded=True)
        for alarm in self._detector.configure(config.instances, now):
            self._on_alarm(alarm)
        self._publish(self._claimant.configure(config.instances))
        for each in renamed:
            same = RoleChanged(
                instance=each.name,
                vrid=each.vrid,
                before=Role.MASTER,
                after=Role.MASTER,
                reason="renamed",
                priority=each.priority,
                at_us=now,
            )
            for alarm in self._detector.handle(same, now):
                self._on_alarm(alarm)
            self._publish(self._claimant.handle(same, now))
        self._arm()

    def _take_of(self, fact: Fact, source: str) -> None:
        del source
        self.take(fact)

    def freeze(self) -> None:
        """Nothing runs; the broker will miss the keepalives."""
        self._frozen = True
        if self._broker is not None:
            self._broker.fall_silent(self._name)

    def thaw(self) -> None:
        """Everything that waited is done now. A session that was lost meanwhile is opened anew."""
        self._frozen = False
        missed, self._missed = self._missed, []
        for each in missed:
            each()
        if self._broker is not None and not self._broker.speak_again(self._name):
            for node, claim in list(self._claims):
                self._on_claim(node, claim, master=False)
            self._connect()
            self._publish(self._claimant.standing())

    def close(self) -> None:
        """Its process is gone, and the kernel closes the connection to the broker."""
        self._end()
        if self._broker is not None:
            self._broker.close(self._name)

    def lose_power(self) -> None:
        """Gone without a word: the broker learns of it by the keepalive."""
        self._end()
        if self._broker is not None:
            self._broker.fall_silent(self._name)

    def _end(self) -> None:
        self._gone = True
        self._wake.close()
        self.arp_watch.close()

    def _connect(self) -> None:
        if self._broker is not None:
            self._broker.connect(self._name, self._on_claim)

    def _on_foreign_mac(self, fact: ForeignMacHeard) -> None:
        # An answer that comes while nobody runs is lost; the watch asks again.
        if not self._frozen and not self._gone:
            self.take(fact)

    def _on_claim(self, node: str, claim: Claim, master: bool) -> None:  # noqa: FBT001 - the broker's callback
        if self._gone:
            return
        if self._frozen:
            self._missed.append(partial(self._on_claim, node, claim, master))
            return
        if master:
            self._claims[node, claim] = None
        else:
            self._claims.pop((node, claim), None)
        vrid, instance = claim
        self.take(PeerClaimed(node=node, vrid=vrid, master=master, at_us=self._clock.now(), instance=instance))

    def _on_wake(self) -> None:
        if self._frozen:
            self._missed.append(self._on_wake)
            return
        now = self._clock.now()
        deadline = self._detector.next_deadline()
        if deadline is not None and deadline <= now:
            for alarm in self._detector.handle_timer(now):
                self._on_alarm(alarm)
        if self._broker is not None:
            self._publish(self._claimant.handle_timer(now))
        self._arm()

    def _arm(self) -> None:
        deadline = self._detector.next_deadline()
        if self._broker is not None:
            # Without a broker nobody would hear what the claimant repeats.
            claim_at = self._claimant.next_deadline()
            if claim_at is not None and (deadline is None or claim_at < deadline):
                deadline = claim_at
        self._wake.wake_at(deadline)

    def _publish(self, claims: list[PublishClaim]) -> None:
        if self._broker is not None:
            for claim in claims:
                self._broker.publish(self._name, (claim.vrid, claim.instance), master=claim.master)
