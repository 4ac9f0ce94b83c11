"""A MASTER in steady state leaves nothing for the garbage collector: no pause in which no advert leaves."""

from __future__ import annotations

import gc

from haxlb.model.instance import Role


def test_ten_thousand_adverts_start_no_collection(lan, instance):
    node = lan.node(1, instance(version=3, advert_interval_us=10_000))
    lan.run(1)
    assert node.role() is Role.MASTER
    node.write = lambda _: None  # the test's own records are no garbage of the speaker's
    sent = 0

    def send(_datagram):
        nonlocal sent
        sent += 1

    node.send = send
    gc.collect()
    gc.freeze()
    try:
        before = [each["collections"] for each in gc.get_stats()]
        lan.run(100)
        after = [each["collections"] for each in gc.get_stats()]
    finally:
        gc.unfreeze()
    assert sent == 10_000
    assert after == before
