"""The packet filter where the process has come to a limit."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from haxlb.linux.firewall import Firewall, name_of_table
from haxlb.model.errors import HostError

VIP = IPv4Address("192.0.2.1")


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    """What is open stays so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_table_is_called_by_the_runtime_directory_however_that_is_written(tmp_path: Path) -> None:
    assert name_of_table(Path("/run/haxlb")) == name_of_table(Path("/run/x/../haxlb")) == "haxlb"
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.symlink_to(one)
    assert re.fullmatch("haxlb_[0-9a-f]{8}", name_of_table(one))
    assert name_of_table(one) == name_of_table(two)
    assert name_of_table(one) != name_of_table(tmp_path / "three")


def test_without_descriptors_there_is_a_problem_and_no_crash() -> None:
    problems: list[HostError | None] = []

    async def steps() -> None:
        firewall = Firewall(problems.append, nft="/nonexistent")
        with no_more_descriptors():
            firewall.refuse((VIP,))
            await firewall.settled()
            firewall.refuse_at_once((VIP,), ())

    asyncio.run(asyncio.wait_for(steps(), 60))
    assert [str(each).partition(" (")[0] for each in problems] == ["no_accept is not in force: Too many open files"] * 2


def test_what_has_failed_is_tried_again_by_the_next_order_like_it() -> None:
    problems: list[HostError | None] = []

    async def steps() -> None:
        firewall = Firewall(problems.append, nft="/nonexistent")
        for _ in range(2):
            firewall.refuse((VIP,))
            await firewall.settled()
        assert not firewall.restore(), "it was never there"

    asyncio.run(asyncio.wait_for(steps(), 60))
    assert len(problems) == 2
