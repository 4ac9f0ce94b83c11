"""What only the whole file can tell, each with the smallest file that shows it."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from haxlb.config import load
from haxlb.model.commands import Command
from haxlb.model.tracking import BfdSession, Track, TrackFile, TrackKind, TrackProcess, TrackScript
from tests.config.conftest import CONF, OnlyThese

ROOT = Path(__file__).parents[2]
TUTORIAL = sorted((ROOT / "docs" / "tutorial").glob("*.conf"))


def instance(name: str = "A", vrid: int = 1, *lines: str, vip: str = "10.0.0.1/24", interface: str = "eth0") -> str:
    own = "".join(f"{each}\n" for each in lines)
    return (
        f"vrrp_instance {name} {{\ninterface {interface}\nvirtual_router_id {vrid}\n{own}"
        f"virtual_ipaddress {{\n{vip}\n}}\n}}\n"
    )


def server(*lines: str, address: str = "10.0.0.1", reals: str = "10.0.0.5 80", check: str = "TCP_CHECK {\n}") -> str:
    own = "".join(f"{each}\n" for each in lines)
    return (
        f"virtual_server {address} 80 {{\nlb_algo rr\nlb_kind DR\nprotocol TCP\n{own}"
        f"real_server {reals} {{\n{check}\n}}\n}}\n"
    )


SCRIPT = "vrrp_script chk {\nscript /bin/true\n%s\n}\n"
TRACK = "track_script {\nchk%s\n}"


@pytest.fixture
def said(loading):
    """(severity, code, line) of every complaint but that a thing is not supported yet."""

    def of(text: str):
        found = [each for each in loading(text).diagnostics if each.code != "not-supported-yet"]
        return [(each.severity.value, each.code, each.span.line) for each in found]

    return of


PEERS = ("unicast_src_ip 10.0.0.8", "unicast_peer {", "10.0.0.9", "}")
RICK = ("unicast_src_ip 10.0.0.9", "unicast_peer {", "10.0.0.8", "}")


def pair(one: tuple[str, ...], other: tuple[str, ...]) -> str:
    """Two instances that see each other."""
    return instance("A", 1, *PEERS, *one) + instance("B", 1, *RICK, *other, interface="eth1", vip="10.0.0.2/24")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            instance("A", 1) + instance("B", 1, vip="10.0.0.2/24"), ("fatal", "duplicate-vrid", 10), id="vrid on a link"
        ),
        pytest.param(instance("A", 1) + instance("B", 1, vip="10.0.0.2/24", interface="eth1"), None, id="two links"),
        pytest.param(instance("A", 1) + instance("B", 2), ("error", "duplicate-vip", 12), id="vip in two instances"),
        pytest.param(
            instance(vip="10.0.0.1/24\n10.0.0.1/32"), ("warning", "duplicate-vip", 6), id="vip twice in an instance"
        ),
        pytest.param(instance() + server(address="10.0.0.9"), ("warning", "unowned-address", 8), id="unowned"),
        pytest.param(instance() + server(), None, id="owned"),
        pytest.param(server(), None, id="unowned without any instance"),
        pytest.param(
            instance("A", 1, "virtual_ipaddress_excluded {", "10.0.0.9/24", "}") + server(address="10.0.0.9"),
            None,
            id="owned by a block that is not supported",
        ),
        pytest.param(
            instance() + server().replace("protocol TCP\n", ""), ("warning", "missing-protocol", 8), id="no protocol"
        ),
        pytest.param(instance() + server(reals="10.0.0.5 81"), ("warning", "port-reset", 12), id="DR and ports"),
        pytest.param(
            instance("A", 1, "state MASTER", "priority 150", "nopreempt"),
            ("warning", "useless-nopreempt", 6),
            id="MASTER with nopreempt",
        ),
        pytest.param(instance("A", 1, "advert_int 1.5"), ("warning", "rounded-interval", 4), id="fractions in v2"),
        pytest.param(
            instance("A", 1, "authentication {", "auth_type PASS", "auth_pass 123456789", "}"),
            ("warning", "truncated-password", 6),
            id="long password",
        ),
        pytest.param(
            instance("A", 1, "version 3", "authentication {", "auth_type PASS", "auth_pass 1", "}"),
            ("warning", "unused-authentication", 5),
            id="password in v3",
        ),
        pytest.param(instance("A", 1, *PEERS), ("note", "unchecked-source", 1), id="unicast sources"),
        pytest.param(instance("A", 1, "check_unicast_src", *PEERS), None, id="checked unicast sources"),
        pytest.param(
            "global_defs {\nvrrp_check_unicast_src\n}\n" + instance("A", 1, *PEERS), None, id="checked by all"
        ),
        pytest.param(
            SCRIPT % "" + instance("A", 1, TRACK.replace("chk", "chck") % ""),
            ("error", "undefined-track", 9),
            id="undefined script",
        ),
        pytest.param(SCRIPT % "" + instance("A", 1, TRACK % ""), None, id="defined script"),
        pytest.param(instance("A", 1, TRACK % "") + SCRIPT % "", ("warning", "order", 5), id="script defined later"),
        pytest.param(instance() + SCRIPT % "", ("note", "unused-track", 8), id="script that nothing tracks"),
        pytest.param(
            "vrrp_script chk {\n}\n" + instance("A", 1, TRACK % ""), ("warning", "missing-keyword", 1), id="no script"
        ),
        pytest.param(
            SCRIPT % "interval 2\ntimeout 5" + instance("A", 1, TRACK % ""),
            ("note", "slow-script", 4),
            id="script's timeout",
        ),
        pytest.param(SCRIPT % "interval 2\ntimeout 2" + instance("A", 1, TRACK % ""), None, id="equal timeout"),
        pytest.param(
            SCRIPT % "weight -20" + instance("A", 1, "priority 15", TRACK % ""),
            ("warning", "clamped-priority", 10),
            id="clamped at 1",
        ),
        pytest.param(
            SCRIPT % "weight 20" + instance("A", 1, "priority 240", TRACK % ""),
            ("warning", "clamped-priority", 10),
            id="clamped at 254",
        ),
        pytest.param(
            SCRIPT % "weight 20" + instance("A", 1, "priority 240", TRACK % " weight 5"), None, id="its own weight"
        ),
        pytest.param(
            SCRIPT % "weight -20" + instance("A", 1, "priority 255", TRACK % ""),
            ("warning", "useless-weight", 10),
            id="weight of an owner",
        ),
        pytest.param(
            SCRIPT % "weight -20" + instance("A", 1, "nopreempt", TRACK % ""),
            ("note", "useless-weight", 10),
            id="weight with nopreempt",
        ),
        pytest.param(
            "global_defs {\nvrrp_strict\n}\n"
            + instance("A", 1, "authentication {", "auth_type PASS", "auth_pass 1", "}"),
            ("warning", "strict-conflict", 7),
            id="strict and authentication",
        ),
        pytest.param(
            "global_defs {\nvrrp_strict\nvrrp_check_unicast_src\n}\n" + instance("A", 1, *PEERS),
            ("fatal", "strict-conflict", 9),
            id="strict and unicast",
        ),
        pytest.param(
            instance("A", 1, "strict_mode true", "check_unicast_src", *PEERS),
            ("fatal", "strict-conflict", 7),
            id="strict by itself",
        ),
        pytest.param(
            "global_defs {\nvrrp_strict\nvrrp_check_unicast_src\n}\n" + instance("A", 1, "strict_mode off", *PEERS),
            None,
            id="not strict by itself",
        ),
        pytest.param(
            instance() + server("sorry_server 10.0.0.5 80"), ("warning", "sorry-is-real", 12), id="sorry is real"
        ),
        pytest.param(instance() + server("sorry_server 10.0.0.6 80"), None, id="sorry is another"),
        pytest.param(
            instance() + server("delay_loop 2", check="TCP_CHECK {\nconnect_timeout 3\n}"),
            ("note", "slow-probe", 12),
            id="slow probe",
        ),
        pytest.param(
            instance() + server("delay_loop 3", check="TCP_CHECK {\nconnect_timeout 3\n}"), None, id="fast enough"
        ),
        pytest.param(
            instance() + server("persistence_timeout 50").replace("lb_algo rr", "lb_algo sh"),
            ("note", "useless-persistence", 12),
            id="persistence and sh",
        ),
    ],
)
def test_a_file(said, text, expected):
    assert said(text) == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("virtual_router_id 1\n", "virtual_router_id 300\n"),
        ("interface eth0\n", ""),
        ("vrrp_instance A", "vrrp_instanec A"),
        ("virtual_ipaddress {", "virtual_ipadress {"),
    ],
)
def test_an_address_in_a_block_that_is_not_used_has_been_complained_of_there(loading, right, wrong):
    text = (instance() + server()).replace(right, wrong) + instance("B", 2, vip="10.0.0.2/24")
    found = loading(text).diagnostics
    assert {each.code for each in found} & {"bad-value", "missing-keyword", "not-supported-yet", "unknown-keyword"}
    assert "unowned-address" not in {each.code for each in found}


def test_a_real_server_of_this_address_does_not_own_it(said):
    text = instance() + server(address="10.0.0.9") + server(address="10.0.0.1", reals="10.0.0.9 80")
    assert said(text) == [("warning", "unowned-address", 8)]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "global_defs {\nrouter_id x\n}\n", SCRIPT % ""])
def test_a_file_without_anything_to_run(loading, text):
    (found,) = [each for each in loading(text).diagnostics if each.code == "nothing-to-do"]
    assert (found.severity.value, found.span[1:]) == ("warning", (1, 1, 1))


@pytest.mark.parametrize("text", ["virtul_server 10.0.0.1 80 {\n}\n", instance("A", 300), server()])
def test_a_mistake_is_not_nothing_to_do(loading, text):
    assert "nothing-to-do" not in {each.code for each in loading(text).diagnostics}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("priority 100",), ("priority 100",), ("warning", "equal-priority")),
        (("priority 150",), ("priority 100",), None),
        (("priority 150", TRACK % " weight -20"), ("priority 100",), ("warning", "useless-weight")),
        (("priority 150", TRACK % " weight -51"), ("priority 100",), None),
        (("priority 110", TRACK % " weight 20"), ("priority 100", TRACK % " weight 20"), None),
    ],
)
def test_two_that_see_each_other(said, one, other, expected):
    script = SCRIPT % "" if "track_script" in "".join(one) else ""
    text = "global_defs {\nvrrp_check_unicast_src\n}\n" + script + pair(one, other)
    found = said(text)
    assert [(severity, code) for severity, code, _ in found] == ([] if expected is None else [expected])
    assert all(text.splitlines()[line - 1].startswith("priority") for _, _, line in found)


def test_who_does_not_see_the_other_may_have_its_priority(said):
    text = instance("A", 1) + instance("B", 1, interface="eth1", vip="10.0.0.2/24")
    assert said(text) == []


def on_host(text: str, *, interfaces: tuple[str, ...] = ("eth0",), networks: tuple[str, ...] = ("10.0.0.0/24",)):
    loaded = load(
        CONF,
        settings=None,
        node="x",
        interfaces=frozenset(interfaces),
        networks=tuple(map(IPv4Network, networks)),
        reader=OnlyThese({CONF: text}),
    )
    return [(each.code, each.span.line) for each in loaded.diagnostics]


def test_a_server_that_dr_cannot_reach():
    text = instance() + server("sorry_server 10.9.9.9 80", reals="10.1.0.5 80")
    assert on_host(text) == [("off-link-server", 12), ("off-link-server", 13)]
    assert on_host(text, networks=("10.0.0.0/8",)) == []
    assert on_host(text, networks=()) == []
    assert on_host(text, networks=("172.16.0.0/12",)) == []  # not the director


def test_another_host_than_the_director_says_nothing_of_its_networks():
    text = instance(interface="eth7") + server(reals="10.1.0.5 80")
    assert on_host(text) == [("no-such-interface", 2)]


def test_addresses_stay_with_the_first_instance(loading):
    config = loading(instance("A", 1) + instance("B", 2, vip="10.0.0.1/24\n10.0.0.2/24")).config
    assert [[str(vip) for vip in each.vips] for each in config.instances] == [["10.0.0.1/24"], ["10.0.0.2/24"]]
    alone = instance("A", 1) + instance("B", 2, "version 3")
    assert [each.code for each in loading(alone).diagnostics] == ["no-vip", "duplicate-vip"]
    assert loading(alone).config is None


def test_what_is_tracked_as_values(loading):
    config = loading(
        "vrrp_script chk {\nscript \"/bin/check -x 'a b'\"\ninterval 2\nweight -20\nfall 3\nrise 2\ninit_fail\n}\n"
        "vrrp_script quoted {\nscript '/bin/a b'\n}\n"
        "track_file f {\nfile /run/f\n}\n"
        "vrrp_track_process p {\nprocess nginx -g\nweight 5 reverse\n}\n"
        "bfd_instance b {\nneighbour_ip 10.0.0.9\n}\n"
        + instance(
            "A",
            1,
            "track_process {\np\n}\ntrack_interface {\neth1 weight 10\n}\n"
            "track_script {\nchk\nquoted weight -5 reverse\n}\ntrack_file {\nf\n}\ntrack_bfd {\nb\n}",
        )
    ).config
    assert config.track_scripts == (
        TrackScript(
            name="chk",
            run=Command(argv=("/bin/check", "-x", "a b")),
            interval_us=2_000_000,
            timeout_us=2_000_000,
            weight=-20,
            fall=3,
            rise=2,
            init_fail=True,
        ),
        TrackScript(name="quoted", run=Command(argv=("/bin/a", "b"))),
    )
    assert config.track_files == (TrackFile(name="f", path="/run/f"),)
    assert config.track_processes == (
        TrackProcess(name="p", process="nginx", parameters=("-g",), match="exact", weight=5, reverse=True),
    )
    assert config.bfd_sessions == (BfdSession(name="b", neighbor="10.0.0.9"),)
    assert config.instances[0].tracks == (
        Track(kind=TrackKind.INTERFACE, name="eth1", weight=10),
        Track(kind=TrackKind.SCRIPT, name="chk", weight=-20),
        Track(kind=TrackKind.SCRIPT, name="quoted", weight=-5, reverse=True),
        Track(kind=TrackKind.FILE, name="f", weight=1),
        Track(kind=TrackKind.PROCESS, name="p", weight=5, reverse=True),
        Track(kind=TrackKind.BFD, name="b"),
    )


def test_values_of_a_script_that_cannot_be_used(said, loading):
    text = SCRIPT % "interval x\nfall 0\nweight 300" + instance("A", 1, TRACK % "")
    assert said(text) == [("error", "bad-value", line) for line in (3, 4, 5)]
    (script,) = loading(text).config.track_scripts
    assert (script.interval_us, script.fall, script.weight) == (1_000_000, 1, 0)


@pytest.mark.parametrize("path", TUTORIAL, ids=[each.name for each in TUTORIAL])
def test_the_tutorials_files_are_without_complaint(path):
    assert load(path, settings=None, node="lb1").diagnostics == ()


CORPUS = ROOT.parent / "shared" / "corpus"
FILES = sorted(each for each in CORPUS.glob("*/*") if each.is_file())
NEW = {
    "clamped-priority",
    "equal-priority",
    "off-link-server",
    "order",
    "slow-probe",
    "slow-script",
    "sorry-is-real",
    "strict-conflict",
    "unchecked-source",
    "undefined-track",
    "unowned-address",
    "unused-track",
    "useless-persistence",
    "useless-weight",
}


@pytest.mark.skipif(not FILES, reason="the corpus is not beside this repository")
def test_public_files_are_not_flooded():
    """Three such complaints a file at most; a warning or an error only where a look at the file confirmed it."""
    found = {
        path.name: [each for each in load(path, settings=None, node="high").diagnostics if each.code in NEW]
        for path in FILES
    }
    assert max(map(len, found.values())) <= 3
    loud = {
        (name, each.code) for name, complaints in found.items() for each in complaints if each.severity.value != "note"
    }
    assert loud == {
        ("c016-keepalived.conf", "useless-weight"),  # state MASTER without priority: 255
        ("c035-keepalived.conf", "undefined-track"),  # a template's script_name
        ("c061-keepalived-2-0-0.conf", "undefined-track"),
        ("keepalived.conf.SSL_GET", "unowned-address"),  # samples whose instances have other addresses
        ("keepalived.conf.sample", "unowned-address"),
    }


def test_interfaces_that_come_later(loading):
    text = instance("A", 1, "track_interface {\neth7 weight 5\n}", interface="eth9")
    exist = frozenset({"eth0"})
    assert loading(text, interfaces=exist).config is None
    loaded = loading("global_defs {\ndynamic_interfaces\n}\n" + text, interfaces=exist)
    assert [(each.severity.value, each.code) for each in loaded.diagnostics] == [("warning", "no-such-interface")] * 2
    assert loaded.config is not None


def test_a_misspelt_block_of_addresses_is_said_once(loading):
    text = instance("A", 1).replace("virtual_ipaddress {", "virtual_ipadress {")
    (found,) = loading(text).diagnostics
    assert (found.severity.value, found.code) == ("error", "unknown-keyword")
    # Without an address version 3 cannot run: that is what the misspelling means.
    (found,) = loading(text.replace("interface eth0", "interface eth0\nversion 3")).diagnostics
    assert (found.severity.value, found.code) == ("fatal", "unknown-keyword")


def test_a_second_group_of_services_of_one_name_is_said(loading):
    group = "virtual_server_group web {\n10.0.0.1 80\n}\n"
    loaded = loading(group + group.replace("10.0.0.1", "10.0.0.2"))
    (found,) = [each for each in loaded.diagnostics if each.code == "duplicate-name"]
    assert (found.severity.value, found.span.line) == ("error", 4)
    assert [str(each) for each in loaded.config.virtual_server_groups[0].ranges] == ["10.0.0.1 port 80"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(instance("A", 1, "use_vmac") + server(), id="virtual-mac"),
        pytest.param(
            instance("A", 1, "use_vmac", "virtual_ipaddress_excluded {", "10.0.0.2", "}") + server(address="10.0.0.2"),
            id="excluded",
        ),
        pytest.param(instance("A", 1, "use_vmac_addr", vip="10.0.0.1/24 dev eth1") + server(), id="another-device"),
        pytest.param(instance("A", 1, "use_ipvlan 10.0.0.8") + server(), id="ipvlan"),
    ],
)
def test_a_service_is_served_whatever_mac_its_address_has(said, text):
    assert said(text) == []


WEIGHING = "vrrp_sync_group G {\ngroup {\nA\nB\n}\nsync_group_tracking_weight\n%s\n}\n"


def test_a_weight_of_one_member_that_cannot_move_its_group_is_said(loading):
    text = WEIGHING % "" + SCRIPT % "weight -20" + instance("A", 1, TRACK % "") + instance("B", 2, vip="10.0.0.2/24")
    (found,) = loading(text).diagnostics
    assert (found.severity.value, found.code, found.span.line) == ("warning", "lone-weight", 17)
    assert found.message == (
        "chk changes the priority of A only, and B of vrrp_sync_group G keeps its priority:"
        " the peer's group takes over only when every member of it is better"
    )


@pytest.mark.parametrize(
    ("group", "second"),
    [
        pytest.param("", TRACK % "", id="both-track-it"),
        pytest.param("", "track_interface {\neth1 weight 5\n}", id="the-other-one-moves-too"),
        pytest.param("track_interface {\neth1 weight 5\n}", "", id="the-group-moves-all"),
    ],
)
def test_a_weight_that_can_move_its_group_is_not_complained_of(said, group, second):
    first = instance("A", 1, TRACK % "")
    text = WEIGHING % group + SCRIPT % "weight -20" + first + instance("B", 2, second, vip="10.0.0.2/24")
    assert "lone-weight" not in {code for _, code, _ in said(text)}
