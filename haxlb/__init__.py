"""haxlb: a keepalived-style HA control plane with an XDP data plane."""

__version__ = "0.1.0"
