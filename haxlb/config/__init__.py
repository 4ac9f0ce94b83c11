"""keepalived.conf and haxlb.yml to a NodeConfig; what changes between two of them.

`load` says everything that is wrong and raises nothing; `load_or_raise` raises ConfigError where the configuration
cannot be used.
"""

from haxlb.config.diff import Change, ReloadPlan, Touched, plan_reload
from haxlb.config.load import Loaded, load, load_or_raise, refusal

__all__ = ["Change", "Loaded", "ReloadPlan", "Touched", "load", "load_or_raise", "plan_reload", "refusal"]
