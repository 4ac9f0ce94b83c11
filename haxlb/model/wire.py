"""Dataclasses to JSON values and back, driven by their type hints.

Serves the pipes between our processes, the control socket and `--json`. A union of dataclasses is tagged
with `"type": "<class name>"`; anything that does not fit raises PeerError, never anything else.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, TypeVar, Union, get_args, get_origin

from haxlb.model.errors import PeerError

T = TypeVar("T")
_PLAIN = frozenset({str, int, float, bool, types.NoneType})


def to_json(value: Any, *, tag: bool = False, lean: bool = False) -> Any:
    """Turn a value of the model into what `json.dumps` takes.

    `tag` adds the class name of a dataclass; `lean` leaves out the fields that have their default, for `from_json`.
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    layout = _layout(kind)
    if layout is not None:
        out: dict[str, Any] = {"type": kind.__name__} if tag else {}
        for name, tagged, default in layout:
            item = getattr(value, name)
            if not lean or item != default:
                out[name] = to_json(item, tag=tagged, lean=lean)
        return out
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, IPv4Address | IPv6Address):
        return str(value)
    if isinstance(value, dict):
        return {str(key): to_json(each, lean=lean) for key, each in value.items()}
    return [to_json(each, tag=tag, lean=lean) for each in value] if isinstance(value, tuple | list) else value


def from_json(kind: type[T] | Any, data: Any) -> T:
    """Build a value of `kind` (a dataclass, or a union of dataclasses) from what `to_json` made of it.

    Raises PeerError (`malformed_message`) where the data does not fit.
    """
    try:
        built: T = _reader(typing.cast("Any", kind))(data)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise PeerError("malformed_message", f"not a {kind}: {problem}") from problem
    return built


@cache
def _layout(kind: type) -> tuple[tuple[str, bool, Any], ...] | None:
    """Of a dataclass its fields, whether what is in them is tagged, and their defaults; None for anything else.

    Made once: the status of 250 instances, put together in the speaker, would hold its adverts up for 20 ms.
    """
    if not is_dataclass(kind):
        return None
    hints = _hints(kind)
    return tuple((each.name, _is_union_of_dataclasses(hints[each.name]), each.default) for each in fields(kind))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _element(hint: Any) -> Any:
    """The element's hint of a variadic tuple or list, else the hint itself."""
    return get_args(hint)[0] if get_origin(hint) in (tuple, list) and get_args(hint) else hint


def _is_union_of_dataclasses(hint: Any) -> bool:
    hint = _element(hint)
    if get_origin(hint) not in (Union, types.UnionType):
        return False
    return sum(is_dataclass(arm) for arm in get_args(hint)) > 1


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:  # noqa: PLR0911 - a dispatch
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union_reader(args)
    if origin in (tuple, list):
        return _sequence_reader(origin, args)
    if origin is dict:
        value = _reader(args[1])
        return lambda data: {str(key): value(each) for key, each in data.items()}
    if is_dataclass(hint):
        return _dataclass_reader(hint)
    if isinstance(hint, type) and issubclass(hint, Enum | IPv4Address | IPv6Address):
        return hint
    if hint in (int, float, str, bool):
        return _scalar_reader(hint)
    return lambda data: data


def _scalar_reader(hint: type) -> Callable[[Any], Any]:
    accepted = (int, float) if hint is float else (hint,)

    def read(data: Any) -> Any:
        if not isinstance(data, accepted) or (isinstance(data, bool) and hint is not bool):
            raise TypeError(f"{data!r} is not of type {hint.__name__}")
        return data

    return read


def _text(data: Any) -> str:
    # ip_address would take a number, too.
    if not isinstance(data, str):
        raise TypeError(f"{data!r} is not an address")
    return data


def _sequence_reader(origin: Any, args: tuple[Any, ...]) -> Callable[[Any], Any]:
    if origin is tuple and args and args[-1] is not Ellipsis:
        each_reader = [_reader(arg) for arg in args]
        return lambda data: tuple(read(item) for read, item in zip(each_reader, data, strict=True))
    element = _reader(args[0])
    return lambda data: origin(element(item) for item in _listed(data))


def _listed(data: Any) -> list[Any]:
    if not isinstance(data, list | tuple):
        raise TypeError(f"{data!r} is not a list")
    return list(data)


def _union_reader(args: tuple[Any, ...]) -> Callable[[Any], Any]:
    arms = [arg for arg in args if arg is not types.NoneType]
    optional = len(arms) < len(args)
    if set(arms) == {IPv4Address, IPv6Address}:
        return lambda data: None if data is None and optional else ip_address(_text(data))
    tagged: dict[str, Any] = {arm.__name__: arm for arm in arms if isinstance(arm, type) and is_dataclass(arm)}

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        if len(arms) == 1:
            return _reader(arms[0])(data)
        return _reader(tagged[data["type"]])(data)

    return read


def _dataclass_reader(kind: Any) -> Callable[[Any], Any]:
    hints = _hints(kind)
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind)}
    required = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise TypeError(f"{data!r} is not an object")
        missing = required - data.keys()
        if missing:
            raise KeyError(f"{kind.__name__} lacks {', '.join(sorted(missing))}")
        return kind(**{name: reader(data[name]) for name, reader in readers.items() if name in data})

    return read
