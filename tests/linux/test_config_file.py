"""The two files on disk, as the daemon reads them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from haxlb.daemon.supervisor_ports import RefusedConfig
from haxlb.linux.config_file import ConfigFile

CONF = "vrrp_instance A {\n interface lo\n virtual_router_id 1\n virtual_ipaddress {\n 10.0.0.1/24\n }\n}\n"


def test_a_refusal_names_the_file_that_is_wrong(tmp_path):
    path, settings = tmp_path / "keepalived.conf", tmp_path / "haxlb.yml"
    path.write_text(CONF)
    settings.write_text("mqtt:\n  host: x\n  port: 0\n")
    with pytest.raises(RefusedConfig) as refused:
        ConfigFile(path, settings).load_now()
    assert refused.value.message == f"{settings}: 1 fatal"


@pytest.mark.parametrize("which", ["keepalived.conf", "haxlb.yml"])
def test_a_pipe_that_nobody_writes_to_is_refused_instead_of_waited_for(tmp_path: Path, which: str) -> None:
    conf, settings = tmp_path / "keepalived.conf", tmp_path / "haxlb.yml"
    conf.write_text("global_defs {\n}\n")
    settings.write_text("")
    (tmp_path / which).unlink()
    os.mkfifo(tmp_path / which)
    with pytest.raises(RefusedConfig, match=f"{which} is a pipe"):
        ConfigFile(conf, settings).load_now()
