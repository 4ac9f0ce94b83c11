"""A part of a configuration: keepalived can run its VRRP or its checkers alone."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from haxlb.model.node import NodeConfig


class Part(Enum):
    """What of a configuration is run."""

    ALL = "all"
    VRRP = "vrrp"
    """Instances only."""
    CHECKERS = "checkers"
    """Virtual servers only: somebody else moves the addresses."""

    def of(self, config: NodeConfig) -> NodeConfig:
        """This part of a configuration."""
        if self is Part.VRRP:
            return replace(config, virtual_servers=())
        if self is Part.CHECKERS:
            # Without instances their interfaces are still those where packets arrive.
            forwarding = replace(config.forwarding, interfaces=config.forwarding_interfaces)
            return replace(config, instances=(), forwarding=forwarding)
        return config
