"""Who may run scripts as whom, tried as somebody who is not root."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

AS_NOBODY = """
import asyncio, os
from haxlb.linux.launch import Launcher
from haxlb.linux.track_scripts import TrackScripts
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.notification import ScriptSettings
from haxlb.model.tracking import TrackScript

os.setgroups([])
os.setgid(65534)
os.setuid(65534)

def script(user):
    return TrackScript(name="check", run=Command(argv=("/bin/true",), user=user))

async def test():
    ended = asyncio.Event()
    scripts = TrackScripts(lambda ticket, well, how: (print(how), ended.set()), print, lambda *_, **__: None)
    for user in ("daemon", ""):
        scripts.configure([script(user)], ScriptSettings())
        problem = scripts.start(1, script(user))
        if problem:
            print(problem)
        else:
            await ended.wait()
    try:
        Launcher().launch(script("daemon").run)
    except HostError as problem:
        print(problem.message)
    print("exit code", Launcher().launch(script("").run).wait())

asyncio.run(test())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_who_is_not_root_runs_scripts_as_itself_or_not_at_all() -> None:
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, check=False, cwd="/")
    refused = "only root runs scripts as another user, and it is to run as daemon"
    assert (done.stderr, done.stdout.splitlines()) == ("", [refused, "exit code 0", refused, "exit code 0"])
