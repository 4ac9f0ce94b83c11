"""The YAML of haxlb.yml to settings. Typed by hand, so that each complaint has its line and names the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from haxlb.config.crosscheck import check_interface
from haxlb.config.settings import Settings
from haxlb.model.settings import ForwardingSettings, MqttSettings
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import did_you_mean, nearest
from keepalived_compat.preprocess import whole_file
from keepalived_compat.source import Reader, Sources, Span

_INTEGER = "tag:yaml.org,2002:int"
_BOOLEAN = "tag:yaml.org,2002:bool"
_STRING = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"
_MODES = ("auto", "native", "generic")


class SettingsDocument:
    """What is said in the file of this path."""

    def __init__(
        self, path: Path, complaints: Complaints, sources: Sources, interfaces: frozenset[str] | None, reader: Reader
    ) -> None:
        self._path = path
        self._interfaces = interfaces
        self._complaints = complaints
        self._sources = sources
        self._reader = reader
        self._meant: set[str] = set()

    def read(self, text: str) -> Settings:
        """The settings; whatever is wrong in the text is a fatal complaint."""
        root = self._root(text)
        if root is None:
            return Settings()
        sections = self._mapping(root, "haxlb.yml", ("mqtt", "forwarding", "vips", "speaker", "processes"))
        if sections is None:
            return Settings()
        return Settings(
            mqtt=self._mqtt(sections["mqtt"]) if "mqtt" in sections else None,
            forwarding=self._forwarding(sections["forwarding"]) if "forwarding" in sections else ForwardingSettings(),
            vip_lifetime_s=self._lifetime(sections["vips"]) if "vips" in sections else Settings().vip_lifetime_s,
            lock_memory=self._flag(sections, "speaker", "lock_memory", default=Settings().lock_memory),
            spare_speaker=self._flag(sections, "processes", "spare_speaker", default=Settings().spare_speaker),
        )

    def _root(self, text: str) -> yaml.Node | None:
        """The document, None when it is empty or no YAML."""
        where = whole_file(self._path)
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as problem:
            mark = problem.problem_mark or problem.context_mark
            place = self._span(mark, mark) if mark else where
            self._complaints.fatal(
                "bad-yaml",
                place,
                f"not YAML: {problem.problem or problem.context}",
                "see the indentation and the colons",
            )
        except yaml.YAMLError as problem:
            self._complaints.fatal("bad-yaml", where, f"not YAML: {' '.join(str(problem).split())}")
        except RecursionError:
            self._complaints.fatal("bad-yaml", where, "not YAML that can be read: it is nested too deeply")
        return None

    def _span(self, start: Any, end: Any) -> Span:
        line, column = start.line + 1, start.column + 1
        end_column = end.column + 1 if end.line == start.line else column
        return Span(str(self._path), line, column, max(end_column, column + 1))

    def _place(self, node: yaml.Node) -> Span:
        return self._span(node.start_mark, node.end_mark)

    def _mapping(self, node: yaml.Node, name: str, known: tuple[str, ...]) -> dict[str, yaml.Node] | None:
        """The values of a mapping by key; unknown and repeated keys are complained of."""
        if node.tag == _NULL:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._complaints.fatal(
                "bad-setting", self._place(node), f"{name} must hold keys and values", f"its keys: {', '.join(known)}"
            )
            return None
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            text = key.value if isinstance(key, yaml.ScalarNode) else ""
            if text not in known:
                meant = nearest(text, known)
                hint = f"did you mean `{meant}`?" if meant else f"known: {', '.join(known)}"
                self._meant.add(f"{name}.{meant}")
                self._complaints.fatal("unknown-setting", self._place(key), f"{name} has no key `{text[:60]}`", hint)
            elif text in found:
                self._complaints.fatal("given-twice", self._place(key), f"`{text}` stands twice in {name}", "keep one")
            else:
                found[text] = value
        return found

    def _mqtt(self, node: yaml.Node) -> MqttSettings | None:
        keys = ("host", "port", "username", "password", "password_file", "tls", "site", "keepalive_s")
        found = self._mapping(node, "mqtt", keys)
        if found is None:
            return None
        take = _Values(found, "mqtt", self._complaints, self._place)
        host = take.text("host")
        if host is None and "host" not in found and "mqtt.host" not in self._meant:
            self._complaints.fatal(
                "missing-setting", self._place(node), "mqtt names no host", "add `host: ADDRESS` of the broker"
            )
        if "password" in found and "password_file" in found:
            self._complaints.fatal(
                "bad-setting",
                self._place(found["password_file"]),
                "mqtt has both password and password_file",
                "keep one",
            )
        if "password" in found:
            self._sources.hide(self._place(found["password"]))
        password = take.text("password")
        if "password_file" in found:
            password = self._password(found["password_file"], take.text("password_file"))
        site = take.text("site") or "default"
        if set(site) & set("#+/") or not site.isprintable():
            self._complaints.fatal(
                "bad-setting", self._place(found["site"]), "mqtt.site is one level of a topic", "no `/`, `+` or `#`"
            )
        return MqttSettings(
            host=host or "",
            port=take.integer("port", 1883, 1, 65535),
            username=take.text("username"),
            password=password,
            tls=take.boolean("tls", default=False),
            site=site,
            keepalive_s=take.integer("keepalive_s", 10, 1, 65535),
        )

    def _lifetime(self, node: yaml.Node) -> int:
        """Seconds. The speaker renews an address four times in its life: more than an hour is no dead man's switch."""
        default = Settings().vip_lifetime_s
        found = self._mapping(node, "vips", ("lifetime",))
        take = _Values(found or {}, "vips", self._complaints, self._place)
        return take.integer("lifetime", default, 0, 3600)

    def _flag(self, sections: dict[str, yaml.Node], name: str, key: str, *, default: bool) -> bool:
        """The one key of a section."""
        if name not in sections:
            return default
        found = self._mapping(sections[name], name, (key,))
        return _Values(found or {}, name, self._complaints, self._place).boolean(key, default=default)

    def _password(self, node: yaml.Node, name: str | None) -> str | None:
        if name is None:
            return None
        try:
            content = self._reader.read(self._path.parent / name).decode().strip("\r\n")
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
            self._complaints.fatal(
                "unreadable-file",
                self._place(node),
                f"cannot read mqtt.password_file: {reason}",
                "a file with the password on its first line, readable by the daemon",
            )
            return None
        return content.split("\n")[0]

    def _forwarding(self, node: yaml.Node) -> ForwardingSettings:
        default = ForwardingSettings()
        found = self._mapping(node, "forwarding", ("interfaces", "mode", "flow_buckets_log2", "max_services"))
        if found is None:
            return default
        take = _Values(found, "forwarding", self._complaints, self._place)
        listed = found.get("interfaces")
        if self._interfaces is not None and isinstance(listed, yaml.SequenceNode):
            for each in listed.value:
                if isinstance(each, yaml.ScalarNode):
                    place = self._place(each)
                    check_interface(
                        each.value, "forwarding", place, existing=self._interfaces, complaints=self._complaints
                    )
        return ForwardingSettings(
            interfaces=take.texts("interfaces"),
            mode=take.choice("mode", default.mode, _MODES),
            flow_buckets_log2=take.integer("flow_buckets_log2", default.flow_buckets_log2, 4, 24),
            max_services=take.integer("max_services", default.max_services, 1, 65536),
        )


