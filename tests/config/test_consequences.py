"""What a reload is said to do."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from haxlb.config import load
from haxlb.config.consequences import Fate, consequences
from haxlb.health.monitor import Configured, Monitor
from haxlb.model.addresses import Vip
from haxlb.model.commands import Command
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role, VirtualMac
from haxlb.model.node import NodeConfig
from haxlb.model.notification import MailSettings, NotificationSettings, NotifyFifo
from haxlb.model.routes import Route
from haxlb.model.settings import ForwardingSettings, MqttSettings, SpeakerSettings
from haxlb.model.tracking import Track, TrackKind, TrackScript
from haxlb.model.virtual_server import Scheduler
from haxlb.vrrp.inputs import AddVips, LinkChanged, Reconfigure, RemoveVips, SendAdvert, Start, TimerExpired
from haxlb.vrrp.router import Router

DATA = Path(__file__).parent / "data"


@pytest.fixture
def config() -> NodeConfig:
    loaded = load(DATA / "master.conf", settings=None, node="host")
    assert loaded.config is not None
    return loaded.config


def told(before, after):
    """The fates of what is not kept, by kind and name."""
    return {
        (each.kind, each.name): (each.fate, each.reason, each.effects)
        for each in consequences(before, after)
        if each.fate is not Fate.KEPT
    }


def with_instance(config, **changes):
    return replace(config, instances=(replace(config.instances[0], **changes),))


def with_server(config, **changes):
    return replace(config, virtual_servers=(replace(config.virtual_servers[0], **changes),))


ENDS = "when it is MASTER, it says priority 0 on eth0, takes its addresses off and runs notify_fault"
SERVICE = "[192.168.10.100]:tcp:80"


def test_the_same_is_kept(config):
    found = consequences(config, config)
    assert [(each.kind, each.name, each.fate) for each in found] == [
        ("vrrp_instance", "VI_1", Fate.KEPT),
        ("virtual_server", SERVICE, Fate.KEPT),
    ]


def test_a_priority_is_retuned(config):
    assert told(config, with_instance(config, priority=90)) == {
        ("vrrp_instance", "VI_1"): (
            Fate.RETUNED,
            "priority 150 -> 90",
            (
                "it keeps its state",
                "as MASTER it sends an advert at once",
                "as BACKUP it takes over after 3.648 s of silence, not 3.414 s",
            ),
        )
    }


def test_scripts_and_names_touch_nothing_on_the_wire(config):
    ((fate, _, effects),) = told(config, with_instance(config, name="VI_X")).values()
    assert (fate, effects) == (Fate.RETUNED, ("it keeps its state",))


def test_addresses_go_in_the_order_of_the_speaker(config):
    old = config.instances[0].vips[0]
    other = Vip(address=IPv4Address("192.168.10.101"), prefix_length=24, interface="eth0")
    before = with_instance(config, vips=(old, other))
    third = replace(other, address=IPv4Address("192.168.10.102"))
    ((_, _, effects),) = told(before, with_instance(config, vips=(replace(old, prefix_length=32), third))).values()
    assert effects[1:4] == (
        "as MASTER it takes off and puts on anew 192.168.10.100 on eth0",
        "as MASTER it puts on 192.168.10.102 on eth0",
        "as MASTER it takes off 192.168.10.101 on eth0",
    )


@pytest.mark.parametrize("change", [{"version": 3}, {"auth_pass": "other"}, {"advert_interval_us": 2_000_000}])
def test_what_parts_a_pair_is_said(config, change):
    ((_, _, effects),) = told(config, with_instance(config, **change)).values()
    assert any("both are MASTER meanwhile" in each for each in effects)


def test_version_3_learns_the_interval(config):
    before = with_instance(config, version=3, auth_pass=None)
    after = with_instance(config, version=3, auth_pass=None, advert_interval_us=2_000_000)
    ((_, _, effects),) = told(before, after).values()
    assert not any("both are MASTER" in each for each in effects)


def test_another_vrid_or_interface_is_another_instance(config):
    found = told(config, with_instance(config, vrid=52, initial_role=Role.BACKUP))
    fate, reason, effects = found["vrrp_instance", "VI_1"]
    assert fate is Fate.RECREATED
    assert reason.startswith("virtual_router_id 51 -> 52")
    assert effects == (
        f"the former one ends: {ENDS}",
        "the new one begins: it is BACKUP, and MASTER after 3.414 s without a better one",
        "the addresses of both are off here until it is MASTER",
        "a peer that keeps the former virtual_router_id does not hear it: change both directors",
    )


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({"priority": 255}, "it is MASTER at once"),
        ({"initial_role": Role.MASTER}, "it is MASTER after 1.004 s"),
        ({"initial_role": Role.BACKUP, "priority": 100}, "it is BACKUP, and MASTER after 3.609 s"),
    ],
)
def test_how_a_new_instance_begins(config, changes, begins):
    empty = replace(config, instances=())
    fate, _, (effect,) = told(empty, with_instance(config, **changes))["vrrp_instance", "VI_1"]
    assert fate is Fate.ADDED
    assert effect.startswith(begins)
    fate, _, _ = told(with_instance(config, **changes), empty)["vrrp_instance", "VI_1"]
    assert fate is Fate.REMOVED


def test_real_servers(config):
    first, second, third = config.virtual_servers[0].real_servers
    fresh = replace(first, address=IPv4Address("192.168.10.29"))
    after = with_server(config, real_servers=(replace(first, weight=0), replace(second, checks=()), fresh))
    found = told(config, after)
    fate, reason, _ = found["virtual_server", SERVICE]
    assert (fate, reason) == (Fate.RETUNED, "its real servers")
    assert found["real_server", f"{SERVICE} 192.168.10.21:80"] == (
        Fate.RETUNED,
        "weight 3 -> 0",
        ("it is drained: its connections stay, it gets no new ones",),
    )
    assert found["real_server", f"{SERVICE} 192.168.10.22:80"][2] == ("without a check it is up from now on",)
    assert found["real_server", f"{SERVICE} 192.168.10.29:80"][0] is Fate.ADDED
    assert found["real_server", f"{SERVICE} {third.key}"][0] is Fate.REMOVED


def test_a_check_that_is_known_already_has_its_verdict(config):
    first, second, third = config.virtual_servers[0].real_servers
    new = replace(first.checks[0], retry=9)
    after = with_server(config, real_servers=(replace(first, checks=(new,)), second, third))
    assert told(config, after)["real_server", f"{SERVICE} 192.168.10.21:80"][2] == (
        "TCP_CHECK begins without a verdict; until there is one the server stays as it is",
    )
    after = with_server(config, real_servers=(replace(first, checks=second.checks), second, third))
    assert told(config, after)["real_server", f"{SERVICE} 192.168.10.21:80"][2] == ()


def test_alpha_counts_for_what_is_new(config):
    first, second, third = config.virtual_servers[0].real_servers
    careful = (replace(first, alpha=True), second, third)
    service = with_server(config, real_servers=careful)
    assert told(config, service)["real_server", f"{SERVICE} {first.key}"][2] == (
        "alpha counts for servers that are new",
    )
    added = told(replace(config, virtual_servers=()), service)["virtual_server", SERVICE][2]
    assert added == ("its real servers count as up, those with alpha as down, until their checks know",)
    fewer = with_server(config, real_servers=(second, third))
    added = told(fewer, service)["real_server", f"{SERVICE} {first.key}"][2]
    assert added == ("counts as down (alpha) until its checks know",)


def test_connections_of_a_sorry_server_that_kept_them(config):
    sorry = replace(config.virtual_servers[0].real_servers[0], checks=(), inhibit_on_failure=True)
    lost = "connections that are still with the former sorry server go to other servers, which do not know them"
    before = with_server(config, sorry_server=sorry)
    for after, said in (
        (replace(sorry, inhibit_on_failure=False), True),
        (replace(sorry, port=81), True),
        (None, True),
        (replace(sorry, weight=2), False),
    ):
        assert (lost in told(before, with_server(config, sorry_server=after))["virtual_server", SERVICE][2]) is said
    assert lost not in told(config, before)["virtual_server", SERVICE][2]


def test_virtual_servers(config):
    ((fate, reason, effects),) = told(config, with_server(config, scheduler=Scheduler.MH, quorum=2)).values()
    assert (fate, reason) == (Fate.RETUNED, "scheduler wrr -> mh, quorum 1 -> 2")
    assert effects == (
        "its connections stay with their servers",
        "new ones are distributed by mh",
        "the quorum is judged anew at once",
    )
    gone = told(config, replace(config, virtual_servers=()))
    assert gone["virtual_server", SERVICE][0] is Fate.REMOVED
    assert gone["settings", "interfaces"][2] == ("it is detached from eth0",)
    added = told(replace(config, virtual_servers=()), config)
    assert added["virtual_server", SERVICE][0] is Fate.ADDED
    assert "the forwarder is compiled first, which takes seconds" in added["settings", "interfaces"][2]


def test_settings(config):
    found = told(
        config,
        replace(
            config,
            node="other",
            mqtt=MqttSettings(host="broker"),
            forwarding=ForwardingSettings(mode="native", flow_buckets_log2=17, max_services=65),
        ),
    )
    assert found["settings", "node"][0] is Fate.DEFERRED
    assert found["settings", "mqtt"][2] == ("the connection to the broker is made anew",)
    assert [each.partition(" counts ")[0] for each in found["settings", "forwarding"][2]] == [
        "mode",
        "flow_buckets_log2",
        "max_services",
    ]


def test_more_servers_than_there_is_room_for_are_refused(config):
    one = config.virtual_servers[0]
    many = tuple(replace(one, endpoint=replace(one.endpoint, port=port)) for port in range(1, 66))
    assert told(config, replace(config, virtual_servers=many))["settings", "forwarding"][0] is Fate.REFUSED
    found = told(config, replace(config, virtual_servers=many[:64]))
    assert ("settings", "forwarding") not in found


def test_more_addresses_than_there_is_room_for_are_refused(config):
    one = config.virtual_servers[0]
    ports = tuple(replace(one.endpoint, port=port) for port in range(1, 257))
    found = told(config, replace(config, virtual_servers=(replace(one, more_endpoints=ports),)))
    assert found["settings", "forwarding"][:2] == (
        Fate.REFUSED,
        "257 addresses and ports; the forwarder was made for 256",
    )
    found = told(config, replace(config, virtual_servers=(replace(one, more_endpoints=ports[1:]),)))
    assert ("settings", "forwarding") not in found


THIRD = Vip(address=IPv4Address("192.168.10.103"), prefix_length=24, interface="eth0")


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"priority": 90},
        {"nopreempt": True},
        {"advert_interval_us": 3_000_000},
        {"auth_pass": None},
        {"peers": (IPv4Address("192.168.10.3"),)},
        {"vips": (THIRD,)},
        {"vips": ()},
    ],
)
def test_it_is_what_a_master_does(config, changes):
    old = config.instances[0]
    router = Router(old)
    router.handle(LinkChanged(up=True, address=IPv4Address("192.168.10.2")), 0)
    router.handle(Start(), 0)
    while router.role is not Role.MASTER:
        now = router.next_deadline()
        router.handle(TimerExpired(), now)
    done = router.handle(Reconfigure(instance=replace(old, **changes)), now + 1)
    assert router.role is Role.MASTER
    ((fate, _, effects),) = told(config, with_instance(config, **changes)).values()
    assert fate is Fate.RETUNED
    for kind, words in ((SendAdvert, "sends an advert"), (AddVips, "puts on"), (RemoveVips, "takes off")):
        assert any(isinstance(each, kind) for each in done) == any(words in each for each in effects), words


def test_what_is_tracked(config):
    track = Track(kind=TrackKind.SCRIPT, name="chk", weight=-20)
    script = TrackScript(name="chk", run=Command(argv=("x",)))
    after = replace(with_instance(config, tracks=(track,)), track_scripts=(script,))
    found = {each.name: each for each in consequences(config, after)}
    assert found["VI_1"].reason == "track chk weight -20 added"
    assert found["VI_1"].effects[1].startswith("chk counts as well until its first result")
    assert (found["chk"].kind, found["chk"].fate) == ("vrrp_script", Fate.ADDED)
    slower = replace(after, track_scripts=(replace(script, interval_us=2_000_000),))
    found = {each.name: each for each in consequences(after, slower)}
    assert (found["chk"].fate, found["chk"].reason) == (Fate.RETUNED, "interval 1 s -> 2 s")
    assert found["chk"].effects == ("its last result stays until it has run again",)
    found = {each.name: each for each in consequences(after, config)}
    assert found["chk"].fate is Fate.REMOVED


def test_sync_groups(config):
    group = SyncGroup(name="VG", members=("VI_1", "VI_2"))
    (found,) = [each for each in consequences(config, replace(config, sync_groups=(group,))) if each.name == "VG"]
    assert (found.kind, found.fate) == ("vrrp_sync_group", Fate.ADDED)
    assert "VI_1, VI_2 are MASTER together" in found.effects[0]
    before = replace(config, sync_groups=(group,))
    after = replace(config, sync_groups=(replace(group, tracking_weight=True),))
    (found,) = [each for each in consequences(before, after) if each.name == "VG"]
    assert (found.fate, found.reason, found.effects) == (Fate.RETUNED, "sync_group_tracking_weight no -> yes", ())


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("speaker", SpeakerSettings(vip_lifetime_s=0), "vip_lifetime_s 2 -> 0"),
        ("notification", NotificationSettings(fifos=(NotifyFifo(path="/run/f"),)), "fifos none -> /run/f"),
        ("notification", NotificationSettings(mail=MailSettings(server="mx")), "mail none -> mx"),
        ("static_routes", (Route(destination="10.0.0.0/8", via="192.0.2.1"),), "they are others"),
    ],
)
def test_a_setting(config, name, value, reason):
    (found,) = [each for each in consequences(config, replace(config, **{name: value})) if each.name == name]
    assert (found.kind, found.fate, found.reason) == ("settings", Fate.RETUNED, reason)
    assert found.effects


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({"routes": (Route(destination="10.0.0.0/8", via="192.0.2.1"),)}, "as MASTER it puts on 1 route"),
        ({"virtual_mac": VirtualMac(interface="vrrp.51", mac="02:00:00:00:00:01")}, "the interface vrrp.51 is made"),
        (
            {"address_macs": (VirtualMac(interface="vrrp1.51", mac="00:00:5e:00:01:33", base="eth1"),)},
            "the interface vrrp1.51 is made",
        ),
        ({"peers": (IPv4Address("10.0.0.9"),)}, "a peer that is not changed likewise may not hear it any more"),
        ({"auth_ah": True}, "it refuses the adverts of a peer that was not changed likewise"),
        ({"down_timer_adverts": 5}, "as BACKUP it takes over after"),
    ],
)
def test_what_is_retuned(config, changes, effect):
    ((fate, _, effects),) = told(config, with_instance(config, **changes)).values()
    assert fate is Fate.RETUNED
    assert any(each.startswith(effect) for each in effects), effects


def test_the_other_family_is_another_instance(config):
    after = with_instance(config, family=6)
    fates = {fate for (kind, _), (fate, _, _) in told(config, after).items() if kind == "vrrp_instance"}
    assert fates == {Fate.RECREATED}


@pytest.mark.parametrize("retry", [None, 9])
def test_it_is_what_the_health_checks_do(config, retry):
    first, second, third = config.virtual_servers[0].real_servers
    other = replace(second, checks=(replace(second.checks[0], retry=retry),))
    after = with_server(config, real_servers=(first, other, third))
    monitor = Monitor(seed="")
    monitor.handle(Configured(virtual_servers=config.virtual_servers), 0)
    before = dict(monitor.checks)
    monitor.handle(Configured(virtual_servers=after.virtual_servers), 1)
    fresh = [each for each in other.checks if monitor.checks[each] is not before.get(each)]
    found = told(config, after).get(("real_server", f"{SERVICE} {second.key}"))
    effects = found[2] if found is not None else ()
    assert any("begins without a verdict" in each for each in effects) == bool(fresh)
    assert bool(fresh) == (other != second)


def test_an_address_that_moves_to_another_instance(config):
    first = config.instances[0]
    extra = replace(first.vips[0], address=IPv4Address("192.168.10.200"))
    other = replace(first, name="VI_2", vrid=52, vips=(extra,))
    before = replace(config, instances=(first, other))
    after = replace(config, instances=(replace(first, vips=()), replace(other, vips=(extra, *first.vips))))
    found = told(before, after)
    address = str(first.vips[0].address)
    assert f"VI_2 has {address} now: where both are MASTER, it stays on" in found["vrrp_instance", "VI_1"][2]
    assert f"as MASTER it puts on {address} on eth0" in found["vrrp_instance", "VI_2"][2]
    new = replace(config, instances=(replace(first, vips=()), replace(other, vrid=53, vips=first.vips)))
    assert not any(
        "stays on" in each for each in told(replace(config, instances=(first,)), new)["vrrp_instance", "VI_1"][2]
    )


def test_a_service_says_how_many_servers_it_has(config):
    server = config.virtual_servers[0]
    empty = replace(config, virtual_servers=())
    for number, words in ((0, "no real server"), (1, "1 real server"), (2, "2 real servers")):
        after = replace(config, virtual_servers=(replace(server, real_servers=server.real_servers[:number]),))
        assert told(empty, after)["virtual_server", SERVICE][1] == f"it is new, with {words}"


def test_addresses_that_come_and_go_name_their_interfaces(config):
    (vip,) = config.instances[0].vips
    others = tuple(
        replace(vip, address=IPv4Address(f"10.1.0.{number}"), interface=interface)
        for number, interface in ((1, "eth1"), (2, "eth1"), (3, "eth2"))
    )
    effects = told(config, with_instance(config, vips=others))["vrrp_instance", "VI_1"][2]
    assert "as MASTER it puts on 10.1.0.1, 10.1.0.2 on eth1, 10.1.0.3 on eth2" in effects
    assert f"as MASTER it takes off {vip.address} on eth0" in effects
