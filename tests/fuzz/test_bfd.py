"""Whatever comes off the wire: a packet or a PeerError, and never a session that breaks or grows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.bfd.packet import ControlPacket, State, decode, encode
from haxlb.bfd.table import Arrival
from haxlb.model.errors import PeerError
from tests.bfd.wire import ADDRESSES, SECOND, pair

REASONS = {
    "length",
    "version",
    "detect_mult",
    "multipoint",
    "my_discriminator",
    "your_discriminator",
    "authentication",
}
TABLE_REASONS = REASONS | {"unknown_session", "ttl", "demand"}
WORD = st.integers(0, 2**32 - 1) | st.sampled_from((0, 1, 2**32 - 1))
PACKETS = st.builds(
    ControlPacket,
    state=st.sampled_from(State),
    diagnostic=st.integers(0, 31),
    poll=st.booleans(),
    final=st.booleans(),
    control_plane_independent=st.booleans(),
    demand=st.sampled_from((False, False, True)),
    detect_mult=st.integers(0, 255),
    my_discriminator=WORD,
    your_discriminator=WORD,
    desired_min_tx_us=WORD,
    required_min_rx_us=WORD,
    required_min_echo_rx_us=WORD,
)


@st.composite
def nearly_valid(draw: st.DrawFn) -> bytes:
    """A packet with bytes overwritten, cut out or put in."""
    message = bytearray(encode(draw(PACKETS)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(message)))
        kind = draw(st.sampled_from(("overwrite", "cut", "insert")))
        if kind == "overwrite":
            message[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "cut":
            del message[at : at + draw(st.integers(1, 12))]
        else:
            message[at:at] = draw(st.binary(max_size=12))
    return bytes(message)


PAYLOADS = st.binary(max_size=60) | nearly_valid()


@settings(derandomize=True, deadline=None, max_examples=1000)
@given(PAYLOADS)
def test_a_packet_or_a_peer_error(payload):
    try:
        packet = decode(payload)
    except PeerError as problem:
        refusal = problem
    else:
        assert packet.detect_mult
        assert packet.my_discriminator
        assert decode(encode(packet)) == packet
        return
    assert refusal.reason in REASONS
    assert refusal.message


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.tuples(PAYLOADS, st.booleans(), st.integers(0, 255)), max_size=25))
def test_a_session_under_fire(fire):
    """The last word is the true neighbour's: however it was lied to, the session comes Up again."""
    wire = pair(min_rx_us=300_000, min_tx_us=300_000)
    node = wire.nodes["a"]
    for payload, aimed, ttl in fire:
        if aimed and len(payload) >= 12:
            payload = payload[:8] + node.session.discriminator.to_bytes(4) + payload[12:]  # noqa: PLW2901
        arrival = Arrival(
            source=ADDRESSES["b"], destination=ADDRESSES["a"], ttl=ttl | 0xF0, multihop=False, payload=payload
        )
        before = len(node.sent)
        wire._execute(node, node.table.receive(arrival, wire.now))
        assert len(node.sent) - before <= 2, "no amplification"
        wire.run(1_000)
    refused = {**node.session.counters.refused, **node.table.refused}
    assert set(refused) <= TABLE_REASONS
    assert len(node.table._heap) < 50
    wire.run(30 * SECOND)
    wire.run_until(("a", State.UP), ("b", State.UP), limit_us=2**32 * 256)
