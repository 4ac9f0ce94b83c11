"""haxlb.yml: what keepalived.conf cannot say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from haxlb.model.settings import ForwardingSettings, MqttSettings
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.preprocess import whole_file
from keepalived_compat.source import DiskReader, Reader, Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of haxlb.yml."""

    mqtt: MqttSettings | None = None
    forwarding: ForwardingSettings = field(default_factory=ForwardingSettings)
    vip_lifetime_s: int = 2
    """`vips: lifetime:`; 0 = for ever."""
    lock_memory: bool = True
    """`speaker: lock_memory:`."""
    spare_speaker: bool = True
    """`processes: spare_speaker:`."""


def read_settings(
    path: Path,
    *,
    complaints: Complaints,
    sources: Sources,
    interfaces: frozenset[str] | None = None,
    reader: Reader | None = None,
) -> Settings:
    """Read haxlb.yml. A file that is not there means the defaults; whatever is wrong is a fatal complaint.

    `interfaces` are those that exist on this host; None = it is not looked at.
    """
    reader = reader or DiskReader()
    text = _text(path, reader, complaints)
    if text is None:
        return Settings()
    sources.add(str(path), text.split("\n"))
    # Only here: PyYAML takes ten milliseconds to import, and a configuration without this file is common.
    from haxlb.config.settings_document import SettingsDocument

    return SettingsDocument(path, complaints, sources, interfaces, reader).read(text)


def _text(path: Path, reader: Reader, complaints: Complaints) -> str | None:
    """What is in the file, None when there is none or it cannot be read."""
    where = whole_file(path)
    try:
        return reader.read(path).decode()
    except FileNotFoundError:
        return None
    except OSError as problem:
        complaints.fatal("unreadable-file", where, f"cannot read the settings: {problem.strerror or problem}")
    except UnicodeDecodeError:
        complaints.fatal("not-utf-8", where, "the settings are not UTF-8 text")
    except ValueError as problem:
        complaints.fatal("unreadable-file", where, f"not a path: {problem}")
    return None
