"""One BFD session: the state machine of RFC 5880 section 6.8 in asynchronous mode, without echo and authentication.

It is told the time and returns effects in the order in which they are to be executed. All times are in µs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from haxlb.bfd.packet import ControlPacket, Diagnostic, State, diagnostic_words
from haxlb.model.tracking import BfdSession

Chance = Callable[[int, int], int]
"""A number between two bounds, both included: `randint` of a seeded stream."""

SLOWEST_START_US = 1_000_000
"""While it is not Up a system announces no shorter interval (RFC 5880 section 6.8.3)."""
_UNKNOWN_MIN_RX_US = 1
"""bfd.RemoteMinRxInterval before the first packet (RFC 5880 section 6.8.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A packet that was decoded and belongs to this session."""

    packet: ControlPacket


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerExpired:
    """The time of `next_deadline` has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfigure:
    """The same session with other intervals, multiplier, name or role."""

    settings: BfdSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Disable:
    """To AdminDown, for good: the session is about to be dropped."""


Input = Received | TimerExpired | Reconfigure | Disable


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send this packet now."""

    packet: ControlPacket


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """bfd.SessionState is another one."""

    before: State
    after: State
    reason: str


Effect = Send | StateChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """What the neighbour's last packet said (the bfd.Remote… variables)."""

    state: State = State.DOWN
    diagnostic: int = Diagnostic.NONE
    discriminator: int = 0
    """0 = not known (any more)."""
    min_rx_us: int = _UNKNOWN_MIN_RX_US
    min_tx_us: int = 0
    detect_mult: int = 0


@dataclass(slots=True, kw_only=True)
class Counters:
    """Since the session was made."""

    sent: int = 0
    received: int = 0
    """Taken; those refused are not among them."""
    refused: dict[str, int] = field(default_factory=dict)
    """By reason."""
    ups: int = 0
    """How often it has come Up."""


class Session:
    """`handle(input, now) -> effects`, `next_deadline()`, and attributes to look at."""

    def __init__(self, settings: BfdSession, discriminator: int, chance: Chance, now: int) -> None:
        self.settings = settings
        self.discriminator = discriminator
        """bfd.LocalDiscr; never 0."""
        self.state = State.DOWN
        self.diagnostic = Diagnostic.NONE
        self.remote = Remote()
        self.since_us = now
        """When it entered its state."""
        self.reason = "not yet heard of the neighbour"
        self.counters = Counters()
        self.well: bool | None = None
        """Up, or last Up when the neighbour took the session out of service: that says nothing of the path (RFC 5882
        section 4.2; keepalived tells its instances nothing then, either). None = it was never Up, and the neighbour
        has not yet had the time to answer."""
        self._chance = chance
        self._poll = False
        self._poll_again = False
        """Values changed while a Poll Sequence was under way: its Final does not answer for them."""
        # Values that the neighbour has confirmed by a Final, or that need no confirmation (RFC 5880 section 6.8.3).
        self._tx_in_use_us = self.desired_min_tx_us
        self._rx_in_use_us = settings.min_rx_us
        self._verdict_at: int | None = now + settings.multiplier * settings.idle_tx_us
        self._detect_at: int | None = None
        self._scheduled_us: int | None = None
        """The interval, before jitter, that `_send_at` was made of."""
        self._scheduled_from = now
        self._send_at: int | None = now
        if self._interval_us() is None:
            self._send_at = None

    # -- what is told to whoever asks

    @property
    def desired_min_tx_us(self) -> int:
        """bfd.DesiredMinTxInterval: what our packets announce."""
        return self.settings.min_tx_us if self.state is State.UP else max(self.settings.idle_tx_us, SLOWEST_START_US)

    @property
    def transmit_interval_us(self) -> int | None:
        """Between two periodic packets, before jitter; None = there are none."""
        return self._interval_us()

    @property
    def detection_time_us(self) -> int | None:
        """RFC 5880 section 6.8.4; None before the first packet."""
        if self.remote.detect_mult == 0:
            return None
        return self.remote.detect_mult * max(self._rx_in_use_us, self.remote.min_tx_us)

    def next_deadline(self) -> int | None:
        """When `TimerExpired` is due."""
        return min(
            (at for at in (self._send_at, self._detect_at, self._verdict_at) if at is not None),
            default=None,
        )

    # -- inputs

    def handle(self, event: Input, now: int) -> list[Effect]:
        """Take one input; the effects, in order."""
        effects: list[Effect] = []
        if self.state is State.ADMIN_DOWN:
            return effects
        match event:
            case Received(packet=packet):
                self._receive(packet, now, effects)
            case TimerExpired():
                self._expire(now, effects)
            case Reconfigure(settings=settings):
                self._reconfigure(settings, now, effects)
            case Disable():
                self._disable(now, effects)
        return effects

    def _receive(self, packet: ControlPacket, now: int, effects: list[Effect]) -> None:
        self.counters.received += 1
        self.remote = Remote(
            state=packet.state,
            diagnostic=packet.diagnostic,
            discriminator=packet.my_discriminator,
            min_rx_us=packet.required_min_rx_us,
            min_tx_us=packet.desired_min_tx_us,
            detect_mult=packet.detect_mult,
        )
        if packet.final and self._poll:
            self._end_poll()
        after, reason = self._transition(packet)
        changed = self._enter(after, reason, now, effects)
        if changed and after is State.DOWN:
            self.diagnostic = Diagnostic.NEIGHBOR_SIGNALED_DOWN
        if packet.poll:
            # At once, whatever the transmit interval says (RFC 5880 section 6.8.7).
            self._send(effects, final=True)
        if changed:
            self._send_now(now, effects)
        self._detect_at = now + (self.detection_time_us or 0)
        self._reschedule(now)

    def _transition(self, packet: ControlPacket) -> tuple[State, str]:
        """The state table of RFC 5880 section 6.8.6."""
        heard = f"the neighbour says {packet.state}"
        if packet.state is State.ADMIN_DOWN:
            return State.DOWN, heard
        match self.state, packet.state:
            case State.DOWN, State.DOWN:
                return State.INIT, heard
            case State.DOWN, State.INIT:
                return State.UP, heard
            case State.INIT, State.INIT | State.UP:
                return State.UP, heard
            case State.UP, State.DOWN:
                return State.DOWN, f"{heard} ({diagnostic_words(packet.diagnostic)})"
        return self.state, ""

    def _expire(self, now: int, effects: list[Effect]) -> None:
        if self._detect_at is not None and now >= self._detect_at:
            self._undetected(now, effects)
        if self._verdict_at is not None and now >= self._verdict_at:
            self._verdict_at = None
            self.well = False
        if self._send_at is not None and now >= self._send_at:
            # An absolute schedule does not drift; but what a stalled process has missed is not sent in a burst.
            interval = self._interval_us() or 0
            base = self._send_at if now - self._send_at < interval else now
            self._send(effects)
            self._schedule(base)

    def _undetected(self, now: int, effects: list[Effect]) -> None:
        """A Detection Time has passed without a packet (RFC 5880 section 6.8.4)."""
        time_ms = (self.detection_time_us or 0) / 1000
        self._detect_at = None
        if self._enter(State.DOWN, f"nothing heard of the neighbour for {time_ms:g} ms", now, effects):
            self.diagnostic = Diagnostic.DETECTION_TIME_EXPIRED
            self._send_now(now, effects)
        self._poll = self._poll_again = False
        # What it said of itself counts no longer: it may come back with another discriminator (section 6.8.1).
        self.remote = Remote(state=State.DOWN)
        self._reschedule(now)

    def _reconfigure(self, settings: BfdSession, now: int, effects: list[Effect]) -> None:
        before, self.settings = self.settings, settings
        if self._verdict_at is not None:
            self._verdict_at += settings.multiplier * settings.idle_tx_us - before.multiplier * before.idle_tx_us
        if self.state is State.UP and (before.min_tx_us, before.min_rx_us) != (settings.min_tx_us, settings.min_rx_us):
            # Only what makes the neighbour wait longer for us, or us wait shorter for it, needs its consent first.
            self._tx_in_use_us = min(self._tx_in_use_us, settings.min_tx_us)
            self._rx_in_use_us = max(self._rx_in_use_us, settings.min_rx_us)
            self._begin_poll()
            self._send_now(now, effects)
        elif self.state is not State.UP:
            self._tx_in_use_us, self._rx_in_use_us = self.desired_min_tx_us, settings.min_rx_us
        self._reschedule(now)

    def _disable(self, now: int, effects: list[Effect]) -> None:
        self.diagnostic = Diagnostic.ADMINISTRATIVELY_DOWN
        known = self.remote.discriminator != 0
        self._enter(State.ADMIN_DOWN, "taken out of service here", now, effects)
        self._poll = False
        if known:
            self._send(effects)
        self._send_at = self._detect_at = self._verdict_at = None

    # -- the state

    def _enter(self, after: State, reason: str, now: int, effects: list[Effect]) -> bool:
        before = self.state
        if after is before:
            return False
        self.state, self.since_us, self.reason = after, now, reason
        self._tx_in_use_us, self._rx_in_use_us = self.desired_min_tx_us, self.settings.min_rx_us
        self._poll = self._poll_again = False
        if after is State.UP:
            self.counters.ups += 1
            self.diagnostic = Diagnostic.NONE
            self.well, self._verdict_at = True, None
            # Our interval is another one now, and the neighbour is to confirm that it knows (section 6.8.3).
            self._begin_poll()
        elif self.well is not None and State.ADMIN_DOWN not in (after, self.remote.state):
            self.well = after is State.INIT and self.well
        effects.append(StateChanged(before=before, after=after, reason=reason))
        return True

    def _begin_poll(self) -> None:
        self._poll_again, self._poll = self._poll, True

    def _end_poll(self) -> None:
        if self._poll_again:
            self._poll_again = False
            return
        self._poll = False
        self._tx_in_use_us, self._rx_in_use_us = self.desired_min_tx_us, self.settings.min_rx_us

    # -- transmission

    def _interval_us(self) -> int | None:
        """Between periodic packets, before jitter; None = none are to be sent (RFC 5880 section 6.8.7)."""
        if self.state is State.ADMIN_DOWN or self.remote.min_rx_us == 0:
            return None
        if self.settings.passive and self.remote.discriminator == 0:
            return None
        return max(self._tx_in_use_us, self.remote.min_rx_us)

    def _send_now(self, now: int, effects: list[Effect]) -> None:
        """A packet outside of the schedule, since it says something new; the schedule begins anew."""
        self._send(effects)
        self._schedule(now)

    def _send(self, effects: list[Effect], *, final: bool = False) -> None:
        self.counters.sent += 1
        effects.append(
            Send(
                packet=ControlPacket(
                    state=self.state,
                    diagnostic=self.diagnostic,
                    poll=self._poll and not final,
                    final=final,
                    detect_mult=self.settings.multiplier,
                    my_discriminator=self.discriminator,
                    your_discriminator=self.remote.discriminator,
                    desired_min_tx_us=self.desired_min_tx_us,
                    required_min_rx_us=self.settings.min_rx_us,
                )
            )
        )

    def _reschedule(self, now: int) -> None:
        """After the interval may have changed: a shorter one counts at once (RFC 5880 section 6.8.3)."""
        interval = self._interval_us()
        if interval != self._scheduled_us or (interval is not None and self._send_at is None):
            self._schedule(self._scheduled_from)
            if self._send_at is not None:
                self._send_at = max(self._send_at, now)

    def _schedule(self, base: int) -> None:
        """The next periodic packet, an interval after `base`, less the jitter of RFC 5880 section 6.8.7."""
        self._scheduled_us, self._scheduled_from = self._interval_us(), base
        if self._scheduled_us is None:
            self._send_at = None
            return
        most = self._scheduled_us if self.settings.multiplier > 1 else self._scheduled_us * 9 // 10
        self._send_at = base + self._chance(self._scheduled_us * 3 // 4, most)
