"""Run every benchmark of this package that is named, or all: a module with a `measure()` that yields rows."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import tests.bench
from haxlb.model.errors import HaxlbError


def main(names: list[str]) -> int:
    found = sorted(module.name for module in pkgutil.iter_modules(tests.bench.__path__) if module.name[0] != "_")
    unknown = set(names) - set(found)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(found)}", file=sys.stderr)
        return 2
    code = 0
    for name in names or found:
        measure = getattr(importlib.import_module(f"tests.bench.{name}"), "measure", None)
        if measure is None:
            continue
        try:
            for row in measure():
                print(json.dumps({"bench": name, **row}), flush=True)
        except HaxlbError as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            code = problem.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
