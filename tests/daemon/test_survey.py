from __future__ import annotations

from haxlb.daemon.messages import SpeakerStatus
from haxlb.model.status import LoopLag

LAG = LoopLag(wakes=5, last_us=10, max_us=1200, max_at=1_800_000_000.5, over_ms=1)


def test_the_lag_of_the_speaker_is_in_the_status_also_when_it_falls_mute(play, kit):
    async def scene(world):
        world.supervisor.on_message("speaker", SpeakerStatus(ticket=0, instances=(), lag=LAG))
        world.mute = True
        assert (await world.supervisor.status()).lag == LAG

    play(scene, kit.node())
