"""Values: addresses, NodeConfig, facts, NodeStatus, errors by blame.

Everything is a frozen dataclass without behaviour beyond naming itself. `wire` turns them into JSON and back.
"""
