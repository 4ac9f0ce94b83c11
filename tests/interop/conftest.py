from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lab import Lab

from tests.interop.stories import Story

NEEDED = ("keepalived", "tshark", "/usr/lib/frr/vrrpd")


@pytest.fixture(scope="module")
def outcome(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Story], None]]:
    """Waits for the end of a story; all stories of the module that were selected begin at once."""
    for each in NEEDED:
        if not shutil.which(each):
            pytest.fail(f"{each} is not installed: run `make setup`")
    items = [item for item in request.session.items if item.path == request.path]
    params = [item.callspec.params for item in items if hasattr(item, "callspec")]
    chosen = [each["story"] for each in params if isinstance(each.get("story"), Story)]

    def live(number: int, story: Story, directory: Path) -> None:
        with Lab(f"hxip{os.getpid()}-{number}") as lab:
            story.live(lab, directory)

    with ThreadPoolExecutor(max_workers=len(chosen)) as pool:
        begun = {
            each.name: pool.submit(live, number, each, tmp_path_factory.mktemp(each.name))
            for number, each in enumerate(chosen)
        }
        yield lambda story: begun[story.name].result(timeout=560)
