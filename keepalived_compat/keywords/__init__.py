"""Every keyword of keepalived (up to 2.4.3), by block. `KEEPALIVED` is the whole table."""

from __future__ import annotations

from keepalived_compat.grammar import Grammar
from keepalived_compat.keywords.checkers import CHECKERS
from keepalived_compat.keywords.global_defs import GLOBAL_DEFS
from keepalived_compat.keywords.root import ROOT_BLOCKS
from keepalived_compat.keywords.tracking import TRACKING
from keepalived_compat.keywords.virtual_server import VIRTUAL_SERVER
from keepalived_compat.keywords.vrrp import VRRP

KEEPALIVED: Grammar = {**ROOT_BLOCKS, **GLOBAL_DEFS, **VRRP, **TRACKING, **VIRTUAL_SERVER, **CHECKERS}
