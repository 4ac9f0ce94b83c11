"""What instances may track."""

from __future__ import annotations

from keepalived_compat.grammar import (
    ADDRESS,
    BOOL,
    MAYBE_WORDS,
    SCRIPT,
    TEXT,
    WORDS,
    Grammar,
    block,
    integer,
    milliseconds,
    seconds,
    supported,
)

TRACKING: Grammar = {
    "vrrp_script": block(
        supported("script", SCRIPT),
        supported("interval", seconds(0.001), default="1"),
        supported("timeout", seconds(0.001), default="interval"),
        supported("weight", WORDS, default="0"),
        supported("rise", integer(1), default="1"),
        supported("fall", integer(1), default="1"),
        supported("user", WORDS),
        supported("init_fail"),
    ),
    "vrrp_track_process": block(
        supported("process", WORDS),
        supported("param_match", MAYBE_WORDS),
        supported("weight", WORDS, default="0"),
        supported("quorum", integer(1, 65535), default="1"),
        supported("quorum_max", integer(0, 65535)),
        supported("delay", seconds(0.000001, 3600), default="0"),
        supported("terminate_delay", seconds(0.000001, 3600), default="0"),
        supported("fork_delay", seconds(0.000001, 3600), default="0"),
        supported("full_command"),
    ),
    "track_file": block(
        supported("file", TEXT),
        supported("weight", WORDS, default="1"),
        supported("init_file", MAYBE_WORDS),
    ),
    "bfd_instance": block(
        supported("neighbor_ip", ADDRESS),
        supported("neighbour_ip", ADDRESS, means="neighbor_ip"),
        supported("source_ip", ADDRESS),
        supported("min_rx", milliseconds(1), default="10"),
        supported("min_tx", milliseconds(1), default="10"),
        supported("idle_tx", milliseconds(1000), default="1000"),
        supported("multiplier", integer(1, 255), default="5"),
        supported("passive"),
        supported("ttl", integer(1, 255), default="255"),
        supported("hoplimit", integer(1, 255), means="ttl"),
        supported("max_hops", integer(-1, 255), default="0"),
        supported("multihop", BOOL),
        supported("weight", WORDS, default="0"),
        supported("vrrp"),
        supported("checker"),
    ),
}
