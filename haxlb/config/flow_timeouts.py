"""`lvs_timeouts` of `global_defs`."""

from __future__ import annotations

from dataclasses import replace

from haxlb.config.globals import Globals
from haxlb.model.virtual_server import FlowTimeouts
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.grammar import integer
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.values import Unusable, number

_FIELDS = {"tcp": "tcp_s", "tcpfin": "tcp_fin_s", "udp": "udp_s"}
_SECONDS = integer(0, 31 * 86400)
LONGEST_S = 65_535
"""The forwarder counts seconds in 16 bits (bpf/flow.h)."""


def read_timeouts(given: Globals, complaints: Complaints) -> FlowTimeouts:
    """`[tcp SECONDS] [tcpfin SECONDS] [udp SECONDS]`; 0 leaves the default, as IPVS does."""
    found = FlowTimeouts()
    entry = given.entry("lvs_timeouts")
    words = iter(() if entry is None else entry.words[1:])
    for word in words:
        if word.text not in _FIELDS:
            complaints.error(
                "bad-value",
                word,
                f"lvs_timeouts: unknown word `{word.text}`; it is not used",
                did_you_mean(word.text, _FIELDS) or "[tcp SECONDS] [tcpfin SECONDS] [udp SECONDS]",
            )
            continue
        value = next(words, None)
        if value is None:
            complaints.error("missing-argument", word, f"lvs_timeouts: `{word.text}` lacks its seconds; it is not used")
            break
        try:
            seconds = int(str(number(value.text, _SECONDS).value))
        except Unusable as problem:
            complaints.error(
                "bad-value", value, f"lvs_timeouts {word.text}: {problem.message}; it is not used", problem.hint
            )
            continue
        if seconds > LONGEST_S:
            complaints.warning(
                "inexact-value",
                value,
                f"lvs_timeouts {word.text} {seconds} is taken as {LONGEST_S}, the longest that there is (18 hours)",
                "a client that is silent for longer should send TCP keepalives",
            )
        if seconds:
            found = replace(found, **{_FIELDS[word.text]: min(seconds, LONGEST_S)})
    return found
