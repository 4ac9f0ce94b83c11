"""What `make test` runs: all tests, four at a time; and the few that fail there once more, by themselves.

Many tests play with real daemons whose timers are of milliseconds, and four of them share what the machine has: what
fails there and not alone has lost its turn. It is said so at the end, to be looked into; a test that fails alone fails.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

BESIDE_OTHERS: Final = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
MOST: Final = 3
"""More than this many have not all been unlucky."""
FAILED: Final = 1


def main(arguments: list[str]) -> int:
    """The exit code: pytest's. `arguments` are pytest's, too."""
    with tempfile.TemporaryDirectory(prefix="haxlb-tests-") as cache:
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}"]
        code = run([*command, *BESIDE_OTHERS, *arguments])
        failed = failed_tests(Path(cache)) if code == FAILED else []
        # Without names pytest would run all of them again.
        if not 0 < len(failed) <= MOST:
            return code
        print("\nOnce more, by themselves:", *failed, sep="\n  ", flush=True)
        code = run([*command, *arguments, "-n", "0", "--last-failed"])
        if code == 0:
            print(
                "\nFailed beside other tests, and not alone (a defect, of the test or of haxlb):", *failed, sep="\n  "
            )
        return code


def run(command: list[str]) -> int:
    """The exit code. Ctrl-C is for pytest, which ends by itself when it has removed what its tests have made."""
    former = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, former)


def failed_tests(cache: Path) -> list[str]:
    """By name; none where pytest was told to write nothing down (`-p no:cacheprovider`)."""
    names = cache / "v/cache/lastfailed"
    return sorted(json.loads(names.read_text())) if names.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
