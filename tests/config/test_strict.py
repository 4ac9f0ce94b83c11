"""vrrp_strict and what comes of it."""

from __future__ import annotations

import pytest

from haxlb.model.instance import Role, VirtualMac

STRICT = "global_defs {\nvrrp_strict\n}\n"


def test_what_it_means(instance):
    made, said = instance(before=STRICT)
    assert said == []
    assert (made.strict, made.lower_prio_no_advert, made.higher_prio_send_advert, made.accept) == (
        True,
        True,
        False,
        False,
    )
    assert (made.garp.lower_prio_repeat, made.garp.lower_prio_delay_us) == (0, 0)
    assert (made.initial_role, made.owner_ignore_adverts) == (Role.BACKUP, False)


def test_the_owner(instance):
    made, said = instance("priority 255", "nopreempt", before=STRICT)
    assert (made.initial_role, made.accept, made.owner_ignore_adverts) == (Role.MASTER, True, True)
    assert said == [("warning", "useless-nopreempt")]


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        (("state MASTER", "priority 150"), {"initial_role": Role.BACKUP}),
        (("state BACKUP", "priority 255"), {"initial_role": Role.MASTER}),
        (("down_timer_adverts 5",), {"down_timer_adverts": 3}),
        (("lower_prio_no_advert false",), {"lower_prio_no_advert": True}),
        (("higher_prio_send_advert",), {"higher_prio_send_advert": False}),
        (("accept",), {"accept": False}),
        (("authentication {", "auth_type PASS", "auth_pass x", "}"), {"auth_pass": None}),
    ],
)
def test_what_is_reset(instance, lines, fields):
    made, said = instance(*lines, before=STRICT)
    assert {name: getattr(made, name) for name in fields} == fields
    assert said == [("warning", "strict-conflict")]


def test_the_mac_is_the_rfcs(instance):
    made, said = instance("use_vmac vrrp.1 02:00:00:00:00:01", before=STRICT)
    assert made.virtual_mac == VirtualMac(interface="vrrp.1", mac="00:00:5e:00:01:33")
    assert said == [("warning", "strict-conflict")]


def test_packets_may_be_accepted_in_version_3(instance):
    made, said = instance("version 3", "accept", before=STRICT)
    assert (made.accept, said) == (True, [])


def test_preempt_delay(instance):
    made, said = instance("preempt_delay 5", before=STRICT)
    assert (made.preempt_delay_us, said) == (0, [("warning", "useless-preempt-delay")])


def test_unicast_is_fatal_as_in_keepalived(instance):
    made, said = instance("unicast_peer {", "10.0.0.9", "}", "check_unicast_src", before=STRICT)
    assert (made, said) == (None, [("fatal", "strict-conflict")])


def test_an_instance_can_be_without_it(instance):
    made, said = instance("strict_mode off", "state MASTER", "priority 9", before=STRICT)
    assert (made.strict, made.initial_role, made.accept, said) == (False, Role.MASTER, True, [])


def test_an_address_is_needed(loading):
    text = "vrrp_instance A {\ninterface eth0\nvirtual_router_id 1\nstrict_mode\n}\n"
    assert loading(text).config is None
