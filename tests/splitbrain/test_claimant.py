from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.splitbrain import Claimant, PublishClaim

FAST = VrrpInstance(name="VI_1", interface="eth0", vrid=51, version=3, advert_interval_us=100_000)
SLOW = VrrpInstance(name="VI_2", interface="eth0", vrid=52, advert_interval_us=5 * SECOND_US)


def changed(instance: VrrpInstance, after: Role) -> RoleChanged:
    return RoleChanged(
        instance=instance.name,
        vrid=instance.vrid,
        before=Role.BACKUP,
        after=after,
        reason="a test",
        priority=100,
        at_us=0,
    )


def claim(instance: VrrpInstance, *, master: bool) -> PublishClaim:
    return PublishClaim(instance=instance.name, vrid=instance.vrid, master=master)


def claimant() -> Claimant:
    out = Claimant()
    out.configure((FAST, SLOW))
    return out


def test_claims_on_entering_master_and_withdraws_on_leaving() -> None:
    one = claimant()
    assert one.handle(changed(FAST, Role.MASTER), 0) == [claim(FAST, master=True)]
    assert one.standing() == [claim(FAST, master=True)]
    assert one.handle(changed(FAST, Role.BACKUP), 1) == [claim(FAST, master=False)]
    assert one.next_deadline() is None


def test_a_backup_that_was_never_master_says_nothing() -> None:
    one = claimant()
    assert one.handle(changed(FAST, Role.BACKUP), 0) == []
    assert one.handle(changed(FAST, Role.FAULT), 0) == []


def test_repeats_once_per_interval_at_most_once_a_second() -> None:
    one = claimant()
    one.handle(changed(FAST, Role.MASTER), 0)
    one.handle(changed(SLOW, Role.MASTER), 0)
    said: list[tuple[int, str]] = []
    while (deadline := one.next_deadline()) is not None and deadline <= 10 * SECOND_US:
        said += [(deadline // SECOND_US, each.instance) for each in one.handle_timer(deadline)]
    assert [at for at, name in said if name == "VI_1"] == list(range(1, 11))
    assert [at for at, name in said if name == "VI_2"] == [5, 10]


def test_an_instance_that_is_gone_takes_its_claim_back() -> None:
    one = claimant()
    one.handle(changed(SLOW, Role.MASTER), 0)
    assert one.configure((FAST,)) == [claim(SLOW, master=False)]
    assert one.standing() == []
