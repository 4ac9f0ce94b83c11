"""What is planned within keywords that are done for the rest. Choices that are not offered need no row here."""

from __future__ import annotations

from collections.abc import Mapping

PARTLY: Mapping[str, Mapping[str, str]] = {
    "url": {
        "regex_options": "allow_empty_class, alt_bsux, alt_circumflex, alt_verbnames, dollar_endonly, dupnames,"
        " firstline, match_unset_backref, never_backslash_c, never_utf, no_auto_capture, ungreedy, use_offset_limit"
    },
}
