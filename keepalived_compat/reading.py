"""The way in: a path to a judged configuration and every complaint about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.judgement import Judge
from keepalived_compat.keywords import KEEPALIVED
from keepalived_compat.parser import Parser
from keepalived_compat.preprocess import Preprocessor
from keepalived_compat.section import Section
from keepalived_compat.source import DiskReader, Reader, Sources, process_environment
from keepalived_compat.tree import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read."""

    root: Section
    tree: Body
    """All that was written, also what is not used."""
    complaints: Complaints
    sources: Sources


def read(
    path: Path,
    *,
    config_id: str,
    reader: Reader | None = None,
    environment: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> Reading:
    """Read a keepalived.conf and what it includes; whatever is in the files, this raises nothing.

    `config_id` selects `@ID` lines; keepalived takes the host's name unless told otherwise. `environment` is what
    `${_ENV NAME}` finds: that of the process when the disk is read, else nothing. `seed` is of `${_RANDOM}`; it is made
    of the config-id unless given, so that a file read again means the same.
    """
    if environment is None and reader is None:
        environment = process_environment()
    complaints = Complaints()
    sources = Sources()
    preprocessor = Preprocessor(
        reader=reader or DiskReader(),
        config_id=config_id,
        complaints=complaints,
        sources=sources,
        environment=environment,
        seed=seed,
    )
    parser = Parser(grammar=KEEPALIVED, complaints=complaints)
    tree = parser.parse(preprocessor.lines(path))
    root = Judge(grammar=KEEPALIVED, complaints=complaints, sources=sources).judge(tree)
    return Reading(root=root, tree=tree, complaints=complaints, sources=sources)
