"""What is planned within keywords that are done for the rest. Choices that are not offered need no row here."""

from __future__ import annotations

from collections.abc import Mapping

_IPV6 = "IPv6"
_METHODS = "NAT, TUN"
_CHECKS_IPV6 = {"connect_ip": _IPV6, "bindto": _IPV6}

PARTLY: Mapping[str, Mapping[str, str]] = {
    "": {"virtual_server": "fwmark, group, IPv6, all ports (without PORT)"},
    "vrrp_instance": {
        "use_vmac": "virtual servers on its addresses",
        "use_vmac_addr": "virtual servers on its addresses",
    },
    "virtual_server": {
        "lb_kind": _METHODS,
        "lvs_method": _METHODS,
        "persistence_timeout": "persistence other than that of sh and mh",
        "sorry_server": _IPV6,
        "sorry_server_lvs_method": _METHODS,
        "real_server": _IPV6,
    },
    "url": {
        "regex_options": "allow_empty_class, alt_bsux, alt_circumflex, alt_verbnames, dollar_endonly, dupnames,"
        " firstline, match_unset_backref, never_backslash_c, never_utf, no_auto_capture, ungreedy, use_offset_limit"
    },
    "real_server": {"lvs_method": _METHODS},
    **dict.fromkeys(("TCP_CHECK", "HTTP_GET", "SSL_GET"), _CHECKS_IPV6),
}
