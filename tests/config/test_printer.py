"""The printed configuration loads again to the same one."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haxlb.config import load
from haxlb.config.printer import STARS, in_seconds, keepalived_conf
from haxlb.model.addresses import Endpoint, Protocol, Vip
from haxlb.model.commands import NO_COMMAND, Command
from haxlb.model.errors import ConfigError
from haxlb.model.node import (
    SECOND_US,
    Check,
    CheckKind,
    GarpConfig,
    HttpUrl,
    NodeConfig,
    NotifyScripts,
    RealServer,
    Role,
    Scheduler,
    VirtualServer,
    VrrpInstance,
)
from keepalived_compat.diagnostics import Severity

DATA = Path(__file__).parent / "data"
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
FILES = [*sorted(each for each in CORPUS.glob("*/*") if each.is_file()), DATA / "master.conf", DATA / "backup.conf"]


@pytest.fixture
def again(loading):
    """What a configuration's text loads to, and the complaints about it."""

    def of(config: NodeConfig):
        return loading(keepalived_conf(config, secrets=True))

    return of


@pytest.mark.parametrize("path", FILES, ids=[each.name for each in FILES])
def test_a_file_printed_and_loaded_is_the_same(again, path):
    config = load(path, settings=None, node="high").config
    if config is None:
        pytest.skip("it cannot be used")
    loaded = again(config)
    assert loaded.config == config
    bad = [each for each in loaded.diagnostics if each.severity in (Severity.FATAL, Severity.ERROR)]
    assert [each for each in bad if each.code != "not-supported-yet"] == []


def test_printing_again_changes_nothing(again):
    config = load(DATA / "master.conf", settings=None, node="host").config
    text = keepalived_conf(config, secrets=True)
    assert keepalived_conf(again(config).config, secrets=True) == text


def test_what_is_printed(again):
    text = keepalived_conf(load(DATA / "master.conf", settings=None, node="host").config)
    assert "    virtual_ipaddress {\n        192.168.10.100/24 dev eth0 label eth0:vip\n" in text
    assert "    priority 150\n" in text
    assert "    garp_master_delay 5\n" in text  # a default


def test_a_password_is_starred_unless_asked_for():
    instance = VrrpInstance(name="VI_1", interface="eth0", vrid=1, auth_pass="s3cret")
    config = NodeConfig(node="lb1", instances=(instance,))
    assert "s3cret" not in keepalived_conf(config)
    assert f"auth_pass {STARS}" in keepalived_conf(config)
    assert "auth_pass s3cret" in keepalived_conf(config, secrets=True)


@pytest.mark.parametrize(
    "config",
    [
        NodeConfig(node='a"b'),
        NodeConfig(
            node="a",
            instances=tuple(
                VrrpInstance(name=f"VI_{n}", interface="eth0", vrid=n, garp=GarpConfig(interval_us=n)) for n in (1, 2)
            ),
        ),
    ],
)
def test_what_the_language_cannot_say_is_refused(config):
    with pytest.raises(ConfigError):
        keepalived_conf(config)


@pytest.mark.parametrize(
    ("microseconds", "text"), [(0, "0"), (1, "0.000001"), (250_000, "0.25"), (60_000_000, "60"), (1_500_000, "1.5")]
)
def test_seconds(microseconds, text):
    assert in_seconds(microseconds) == text


# `$` and `~` begin definitions and sequences, `@` conditions: they mean themselves inside of quotes or words only
# where nothing is defined, and a file that was loaded has none of them left that does something.
word = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="_.#!{}'\\ ;/-"), min_size=1)
name = word.map(str.strip).filter(bool).filter(lambda each: each not in ("fwmark", "group"))
argument = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="_.#!{}'\\ ;/-"))
account = st.sampled_from(["", "nobody", "web-1"])
command = st.builds(
    lambda argv, user, group: Command(argv=argv, user=user, group=group if user else ""),
    st.lists(argument, min_size=1, max_size=4).map(tuple).filter(lambda a: a[0]),
    account,
    account,
)
script = st.just(NO_COMMAND) | command
address = st.integers(0x01000001, 0xDFFFFFFE).map(IPv4Address)
micro = st.integers(1, 4_294_000_000)


@st.composite
def vips(draw):
    prefix = draw(st.integers(0, 32))
    return Vip(
        address=draw(address),
        prefix_length=prefix,
        interface=draw(st.sampled_from(["eth0", "eth1.100", "br-lan"])),
        label=draw(st.none() | st.sampled_from(["eth0:1", "vip"])),
        scope=draw(st.sampled_from([0, 7, 200, 253, 254, 255])),
        broadcast=draw(st.none() | address),
    )


seconds_ = st.integers(0, 4294).map(lambda each: each * SECOND_US)


