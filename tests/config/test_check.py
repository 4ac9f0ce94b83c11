"""`haxlb check`, as scripts and people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from haxlb.cli.check import check

DATA = Path(__file__).parent / "data"


@pytest.fixture
def run(tmp_path):
    def of(text: str, *arguments: str):
        path = tmp_path / "keepalived.conf"
        path.write_text(text)
        settings = tmp_path / "haxlb.yml"
        settings.touch()
        return CliRunner().invoke(check, ["-f", str(path), "--settings", str(settings), *arguments])

    return of


INSTANCE = "vrrp_instance A {\n interface %s\n virtual_router_id %s\n virtual_ipaddress {\n 10.0.0.1/24\n }\n}\n"


@pytest.mark.parametrize(
    ("text", "code", "last"),
    [
        (INSTANCE % ("lo", 1), 0, "no complaints"),
        (INSTANCE % ("lo", 1) + "global_defs {\n use_vmac\n enable_traps\n}\n", 5, "1 error, 1 warning"),
        (INSTANCE % ("lo", 1) + "global_defs {\n enable_traps\n process_names\n}\n", 0, "1 warning, 1 note"),
        ("! nothing\n", 0, "1 warning"),
        (INSTANCE % ("lo", 0), 4, "1 fatal"),
    ],
)
def test_exit_codes_and_the_summary(run, text, code, last):
    result = run(text)
    assert result.exit_code == code
    assert result.output.splitlines()[-1].endswith(f"keepalived.conf: {last}")


def test_a_complaint_has_its_line_a_caret_and_a_hint(run, tmp_path):
    result = run(INSTANCE % ("lo", 300), "--no-interfaces")
    assert result.output.splitlines() == [
        f"{tmp_path}/keepalived.conf:3:20: fatal[bad-value]: virtual_router_id: `300` is out of range",
        " 3 |  virtual_router_id 300",
        "   |                    ^^^",
        "   = a whole number, 1 to 255",
        f"{tmp_path}/keepalived.conf: 1 fatal",
    ]


def test_json(run, tmp_path):
    result = run(INSTANCE % ("lo", 300), "--json")
    assert result.exit_code == 4
    assert json.loads(result.output) == {
        "schema": "haxlb.check/1",
        "diagnostics": [
            {
                "code": "bad-value",
                "severity": "fatal",
                "file": f"{tmp_path}/keepalived.conf",
                "line": 3,
                "column": 20,
                "end_column": 23,
                "message": "virtual_router_id: `300` is out of range",
                "hint": "a whole number, 1 to 255",
            }
        ],
    }


def test_json_without_complaints(run):
    result = run(INSTANCE % ("lo", 1), "--json")
    assert (result.exit_code, json.loads(result.output)) == (0, {"schema": "haxlb.check/1", "diagnostics": []})


def test_a_missing_interface_is_a_warning_that_can_be_switched_off(run):
    text = INSTANCE % ("nosuch0", 1)
    result = run(text)
    assert result.exit_code == 0
    assert "warning[no-such-interface]: interface nosuch0 of A does not exist on this host" in result.output
    assert "`haxlb run` refuses it on this host" in result.output
    assert "no complaints" in run(text, "--no-interfaces").output


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to somebody else")
def test_a_file_that_may_not_be_read_is_a_diagnostic_too(tmp_path):
    path = tmp_path / "keepalived.conf"
    path.touch(mode=0o600)
    os.chown(path, 65534, 65534)
    haxlb = Path(sys.executable).with_name("haxlb")
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", haxlb, "check", "-f", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "fatal[unreadable-file]: cannot read the configuration: Permission denied" in done.stdout


def test_a_missing_file(tmp_path):
    result = CliRunner().invoke(check, ["-f", str(tmp_path / "none.conf")])
    assert result.exit_code == 4
    assert "fatal[unreadable-file]: cannot read the configuration: No such file or directory" in result.output


def test_settings_are_checked_too(tmp_path):
    settings = tmp_path / "haxlb.yml"
    settings.write_text("mqtt:\n  hots: x\n")
    result = CliRunner().invoke(
        check, ["-f", str(DATA / "master.conf"), "--settings", str(settings), "--no-interfaces"]
    )
    assert result.exit_code == 4
    assert f"{settings}:2:3: fatal[unknown-setting]: mqtt has no key `hots`" in result.output
    assert result.output.splitlines()[-1] == f"{settings}: 1 fatal"


def test_each_file_has_its_sum(run, tmp_path):
    settings = tmp_path / "other.yml"
    settings.write_text("mqtt:\n  port: 1\n")
    result = run(INSTANCE % ("lo", 300), "--no-interfaces", "--settings", str(settings))
    assert result.output.splitlines()[-1] == f"{tmp_path}/keepalived.conf: 1 fatal; {settings}: 1 fatal"


@pytest.mark.parametrize("arguments", [["--jsn"], ["--settings", "/nonexistent/haxlb.yml"]])
def test_wrong_usage(run, arguments):
    assert run("", *arguments).exit_code == 2


def test_help_names_the_exit_codes():
    text = CliRunner().invoke(check, ["--help"]).output
    assert "Exit codes" in text


def test_a_terminal_that_lacks_characters(tmp_path):
    path = tmp_path / "keepalived.conf"
    path.write_text("wörd # 组\n")
    result = CliRunner(charset="latin-1").invoke(check, ["-f", str(path), "--no-interfaces"])
    assert result.exit_code == 5
    assert "wörd # \\u7ec4" in result.output


def test_users_of_this_host(run):
    text = INSTANCE % ("lo", 51)
    text = text.replace("interface lo", 'interface lo\n    notify_master "/bin/true x" no-such-user', 1)
    result = run(text)
    assert result.exit_code == 5
    assert "error[unknown-account]: notify_master: there is no user no-such-user" in result.output
    assert "unknown-account" not in run(text, "--no-interfaces").output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('"/bin/echo master > /run/role"', True),
        ('"/bin/true || /bin/false"', True),
        ("""\"/bin/sh -c 'echo master > /run/role'\"""", False),
        ('"/usr/bin/find /run -name role -exec /bin/rm {} ;"', False),
        ('"</dev/tcp/127.0.0.1/80"', False),
    ],
)
def test_a_command_that_is_written_for_a_shell(run, command, said):
    text = (INSTANCE % ("lo", 51)).replace("interface lo", f"interface lo\n    notify_master {command}", 1)
    result = run(text, "--no-interfaces")
    assert ("warning[shell-word]: notify_master: `" in result.output) is said
    assert result.exit_code == 0


