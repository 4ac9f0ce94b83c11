"""The two formulae of VRRP's election, in whole microseconds."""

from __future__ import annotations

from haxlb.model.units import SECOND_US

DOWN_ADVERTS = 3
"""So many adverts may be missed before the MASTER counts as gone (RFC 9568 section 6.1)."""


def skew_time(version: int, priority: int, master_adver_interval_us: int) -> int:
    """How much later than its betters a BACKUP of this priority acts, in µs.

    Version 2: (256 - priority) / 256 seconds whatever the interval (RFC 3768 section 6.1). Version 3: the same share
    of the MASTER's interval (RFC 9568 section 6.1; in µs, as keepalived computes it, not rounded to centiseconds).
    """
    unit = SECOND_US if version == 2 else master_adver_interval_us  # noqa: PLR2004
    return (256 - priority) * unit // 256


def master_down_interval(
    version: int, priority: int, master_adver_interval_us: int, adverts: int = DOWN_ADVERTS
) -> int:
    """How long a BACKUP hears nothing before it takes over, in µs."""
    return adverts * master_adver_interval_us + skew_time(version, priority, master_adver_interval_us)
