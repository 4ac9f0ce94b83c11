"""`haxlb config`, as people and scripts call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from haxlb.cli.config import config
from haxlb.config import load

DATA = Path(__file__).parents[1] / "config" / "data"


@pytest.fixture
def run(tmp_path):
    def of(*arguments: str, path: Path = DATA / "master.conf", settings: str = ""):
        other = tmp_path / "haxlb.yml"
        other.write_text(settings)
        return CliRunner().invoke(config, ["-f", str(path), "--settings", str(other), *arguments])

    return of


def test_the_keepalived_form_loads_again_to_the_same(run, tmp_path):
    result = run("--secrets")
    assert result.exit_code == 0
    printed = tmp_path / "printed.conf"
    printed.write_text(result.stdout)
    assert (
        load(printed, settings=None, node="x").config == load(DATA / "master.conf", settings=None, node="host").config
    )


@pytest.mark.parametrize("style", ["keepalived", "json", "yaml"])
def test_passwords_are_starred_unless_asked_for(run, style):
    settings = "mqtt:\n  host: broker\n  password: br0ker\n"
    shown = run("--format", style, settings=settings).stdout
    assert "s3cr3t" not in shown
    assert "br0ker" not in shown
    assert "********" in shown
    assert "s3cr3t" in run("--format", style, "--secrets", settings=settings).stdout


def test_json_and_yaml_are_one_document(run):
    document = json.loads(run("--format", "json").stdout)
    assert document["schema"] == "haxlb.config/1"
    assert document["config"]["instances"][0]["priority"] == 150
    assert document["config"]["forwarding"]["mode"] == "auto"
    assert yaml.safe_load(run("--format", "yaml").stdout) == document


def test_a_configuration_that_cannot_be_used(run, tmp_path):
    path = tmp_path / "bad.conf"
    path.write_text("vrrp_instance A {\n interface eth0\n}\n")
    result = run(path=path)
    assert result.stdout == ""
    assert result.exception.exit_code == 4
    assert "A has no virtual_router_id" in str(result.exception)


def test_what_was_left_out_is_said(run, tmp_path):
    path = tmp_path / "part.conf"
    path.write_text("virtual_server 10.0.0.1 80 {\n lb_kind TUN\n}\n")
    result = run(path=path)
    assert result.exit_code == 0
    assert "not all that is written is used" in result.stderr


def test_the_config_id_selects_lines(run, tmp_path):
    path = tmp_path / "two.conf"
    path.write_text("global_defs {\n @one router_id first\n @two router_id second\n}\n")
    assert "router_id second" in run("-i", "two", path=path).stdout


@pytest.fixture
def differ(tmp_path):
    def of(before: str, after: str, *arguments: str):
        for name, text in (("a", before), ("b", after)):
            (tmp_path / name).write_text(text)
        places = [str(tmp_path / "a"), str(tmp_path / "b")]
        return CliRunner().invoke(config, ["diff", *places, "--settings", str(tmp_path / "none.yml"), *arguments])

    return of


INSTANCE = "global_defs {\n router_id a\n}\nvrrp_instance A {\n interface eth0\n virtual_router_id %d\n priority %d\n"
INSTANCE += " virtual_ipaddress {\n 10.0.0.1/24\n }\n}\n"


def test_a_difference_as_text(differ):
    result = differ(INSTANCE % (1, 100), INSTANCE % (1, 150))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "vrrp_instance A: retuned: priority 100 -> 150",
        "    it keeps its state",
        "    as MASTER it sends an advert at once",
        "    as BACKUP it takes over after 3.414 s of silence, not 3.609 s",
    ]


def test_no_difference(differ):
    result = differ(INSTANCE % (1, 100), INSTANCE % (1, 100))
    assert result.stdout.splitlines() == ["vrrp_instance kept, not touched: A", "nothing changes"]


def test_a_difference_as_json(differ):
    document = json.loads(differ(INSTANCE % (1, 100), INSTANCE % (2, 100), "--json").stdout)
    assert document["schema"] == "haxlb.config-diff/1"
    assert document["refused"] is False
    (found,) = document["consequences"]
    assert (found["kind"], found["name"], found["fate"]) == ("vrrp_instance", "A", "recreated")
    assert found["reason"] == "virtual_router_id 1 -> 2"


def test_a_difference_to_what_cannot_be_used(differ):
    result = differ(INSTANCE % (1, 100), INSTANCE % (0, 100))
    assert result.exception.exit_code == 4


def test_a_difference_to_a_file_that_is_not_there(tmp_path):
    (tmp_path / "a").write_text(INSTANCE % (1, 100))
    missing = tmp_path / "nope.conf"
    result = CliRunner().invoke(config, ["diff", str(tmp_path / "a"), str(missing)])
    assert result.exception.exit_code == 4
    said = "cannot read the configuration: No such file or directory (see its path, and that it may be read)"
    assert str(result.exception) == f"{missing}:1:1: {said}"


def test_a_misspelt_subcommand_gets_the_nearest(run):
    result = run("dif", "a", "b")
    assert result.exit_code == 2
    assert "No such command 'dif'. did you mean `diff`?" in result.stderr


def test_the_key_of_an_authentication_header_is_a_secret(run, tmp_path):
    path = tmp_path / "ah.conf"
    path.write_text((DATA / "master.conf").read_text().replace("auth_type PASS", "auth_type AH"))
    for style in ("keepalived", "json", "yaml"):
        shown = run("--format", style, path=path).stdout
        assert "s3cr3t" not in shown
        assert "AH" in shown or "auth_ah" in shown