@st.composite
def instances(draw, vrid, pause):
    version = draw(st.sampled_from([2, 3]))
    master = draw(st.booleans())
    nopreempt = not master and draw(st.booleans())
    source = draw(st.none() | address)
    return VrrpInstance(
        name=f"{draw(name)}{vrid}",
        interface=draw(st.sampled_from(["eth0", "eth1"])),
        vrid=vrid,
        priority=draw(st.integers(1, 255)) if not nopreempt else draw(st.integers(1, 254)),
        initial_role=Role.MASTER if master else Role.BACKUP,
        version=version,
        advert_interval_us=draw(
            st.integers(1, 255).map(lambda s: s * SECOND_US)
            if version == 2
            else st.integers(1, 4095).map(lambda c: c * 10_000)
        ),
        nopreempt=nopreempt,
        preempt_delay_us=0 if nopreempt or master else draw(st.integers(0, 1000 * SECOND_US)),
        auth_pass=draw(st.none() | name.map(lambda each: each[:8].strip()).filter(bool)) if version == 2 else None,
        source=source,
        peers=tuple(draw(st.lists(address.filter(lambda each: each != source), unique=True, max_size=3))),
        vips=tuple(draw(st.lists(vips(), min_size=1, max_size=3, unique_by=lambda each: each.address))),
        garp=GarpConfig(
            master_repeat=draw(st.integers(1, 99)),
            master_delay_us=draw(seconds_),
            master_refresh_us=draw(seconds_),
            master_refresh_repeat=draw(st.integers(1, 9)),
            lower_prio_repeat=draw(st.integers(0, 9)),
            lower_prio_delay_us=draw(seconds_),
            interval_us=pause,
        ),
        notify=NotifyScripts(
            master=draw(script), backup=draw(script), fault=draw(script), stop=draw(script), any=draw(script)
        ),
    )


@st.composite
def urls(draw):
    return HttpUrl(
        path="/" + draw(argument).strip(),
        digest=draw(st.none() | st.just("0123456789abcdef" * 2)),
        status_codes=draw(st.sampled_from([((200, 299),), ((200, 200), (301, 399))])),
        virtualhost=draw(st.none() | name),
        regex=draw(st.none() | st.sampled_from(["ok", "(?is)^a b$", "#!{}"])),
        regex_no_match=draw(st.booleans()),
    )


@st.composite
def checks(draw):
    kind = draw(st.sampled_from(CheckKind))
    web = kind is not CheckKind.TCP
    host = draw(st.none() | name) if web else None
    return Check(
        kind=kind,
        address=draw(address),
        port=draw(st.integers(1, 65535)),
        bind_address=draw(st.none() | address),
        bind_port=draw(st.integers(0, 65535)),
        connect_timeout_us=draw(micro),
        delay_loop_us=draw(micro),
        warmup_us=draw(st.none() | micro),
        retry=draw(st.none() | st.integers(0, 100)),
        delay_before_retry_us=draw(micro),
        urls=tuple(draw(st.lists(urls(), min_size=1, max_size=2))) if web else (),
        http_protocol=draw(st.sampled_from(["1.0", "1.1"])) if web else "1.0",
        virtualhost=host,
        sni=draw(st.sampled_from([None, host, "name.example"])) if kind is CheckKind.SSL else None,
    )


@st.composite
def virtual_servers(draw, port):
    scheduler = draw(st.sampled_from(Scheduler))
    reals = draw(
        st.lists(
            st.builds(
                RealServer,
                address=address,
                port=st.just(port),
                weight=st.integers(0, 65535),
                inhibit_on_failure=st.booleans(),
                checks=st.lists(checks(), max_size=2).map(tuple),
                notify_up=script,
                notify_down=script,
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda each: each.address,
        )
    )
    quorum = draw(st.integers(1, max(sum(each.weight for each in reals), 1)))
    return VirtualServer(
        endpoint=Endpoint(address=draw(address), port=port, protocol=draw(st.sampled_from(Protocol))),
        scheduler=scheduler,
        mh_port=scheduler in (Scheduler.SH, Scheduler.MH) and draw(st.booleans()),
        alpha=draw(st.booleans()),
        quorum=quorum,
        hysteresis=draw(st.integers(0, quorum - 1)),
        quorum_up=draw(script),
        quorum_down=draw(script),
        sorry_server=draw(st.none() | st.builds(RealServer, address=address, port=st.just(port))),
        real_servers=tuple(reals),
    )


@st.composite
def configs(draw):
    pause = draw(st.integers(0, 2_000_000))
    found = [draw(instances(vrid, pause)) for vrid in range(1, draw(st.integers(0, 2)) + 1)]
    # An address belongs to one instance.
    taken: set[IPv4Address] = set()
    kept = []
    for each in found:
        own = tuple(vip for vip in each.vips if vip.address not in taken)
        taken |= {vip.address for vip in own}
        if own:
            kept.append(replace(each, vips=own))
    return NodeConfig(
        node=draw(name),
        instances=tuple(kept),
        virtual_servers=tuple(draw(virtual_servers(port)) for port in range(1, draw(st.integers(0, 2)) + 1)),
    )


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=configs())
def test_any_configuration_printed_and_loaded_is_the_same(loading, config):
    text = keepalived_conf(config, secrets=True)
    assert loading(text).config == config, text
