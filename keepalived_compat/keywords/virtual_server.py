"""`virtual_server` and `real_server`."""

from __future__ import annotations

from keepalived_compat.diagnostics import Severity
from keepalived_compat.grammar import (
    BOOL,
    ENDPOINT,
    FLAG,
    SCRIPT,
    TEXT,
    WORDS,
    Grammar,
    Keyword,
    block,
    choice,
    ignored,
    integer,
    not_yet,
    obsolete,
    old_spelling,
    seconds,
    supported,
    unsupported,
)

POSITIVE = seconds(0.000001)
SCHEDULERS = ("rr", "wrr", "lc", "wlc", "lblc", "sh", "mh", "dh", "fo", "ovf", "lblcr", "sed", "nq", "twos")
_STAND_IN = "where the hash points to a server that is down, drained or full, another one always takes its place"
_UNCHECKED = "this check is not made; without another one the server counts as up"


def _check(name: str) -> Keyword:
    return supported(name, body=name, many=True)


def _no_check(name: str) -> Keyword:
    return not_yet(name, FLAG, Severity.ERROR, _UNCHECKED, body=name)


VIRTUAL_SERVER: Grammar = {
    "virtual_server": block(
        supported("lb_algo", choice(*SCHEDULERS), default="wlc"),
        supported("lvs_sched", choice(*SCHEDULERS), means="lb_algo"),
        supported("lb_kind", WORDS, default="NAT"),
        supported("lvs_method", WORDS, means="lb_kind"),
        supported("protocol", choice("TCP", "UDP", "SCTP", any_case=True), default="UDP"),
        supported("ip_family", choice("inet", "inet6")),
        supported("sh-port"),
        supported("mh-port"),
        ignored("sh-fallback", FLAG, _STAND_IN),
        ignored("mh-fallback", FLAG, _STAND_IN),
        ignored("hashed", FLAG, "it does nothing in keepalived either"),
        # The flags by their numbers in IPVS: the first is the fallback of sh and mh, the second their port.
        ignored("flag-1", FLAG, _STAND_IN),
        supported("flag-2"),
        ignored("flag-3", FLAG, "no scheduler has a third flag"),
        supported("ops"),
        # keepalived refuses 0; it is in many files and means that there is no persistence.
        supported("persistence_timeout", integer(0, 2678400, optional=True)),
        supported("persistence_granularity", TEXT),
        unsupported(
            "persistence_engine",
            TEXT,
            Severity.ERROR,
            "the forwarder does not read what is in a packet, as pe_sip does to find the Call-ID",
            remedy="persistence_timeout keeps a client at its server by the client's address",
        ),
        # Health
        supported("delay_loop", POSITIVE, default="60"),
        supported("retry", integer(1)),
        supported("delay_before_retry", seconds()),
        supported("warmup", seconds(), default="delay_loop"),
        supported("connect_timeout", POSITIVE, default="5"),
        supported("alpha"),
        not_yet(
            "omega",
            FLAG,
            Severity.WARNING,
            "stopping runs no notify_down and quorum_down, as it leaves the servers in service",
        ),
        supported("quorum", integer(1), default="1"),
        supported("hysteresis", integer(0), default="0"),
        supported("quorum_up", SCRIPT, first_counts=True),
        supported("quorum_down", SCRIPT, first_counts=True),
        supported("inhibit_on_failure"),
        supported("weight", integer(1, 2**31 - 1), default="1"),
        supported("virtualhost", TEXT),
        not_yet("ha_suspend", FLAG, Severity.WARNING, "servers are checked by both directors"),
        supported("sorry_server", ENDPOINT),
        supported("sorry_server_inhibit"),
        supported("sorry_server_lvs_method", WORDS),
        supported("real_server", ENDPOINT, body="real_server", many=True),
        supported("smtp_alert", BOOL),
        ignored("snmp_name", TEXT, "there is no SNMP agent"),
        obsolete("nat_mask", "keepalived dropped it after 1.2.19"),
        obsolete("net_mask", "it never existed"),
        old_spelling("inhibit_on_fail", FLAG, "inhibit_on_failure"),
        obsolete("laddr_group_name", "it belongs to a fork of keepalived, for FULLNAT"),
    ),
    "real_server": block(
        supported("weight", integer(0, 2**31 - 1), default="that of the virtual server"),
        supported("lvs_method", WORDS, default="that of the virtual server"),
        supported("uthreshold", integer(0)),
        supported("lthreshold", integer(0)),
        supported("inhibit_on_failure", BOOL),
        old_spelling("inhibit_on_fail", BOOL, "inhibit_on_failure"),
        supported("notify_up", SCRIPT, first_counts=True),
        supported("notify_down", SCRIPT, first_counts=True),
        supported("alpha", BOOL),
        supported("retry", integer(1)),
        supported("delay_before_retry", seconds()),
        supported("warmup", seconds()),
        supported("connect_timeout", POSITIVE),
        supported("delay_loop", POSITIVE),
        supported("smtp_alert", BOOL),
        supported("virtualhost", TEXT),
        ignored("snmp_name", TEXT, "there is no SNMP agent"),
        _check("TCP_CHECK"),
        _check("HTTP_GET"),
        _check("SSL_GET"),
        _no_check("SMTP_CHECK"),
        _no_check("DNS_CHECK"),
        _no_check("MISC_CHECK"),
        _no_check("PING_CHECK"),
        _no_check("UDP_CHECK"),
        _no_check("BFD_CHECK"),
        _no_check("FILE_CHECK"),
    ),
}
