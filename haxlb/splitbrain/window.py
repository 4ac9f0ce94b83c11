"""How long two MASTERs may be heard before it is more than an election."""

from __future__ import annotations

from haxlb.model.instance import VrrpInstance
from haxlb.model.units import SECOND_US


def master_down_interval_us(instance: VrrpInstance) -> int:
    """The adverts that may be missed and the skew time, µs (RFC 9568 section 6.1; version 2: RFC 3768 section 6.1).

    The instance's own advert interval counts: a MASTER has no learned one.
    """
    skew_base = SECOND_US if instance.version == 2 else instance.advert_interval_us  # noqa: PLR2004 - the version
    return instance.down_timer_adverts * instance.advert_interval_us + (256 - instance.priority) * skew_base // 256


def protocol_window_us(instance: VrrpInstance) -> int:
    """The protocol's own window, µs: master_down_interval and one advert.

    Directors that hear each other are down to one MASTER by then: the lower one yields to the first advert that it
    gets, and that comes within one interval; the rest forgives as many lost adverts as the protocol forgives.
    """
    return master_down_interval_us(instance) + instance.advert_interval_us
