"""haxlb.yml."""

from __future__ import annotations

import pytest

from haxlb.model.settings import ForwardingSettings, MqttSettings

CONF = "vrrp_instance A {\n interface eth0\n virtual_router_id 1\n virtual_ipaddress {\n 10.0.0.1/24\n }\n}\n"


def said(loaded):
    return [(each.severity.value, each.code, *each.span[1:]) for each in loaded.diagnostics]


@pytest.mark.parametrize("text", [None, "", "# nothing\n", "{}", "---\n", "forwarding:\n"])
def test_nothing_means_the_defaults(loading, text):
    loaded = loading(CONF, settings=text)
    assert loaded.diagnostics == ()
    assert loaded.config.mqtt is None
    assert loaded.config.forwarding == ForwardingSettings()


def test_everything(loading):
    loaded = loading(
        CONF,
        settings=(
            "mqtt:\n  host: broker\n  port: 8883\n  username: haxlb\n  password_file: mqtt.pass\n  tls: true\n"
            "  site: rack-1\n  keepalive_s: 5\n"
            "forwarding:\n  interfaces: [eth0, eth1]\n  mode: generic\n  flow_buckets_log2: 12\n  max_services: 9\n"
        ),
        secrets={"mqtt.pass": "s3cr3t\n"},
    )
    assert loaded.diagnostics == ()
    assert loaded.config.mqtt == MqttSettings(
        host="broker", port=8883, username="haxlb", password="s3cr3t", tls=True, site="rack-1", keepalive_s=5
    )
    assert loaded.config.forwarding == ForwardingSettings(
        interfaces=("eth0", "eth1"), mode="generic", flow_buckets_log2=12, max_services=9
    )


@pytest.mark.parametrize(
    ("text", "code", "place", "says"),
    [
        ("mqtt:\n  hots: x\n", "unknown-setting", (2, 3, 7), "did you mean `host`?"),
        ("mqqt: {}\n", "unknown-setting", (1, 1, 5), "did you mean `mqtt`?"),
        ("metrics: {}\n", "unknown-setting", (1, 1, 8), "known: mqtt, forwarding"),
        ("mqtt: broker\n", "bad-setting", (1, 7, 13), "its keys: host, port"),
        ("- mqtt\n", "bad-setting", (1, 1, 2), "its keys: mqtt, forwarding"),
        ("mqtt: {host: x, port: '1883'}\n", "bad-setting", (1, 23, 29), ""),
        ("mqtt: {host: x, port: 0}\n", "bad-setting", (1, 23, 24), ""),
        ("mqtt: {host: x, port: 65536}\n", "bad-setting", (1, 23, 28), ""),
        ("mqtt: {host: [x]}\n", "bad-setting", (1, 14, 17), ""),
        ("mqtt: {host: x, tls: maybe}\n", "bad-setting", (1, 22, 27), ""),
        ("mqtt: {host: x, site: a/b}\n", "bad-setting", (1, 23, 26), "no `/`"),
        ("mqtt: {port: 1}\n", "missing-setting", (1, 7, 16), "add `host"),
        ("mqtt: {host: x, host: y}\n", "given-twice", (1, 17, 21), "keep one"),
        ("mqtt: {host: x, password: a, password_file: b}\n", "bad-setting", (1, 45, 46), "keep one"),
        ("mqtt: {host: x, password_file: none}\n", "unreadable-file", (1, 32, 36), "a file with the password"),
        ("forwarding: {mode: natve}\n", "bad-setting", (1, 20, 25), ""),
        ("forwarding: {interfaces: eth0}\n", "bad-setting", (1, 26, 30), ""),
        ("forwarding: {interfaces: [1]}\n", "bad-setting", (1, 27, 28), ""),
        ("forwarding: {flow_buckets_log2: 30}\n", "bad-setting", (1, 33, 35), ""),
        ("mqtt: {host: x\n", "bad-yaml", (2, 1, 2), ""),
        ("a: b: c\n", "bad-yaml", (1, 5, 6), ""),
        ("\tx\n", "bad-yaml", (1, 1, 2), ""),
        ("a: \x01\n", "bad-yaml", (1, 1, 1), ""),
    ],
)
def test_what_is_wrong_has_its_place(loading, text, code, place, says):
    loaded = loading(CONF, settings=text)
    assert loaded.config is None
    assert ("fatal", code, *place) in said(loaded)
    assert any(says in each.hint for each in loaded.diagnostics)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "forwarding: {mode: natve}\n",
            "forwarding.mode: `natve` is not known",
            "did you mean `native`? one of auto, native, generic; the default is auto",
        ),
        (
            "forwarding: {mode: driver}\n",
            "forwarding.mode: `driver` is not known",
            "one of auto, native, generic; the default is auto",
        ),
        (
            "mqtt: {host: x, port: 99999}\n",
            "mqtt.port must be a whole number",
            "1 to 65535, without quotes; the default is 1883",
        ),
        ("mqtt: {host: x, tls: maybe}\n", "mqtt.tls must be true or false", "the default is false"),
        ("mqtt: {host: [x]}\n", "mqtt.host must be a text", "write `host: TEXT`"),
        ("forwarding: {interfaces: eth0}\n", "forwarding.interfaces must be a list", "write `interfaces: [eth0]`"),
    ],
)
def test_the_hint_says_what_may_be_written(loading, text, message, hint):
    (found,) = loading(CONF, settings=text).diagnostics
    assert (found.message, found.hint) == (message, hint)


def test_a_misspelt_key_is_not_missing_too(loading):
    (found,) = loading(CONF, settings="mqtt: {hosst: x}\n").diagnostics
    assert (found.code, found.hint) == ("unknown-setting", "did you mean `host`?")
    codes = {each.code for each in loading(CONF, settings="mqtt: {prot: 1}\n").diagnostics}
    assert codes == {"unknown-setting", "missing-setting"}


def test_bytes_that_are_no_text(loading):
    assert said(loading(CONF, settings=b"\xff\xfe")) == [("fatal", "not-utf-8", 1, 1, 1)]


def test_nesting_without_end(loading):
    assert said(loading(CONF, settings="[" * 5000))[0][:2] == ("fatal", "bad-yaml")


def test_a_password_is_never_shown(loading):
    loaded = loading(CONF, settings="mqtt: {host: x, password: hunter2, prt: 1}\n")
    (found,) = loaded.diagnostics
    assert "hunter2" not in loaded.sources.line(found.span.file, 1)


def test_interfaces_must_exist(loading):
    text = "forwarding: {interfaces: [eth0, eht1]}\n"
    assert loading(CONF, settings=text).diagnostics == ()
    loaded = loading(CONF, settings=text, interfaces=frozenset({"eth0", "eth1"}))
    (found,) = loaded.diagnostics
    assert (found.code, found.span[1:]) == ("no-such-interface", (1, 33, 37))
    assert found.hint.startswith("did you mean `eth1`?")
