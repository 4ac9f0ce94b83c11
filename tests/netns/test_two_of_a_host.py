"""Two haxlb in one network namespace, with a runtime directory each: what they share, and what they must not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from haxlb.model.instance import Role
from tests.netns.site import Director, Site
from tests.netns.standin import eventually

pytestmark = [pytest.mark.netns]


def instances(*vrids: int) -> str:
    return "".join(
        f"""
vrrp_instance VI_{vrid} {{
    version 3
    interface eth0
    virtual_router_id {vrid}
    priority 100
    advert_int 0.1
    no_accept
    virtual_ipaddress {{
        10.8.0.{vrid}/24
    }}
}}
"""
        for vrid in vrids
    )


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Director, Director]]:
    """Running, both MASTER: of 51 and 52, and of 53."""
    site = Site(tmp_path)
    try:
        one = site.director("lb1", 100)
        two = Director(one.host, tmp_path / "other", instances(53))
        site.directors.append(two)
        one.config.write_text(instances(51, 52))
        for each in (one, two):
            each.start().becomes(Role.MASTER)
        yield one, two
    finally:
        site.close()


def roles(director: Director) -> list[Role]:
    return [each.role for each in director.answered().instances]


def tables(director: Director) -> int:
    return director.host.run("nft", "list", "tables").stdout.count("table inet haxlb_")


def test_a_virtual_router_goes_from_one_to_the_other_by_reloads(pair: tuple[Director, Director]) -> None:
    one, two = pair
    two.config.write_text(instances(52, 53))
    refused = two.cli("reload")
    assert refused.returncode == 71
    assert f"another haxlb runs VRID 52 on eth0 of this host: pid {one.process.pid}" in refused.stderr  # type: ignore[union-attr]
    assert "Traceback" not in refused.stderr
    two.becomes(Role.MASTER)  # the old configuration runs on
    one.config.write_text(instances(51))
    assert one.cli("reload").returncode == 0
    assert two.cli("reload").returncode == 0
    eventually(lambda: roles(two) == [Role.MASTER, Role.MASTER], "both are MASTER")
    one.config.write_text(instances(51, 52))
    assert one.cli("reload").returncode == 71
    # What is killed holds nothing.
    assert two.process is not None
    two.process.kill()
    two.process.wait(timeout=60)
    eventually(lambda: one.cli("reload").returncode == 0, "its virtual routers are free")


def test_each_has_a_packet_filter_of_its_own(pair: tuple[Director, Director]) -> None:
    one, two = pair
    eventually(lambda: tables(one) == 2, "two tables")
    assert two.stop() == 0
    assert tables(one) == 1
    listed = one.host.run("nft", "list", "ruleset").stdout
    assert "10.8.0.51, 10.8.0.52" in listed
    assert "10.8.0.53" not in listed
    assert one.stop() == 0
    assert tables(one) == 0
