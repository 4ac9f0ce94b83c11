"""keepalived.conf and haxlb.yml to a NodeConfig.

`load` says everything that is wrong and raises nothing; `load_or_raise` raises ConfigError where the configuration
cannot be used.
"""

from haxlb.config.load import Loaded, load, load_or_raise, refusal

__all__ = ["Loaded", "load", "load_or_raise", "refusal"]