class _Values:
    """Typed values of one mapping; a value of another type is complained of, and the default taken."""

    def __init__(
        self, nodes: dict[str, yaml.Node], name: str, complaints: Complaints, place: Callable[[yaml.Node], Span]
    ) -> None:
        self._nodes = nodes
        self._name = name
        self._complaints = complaints
        self._place = place

    def _refuse(self, key: str, node: yaml.Node, wanted: str, hint: str) -> None:
        self._complaints.fatal("bad-setting", self._place(node), f"{self._name}.{key} must be {wanted}", hint)

    def text(self, key: str) -> str | None:
        node = self._nodes.get(key)
        if node is None or node.tag == _NULL:
            return None
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            self._refuse(key, node, "a text", f"write `{key}: TEXT`")
            return None
        return str(node.value)

    def texts(self, key: str) -> tuple[str, ...]:
        node = self._nodes.get(key)
        if node is None or node.tag == _NULL:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            self._refuse(key, node, "a list", f"write `{key}: [eth0]`")
            return ()
        return tuple(self._elements(key, node))

    def _elements(self, key: str, node: yaml.SequenceNode) -> Iterator[str]:
        for each in node.value:
            if isinstance(each, yaml.ScalarNode) and each.tag == _STRING and each.value:
                yield each.value
            else:
                self._refuse(key, each, "a list of texts", f"write `{key}: [eth0]`")

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        node = self._nodes.get(key)
        if node is None:
            return default
        text = node.value if isinstance(node, yaml.ScalarNode) and node.tag == _INTEGER else ""
        if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):  # noqa: PLR2004
            self._refuse(key, node, "a whole number", f"{low} to {high}, without quotes; the default is {default}")
            return default
        return int(text)

    def boolean(self, key: str, *, default: bool) -> bool:
        node = self._nodes.get(key)
        if node is None:
            return default
        if not isinstance(node, yaml.ScalarNode) or node.tag != _BOOLEAN:
            self._refuse(key, node, "true or false", f"the default is {str(default).lower()}")
            return default
        return str(node.value).lower() in ("true", "yes", "on")

    def choice(self, key: str, default: str, words: tuple[str, ...]) -> str:
        node = self._nodes.get(key)
        if node is None:
            return default
        text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        if text not in words:
            near = did_you_mean(text, words)
            hint = f"{near + ' ' if near else ''}one of {', '.join(words)}; the default is {default}"
            self._complaints.fatal(
                "bad-setting", self._place(node), f"{self._name}.{key}: `{text[:60]}` is not known", hint
            )
            return default
        return text
