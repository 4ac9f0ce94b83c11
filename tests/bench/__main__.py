"""Run every benchmark of this package that is named, or all: a module with a `measure()` that yields rows.

`--list` names them, with what they measure.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import tests.bench
from haxlb.model.errors import HaxlbError

DEPLOY = Path(__file__).parents[2] / "deploy"


def main(names: list[str]) -> int:
    # As pytest does for the tests: some are measured on the stage of the demo.
    sys.path.append(str(DEPLOY))
    found = sorted(module.name for module in pkgutil.iter_modules(tests.bench.__path__) if module.name[0] != "_")
    if names == ["--list"]:
        for name in found:
            print(f"{name:14} {(importlib.import_module(f'tests.bench.{name}').__doc__ or '').partition(chr(10))[0]}")
        return 0
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
