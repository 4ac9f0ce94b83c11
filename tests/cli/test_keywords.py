"""`haxlb keywords`."""

import json

from click.testing import CliRunner

from haxlb.cli.main import haxlb


def keywords(*words):
    return CliRunner().invoke(haxlb, ["keywords", *words])


def test_what_is_planned_comes_with_the_block_that_it_is_planned_for():
    lines = keywords("--planned").stdout.splitlines()
    said = [line for line in lines if line.startswith("  ")]
    assert said
    assert all("planned: " in line for line in said)
    assert lines.index("real_server:") < next(n for n, line in enumerate(lines) if line.startswith("  PING_CHECK"))


def test_what_is_planned_of_a_word():
    found = json.loads(keywords("HTTP_GET", "--planned", "--json").stdout)["keywords"]
    assert {each["block"] for each in found} == {"HTTP_GET"}
    assert {"bind_if", "fwmark"} <= {each["keyword"] for each in found}
    assert "connect_port" not in {each["keyword"] for each in found}


def test_a_word_that_is_none_gets_the_nearest():
    result = keywords("vrrp_instanse")
    assert result.exit_code == 2
    assert "did you mean `vrrp_instance`?" in result.stderr


def test_a_value_that_is_cut_is_said():
    (line,) = [each for each in keywords("real_server").stdout.splitlines() if each.startswith("  weight ")]
    assert line.endswith("; more than 65535 is taken as 65535")
    weights = json.loads(keywords("weight", "--json").stdout)["keywords"]
    limits = {each["block"]: each["limit"] for each in weights}
    assert limits["virtual_server"] == limits["real_server"] == "more than 65535 is taken as 65535"
    assert limits["vrrp_script"] == ""
