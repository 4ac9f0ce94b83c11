"""The printed configuration loads again to the same one."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haxlb.config import load
from haxlb.config.printer import STARS, in_seconds, keepalived_conf
from haxlb.model.addresses import Endpoint, Protocol, TtlLimits, Vip
from haxlb.model.check import Check, CheckKind, HttpUrl
from haxlb.model.commands import NO_COMMAND, Command
from haxlb.model.errors import ConfigError
from haxlb.model.instance import GarpConfig, Role, VirtualMac, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotifyScripts
from haxlb.model.units import SECOND_US
from haxlb.model.virtual_server import ForwardingMethod, RealServer, Scheduler, TunnelKind, VirtualServer
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


IPV6 = st.integers(1, 2**64).map(lambda number: IPv6Address((0xFD00 << 112) + number))
FLAGS = ("home", "-nodad", "mngtmpaddr", "noprefixroute", "autojoin", "no_track")


@st.composite
def vips(draw, family=4):
    own = draw(address if family == 4 else IPV6)
    peer = draw(st.none() | (address if family == 4 else IPV6))
    whole = own.max_prefixlen
    return Vip(
        address=own,
        # The prefix of an address with a peer is ignored.
        prefix_length=whole if peer is not None else draw(st.integers(0, whole)),
        interface=draw(st.sampled_from(["eth0", "eth1.100", "br-lan"])),
        label=draw(st.none() | st.sampled_from(["eth0:1", "vip"])) if family == 4 else None,
        scope=draw(st.sampled_from([0, 7, 200, 253, 254, 255])) if family == 4 else 0,
        broadcast=draw(st.none() | address) if family == 4 else None,
        peer=peer,
        preferred_lifetime_s=draw(st.none() | st.sampled_from([0, 7, 2**32 - 1])),
        flags=tuple(each for each in FLAGS if draw(st.booleans())),
    )


seconds_ = st.integers(0, 4294).map(lambda each: each * SECOND_US)
unique_vips = {"unique_by": lambda each: each.address, "max_size": 3}


@st.composite
def virtual_macs(draw, name, family, vrid, unicast):
    ipvlan = draw(st.sampled_from(["", "bridge", "private", "vepa"]))
    own = "10.9.9.9/24" if family == 4 else "fd09::9/64"
    return VirtualMac(
        interface=name,
        mac="" if ipvlan else draw(st.sampled_from([f"00:00:5e:00:0{family // 3}:{vrid:02x}", "02:00:00:00:00:09"])),
        xmit_base=unicast or draw(st.booleans()),
        group=draw(st.sampled_from([0, 7])),
        ipvlan=ipvlan,
        ipvlan_address=own if ipvlan else "",
    )


@st.composite
def wires(draw, family):
    """How an instance speaks: what has to fit together."""
    own = address if family == 4 else IPV6
    source = draw(st.none() | own)
    peers = tuple(draw(st.lists(own.filter(lambda each: each != source), unique=True, max_size=3)))
    fault = draw(st.booleans())
    unicast = bool(peers) or fault
    limited = draw(st.lists(st.sampled_from(peers), unique=True)) if peers else []
    limits = tuple(TtlLimits(peer=each, lowest=draw(st.integers(0, 255))) for each in peers if each in limited)
    group = ip_address("224.0.0.99" if family == 4 else "ff02::99")
    return {
        "source": source,
        "peers": peers,
        "unicast_fault_no_peer": fault,
        "ttl_limits": limits,
        "multicast_group": None if unicast else draw(st.sampled_from([None, group])),
        "unicast_ttl": draw(st.integers(1, 255)) if unicast else 255,
        "check_unicast_src": unicast and (bool(limits) or draw(st.booleans())),
        "checksum_as_v2": draw(st.booleans()),
        "old_unicast_checksum": draw(st.sampled_from(["auto", "always", "never"])),
        "track_source": source is not None and draw(st.booleans()),
    }


@st.composite
def instances(draw, vrid, pause):
    family = draw(st.sampled_from([4, 6]))
    version = draw(st.sampled_from([2, 3]))
    master = draw(st.booleans())
    nopreempt = not master and draw(st.booleans())
    priority = draw(st.integers(1, 255)) if not nopreempt else draw(st.integers(1, 254))
    wire = draw(wires(family))
    unicast = bool(wire["peers"]) or wire["unicast_fault_no_peer"]
    mac = draw(st.none() | virtual_macs(f"vip{vrid}", family, vrid, unicast))
    password = (
        draw(st.none() | name.map(lambda each: each[:8].strip()).filter(bool)) if (version, family) == (2, 4) else None
    )
    vrf = "red" if unicast and mac is None and draw(st.booleans()) else ""
    interface = vrf or draw(st.sampled_from(["eth0", "eth1"]))
    taken = draw(st.lists(vips(family), min_size=1, **unique_vips))
    if mac is not None:
        # What says the base interface lives on the virtual MAC.
        taken = [replace(each, interface=mac.interface) if each.interface == interface else each for each in taken]
    abroad = [replace(each, interface="br-lan") for each in draw(st.lists(vips(4) | vips(6), **unique_vips))]
    macs = {
        each: VirtualMac(
            interface=f"vrrp{'6' * (each == 6)}.{vrid}", mac=f"00:00:5e:00:0{1 + (each == 6)}:{vrid:02x}", base="br-lan"
        )
        for each in dict.fromkeys(vip.family for vip in abroad)
        if (mac is None or mac.mac.startswith("00:00:5e") or mac.ipvlan) and draw(st.booleans())
    }
    abroad = [replace(each, interface=macs[each.family].interface) if each.family in macs else each for each in abroad]
    deleted = draw(script)
    return VrrpInstance(
        name=f"{draw(name)}{vrid}",
        interface=interface,
        vrf=vrf,
        vrid=vrid,
        priority=priority,
        initial_role=Role.MASTER if master else Role.BACKUP,
        version=version,
        family=family,
        advert_interval_us=draw(
            st.integers(1, 255).map(lambda s: s * SECOND_US)
            if version == 2
            else st.integers(1, 4095).map(lambda c: c * 10_000)
        ),
        nopreempt=nopreempt,
        preempt_delay_us=0 if nopreempt or master else draw(st.integers(0, 1000 * SECOND_US)),
        auth_pass=password,
        auth_ah=password is not None and family == 4 and draw(st.booleans()),
        vips=tuple(taken),
        excluded_vips=tuple(abroad),
        virtual_mac=mac,
        address_macs=tuple(macs.values()),
        down_timer_adverts=draw(st.integers(1, 100)),
        accept=draw(st.booleans()),
        lower_prio_no_advert=draw(st.booleans()),
        higher_prio_send_advert=draw(st.booleans()),
        owner_ignore_adverts=priority == 255 and draw(st.booleans()),
        track_primary=draw(st.booleans()),
        promote_secondaries=mac is None and draw(st.booleans()),
        notify_priority_changes=draw(st.booleans()),
        smtp_alert=draw(st.booleans()),
        garp=GarpConfig(
            master_repeat=draw(st.integers(1, 99)),
            master_delay_us=draw(seconds_),
            master_refresh_us=draw(seconds_),
            master_refresh_repeat=draw(st.integers(1, 9)),
            lower_prio_repeat=draw(st.integers(0, 9)),
            lower_prio_delay_us=draw(seconds_),
            interval_us=pause,
            extra_if_us=(extra := draw(st.integers(0, 86400).map(lambda each: each * SECOND_US))),
            extra_if_all=bool(extra) and draw(st.booleans()),
        ),
        notify=NotifyScripts(
            master=draw(script),
            backup=draw(script),
            fault=draw(script),
            stop=draw(script),
            any=draw(script),
            master_rx_lower_pri=draw(script),
            deleted=deleted,
            tells_deleted=bool(deleted) or draw(st.booleans()),
        ),
        **wire,
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


methods = st.one_of(
    st.builds(lambda kind: {"method": kind}, st.sampled_from(ForwardingMethod)),
    st.builds(
        lambda number, csum: {
            "method": ForwardingMethod.TUN,
            "tunnel": TunnelKind.GUE,
            "tunnel_port": number,
            "tunnel_checksum": csum,
        },
        st.integers(1, 65535),
        st.booleans(),
    ),
    st.builds(
        lambda csum: {"method": ForwardingMethod.TUN, "tunnel": TunnelKind.GRE, "tunnel_checksum": csum}, st.booleans()
    ),
)


@st.composite
def with_method(draw, server):
    made = replace(server, **draw(methods))
    if made.method is not ForwardingMethod.NAT:
        return made
    return replace(made, port=draw(st.integers(1, 65535)))


@st.composite
def virtual_servers(draw, port):
    scheduler = draw(st.sampled_from(Scheduler))
    protocol = draw(st.sampled_from([Protocol.TCP, Protocol.UDP]))
    upper = draw(st.integers(0, 100))
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
                upper_threshold=st.just(upper),
                lower_threshold=st.integers(0, upper),
            ).flatmap(with_method),
            min_size=1,
            max_size=3,
            unique_by=lambda each: each.address,
        )
    )
    alpha = draw(st.booleans())
    quorum = draw(st.integers(1, max(sum(each.weight for each in reals), 1)))
    return VirtualServer(
        endpoint=Endpoint(address=draw(address), port=port, protocol=protocol),
        scheduler=scheduler,
        mh_port=scheduler in (Scheduler.SH, Scheduler.MH) and draw(st.booleans()),
        persistence_s=draw(st.integers(1, 65535)),
        persistence_granularity=draw(st.none() | st.integers(1, 32)),
        one_packet=protocol is Protocol.UDP and draw(st.booleans()),
        alpha=alpha,
        quorum=quorum,
        hysteresis=draw(st.integers(0, quorum - 1)),
        quorum_up=draw(script),
        quorum_down=draw(script),
        sorry_server=draw(
            st.none()
            | st.builds(RealServer, address=address, port=st.just(port), inhibit_on_failure=st.booleans()).flatmap(
                with_method
            )
        ),
        # As it is read: None where it is that of the virtual server.
        real_servers=tuple(replace(each, alpha=draw(st.sampled_from([None, not alpha]))) for each in reals),
    )


@st.composite
def configs(draw):
    pause = draw(st.integers(0, 2_000_000))
    found = [draw(instances(vrid, pause)) for vrid in range(1, draw(st.integers(0, 2)) + 1)]
    # An address belongs to one instance.
    taken: set[object] = set()
    kept = []
    for each in found:
        lists = []
        for those in (each.vips, each.excluded_vips):
            lists.append(tuple(vip for vip in those if vip.address not in taken))
            taken |= {vip.address for vip in those}
        if lists[0]:
            used = {vip.interface for those in lists for vip in those}
            macs = tuple(mac for mac in each.address_macs if mac.interface in used)
            kept.append(replace(each, vips=lists[0], excluded_vips=lists[1], address_macs=macs))
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
