"""`haxlb show vrrp` of a real daemon: what the speaker fills in arrives."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from tests.netns.standin import eventually

pytestmark = pytest.mark.netns

HAXLB = Path(sys.executable).with_name("haxlb")
CONFIGURATION = """
global_defs {
    router_id d1
}
vrrp_instance VI_1 {
    version 3
    state BACKUP
    interface eth0
    virtual_router_id 51
    priority 150
    advert_int 0.1
    virtual_ipaddress {
        10.9.0.100/32
    }
    virtual_ipaddress_excluded {
        10.9.0.101/32
    }
}
"""


@pytest.fixture
def host() -> Iterator[Host]:
    with Lab(f"hxshow{os.getpid()}") as lab:
        yield lab.host("d1", "10.9.0.1/24")


def test_a_running_director(host: Host, tmp_path: Path) -> None:
    (tmp_path / "keepalived.conf").write_text(CONFIGURATION)
    options = ("--runtime-dir", str(tmp_path / "run"))
    files = ("-f", str(tmp_path / "keepalived.conf"), "--settings", str(tmp_path / "absent.yml"))
    with (tmp_path / "log").open("wb") as log:
        host.start(str(HAXLB), "run", *files, *options, stdout=log, stderr=log)

    def shown() -> dict[str, Any]:
        done = host.run(str(HAXLB), "show", "vrrp", "VI_1", "--json", *options, check=False)
        document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return document

    def master() -> dict[str, Any]:
        """A document that was made as soon as the speaker had answered: its next advert is still to come."""
        document = shown()
        instance = document["instances"][0] if document else {}
        due = instance.get("role") == "MASTER" and 0 <= (instance["next_at"] or 0) - document["at"] < 0.2
        return document if due else {}

    document = eventually(master, "it is MASTER, and its next advert is due soon")
    (instance,) = document["instances"]
    assert [each["after"] for each in instance["latest"]] == ["BACKUP", "MASTER"]
    assert instance["latest"][-1]["reason"] == instance["reason"]
    assert instance["latest"][-1]["at"] == pytest.approx(instance["since_at"], abs=0.001)
    assert (instance["next_what"], instance["family"], instance["base_priority"]) == ("advert", 4, 150)
    assert (instance["source"], instance["excluded_vips"]) == ("10.9.0.1", ["10.9.0.101/32"])
    assert document["lag"]["wakes"] > 0
    text = eventually(
        lambda: (it := host.run(str(HAXLB), "show", "vrrp", *options).stdout) and "advert in 0." in it and it,
        "the text says when the next advert is due",
    )
    for words in ("VI_1  MASTER for ", "  priority  150 = 150 base\n", "  next      advert in 0.", "BACKUP -> MASTER"):
        assert words in text
