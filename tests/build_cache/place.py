"""Where builds of the forwarder are kept for as long as tests run, for all workers and the daemons that they start."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from haxlb.linux.forwarder_build import PYTHON

USER_BASE = "PYTHONUSERBASE"
SHIM = Path(__file__).with_name("bcc.py")


def open_place() -> tempfile.TemporaryDirectory[str] | None:
    """From now on in the environment; None where it was before, or there is no such Python."""
    if USER_BASE in os.environ or not Path(PYTHON).exists():
        return None
    place = tempfile.TemporaryDirectory(prefix="haxlb-builds-")
    os.environ[USER_BASE] = place.name
    asked = "import site; print(site.ENABLE_USER_SITE and site.getusersitepackages() or '')"
    directory = subprocess.run([PYTHON, "-P", "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    if directory:
        Path(directory).mkdir(parents=True)
        (Path(directory) / "bcc.py").symlink_to(SHIM)
    return place


def close_place(place: tempfile.TemporaryDirectory[str]) -> None:
    del os.environ[USER_BASE]
    place.cleanup()
