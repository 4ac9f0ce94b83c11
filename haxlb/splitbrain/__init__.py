"""Two directors that both believe to be MASTER: found by evidence, told as an alarm, never guessed.

    facts of the speaker, the ARP watch and MQTT -> detector -> AlarmRaised, AlarmCleared
    RoleChanged -> claimant -> PublishClaim -> MQTT -> PeerClaimed at the other director's detector

`window` says how long the protocol itself may need until one voice is left; `evidence` remembers who was seen since
when; `detector` raises and clears; `claimant` is the other half of the second path: it tells our own state.
"""

from haxlb.splitbrain.claimant import Claimant, PublishClaim
from haxlb.splitbrain.detector import SplitBrainDetector
from haxlb.splitbrain.window import protocol_window_us

__all__ = ["Claimant", "PublishClaim", "SplitBrainDetector", "protocol_window_us"]
