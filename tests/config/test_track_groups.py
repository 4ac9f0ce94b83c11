"""track_group: static entries that instances depend on."""

from __future__ import annotations

import pytest

from haxlb.config.printer import keepalived_conf
from haxlb.model.groups import TrackGroup
from haxlb.model.tracking import Track, TrackKind

GROUP = "track_group G {\n group {\n  A\n }\n}\n"
INSTANCE = "vrrp_instance %s {\ninterface eth0\nvirtual_router_id %d\n%s\nvirtual_ipaddress {\n10.0.0.%d\n}\n}\n"
INSTANCES = INSTANCE % ("A", 1, "", 1) + INSTANCE % ("B", 2, "", 2)
ADDRESS = "static_ipaddress {\n10.1.0.1/24 dev eth1 track_group G\n}\n"


def interface(name: str) -> Track:
    return Track(kind=TrackKind.INTERFACE, name=name)


def tracks(loaded):
    return [each.tracks for each in loaded.config.instances]


@pytest.mark.parametrize(
    "entry",
    [
        ADDRESS,
        "static_routes {\n10.2.0.0/16 via 10.1.0.2 dev eth1 track_group G\n}\n",
        "static_rules {\nfrom 10.2.0.0/16 iif eth1 table 7 preference 5 track_group G\n}\n",
    ],
)
def test_its_instances_track_the_interface_of_the_entry(loading, codes, entry):
    loaded = loading(GROUP + entry + INSTANCES)
    assert codes(loaded) == []
    assert tracks(loaded) == [(interface("eth1"),), ()]
    assert loaded.config.track_groups == (TrackGroup(name="G", members=("A",)),)
    assert loading(keepalived_conf(loaded.config)).config == loaded.config


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("track_interface {\neth1 weight 10\neth2 weight 5\n}", ("eth1 weight 0", "eth2 weight 5")),
        ("track_interface {\neth1\n}", ("eth1 weight 0",)),
        ("dont_track_primary", ("eth1 weight 0", "eth0 weight 0")),
        ("dont_track_primary\ntrack_interface {\neth2\n}", ("eth2 weight 0", "eth1 weight 0", "eth0 weight 0")),
        ("", ("eth1 weight 0",)),
    ],
)
def test_beside_what_an_instance_tracks_itself(loading, codes, lines, expected):
    static = "static_ipaddress {\n10.0.0.9/24 dev eth0 track_group G\n10.1.0.1/24 dev eth1 track_group G\n}\n"
    loaded = loading(GROUP + static + INSTANCE % ("A", 1, lines, 1))
    assert codes(loaded) == []
    assert tuple(map(str, tracks(loaded)[0])) == expected
    assert loading(keepalived_conf(loaded.config)).config == loaded.config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GROUP + ADDRESS.replace("group G", "group H"), ("error", "undefined-track")),
        (GROUP + ADDRESS.replace("dev eth1", "dev eth1 no_track"), ("warning", "useless-option")),
        (GROUP + "static_routes {\n10.2.0.0/16 via 10.1.0.2 track_group G\n}\n", ("warning", "useless-option")),
        (GROUP.replace("A", "A\nN") + ADDRESS, ("error", "undefined-member")),
        (GROUP + GROUP + ADDRESS, ("error", "duplicate-name")),
        ("track_group G {\n}\n" + ADDRESS, ("error", "missing-keyword")),
        ("track_group G {\ngroup {\nN\n}\n}\n" + ADDRESS, ("error", "undefined-member")),
    ],
)
def test_what_is_said_of_mistakes(loading, codes, text, expected):
    loaded = loading(text + INSTANCES)
    assert codes(loaded) == [expected]
    assert loaded.config is not None


def test_an_interface_that_there_is_not_is_down(loading, codes):
    loaded = loading(GROUP + ADDRESS + INSTANCES, interfaces=frozenset({"eth0"}))
    assert codes(loaded) == [("warning", "no-such-interface")]
    assert tracks(loaded)[0] == (interface("eth1"),)