def test_programs_of_this_host(run, tmp_path):
    present = tmp_path / "present"
    present.write_text("#!/bin/sh\n")
    text = INSTANCE % ("lo", 51)
    lines = f"notify_master /no/such/program\n    notify_backup {present}\n    notify_fault ./present"
    result = run(text.replace("interface lo", f"interface lo\n    {lines}", 1))
    assert result.exit_code == 0
    assert "warning[missing-program]: notify_master: /no/such/program: No such file or directory" in result.output
    assert f"notify_backup: {present} is not executable" in result.output
    present.chmod(0o755)
    again = run(text.replace("interface lo", f"interface lo\n    {lines}", 1))
    assert again.output.count("missing-program") == 1, "a relative path counts from the file's directory"
    assert "missing-program" not in run(text, "--no-interfaces").output


@pytest.mark.skipif(os.getuid() != 0, reason="gives files to others: needs root")
def test_what_others_can_change_and_root_runs(run, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    os.chown(script, 65534, 65534)

    def text(security: str, user: str = "root") -> str:
        lines = f"notify_master ./script\n    notify_backup '{script} x' nobody"
        head = f"global_defs {{\n{security}\nscript_user {user}\n}}\n"
        return head + (INSTANCE % ("lo", 51)).replace("interface lo", f"interface lo\n    {lines}", 1)

    result = run(text("enable_script_security"))
    assert result.exit_code == 0
    assert result.output.count("insecure-program") == 1, "what runs as another user is that user's matter"
    assert "warning[insecure-program]: notify_master: ./script would run as root, but " in result.output
    assert "insecure-program" not in run(text("enable_script_security", "nobody")).output
    assert "insecure-program" not in run(text("")).output
    assert "insecure-program" not in run(text("enable_script_security"), "--no-interfaces").output


def test_a_user_after_a_command_in_single_quotes_is_found(run):
    text = (INSTANCE % ("lo", 51)).replace("interface lo", "interface lo\n    notify '/bin/true x' no-such-user", 1)
    result = run(text)
    assert "notify '/bin/true x' no-such-user\n" in result.output
    assert "unknown-account" in result.output


def test_an_argument_that_looks_like_a_user_is_said_once(run):
    text = (INSTANCE % ("lo", 51)).replace("interface lo", "interface lo\n    notify /bin/true MASTER", 1)
    result = run(text)
    assert "script-user" in result.output
    assert "unknown-account" not in result.output
