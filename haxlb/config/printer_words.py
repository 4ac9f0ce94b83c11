"""Words of keepalived.conf, quoted where they must be."""

from __future__ import annotations

import re

from haxlb.model.errors import ConfigError

_PLAIN = re.compile(r"[\w./:@%+=,-]+", re.ASCII)


def word(text: str) -> str:
    """The text as one word. Raises ConfigError for a double quote in it, which no word can hold."""
    if '"' in text:
        raise ConfigError(f'keepalived.conf cannot say `{text}`: a word holds no `"`')
    return text if _PLAIN.fullmatch(text) else f'"{text}"'
