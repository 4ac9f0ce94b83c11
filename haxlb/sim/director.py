"""A virtual director: a kernel that outlives its processes, and haxlb's processes, which can be stopped and killed.

What is virtual is the host around them: a stopped process leaves its socket filling and its addresses expiring, a
killed one leaves them to the supervisor or to their lifetimes, and the forwarder goes on for as long as there is power.
"""

from __future__ import annotations

from haxlb.model.node import NodeConfig
from haxlb.model.units import SECOND_US
from haxlb.sim.membership import Process
from haxlb.sim.processes import Processes
from haxlb.sim.tracked import Health, Key


class Director(Processes):
    """One director."""

    # -- what can be done to it

    def power_on(self) -> None:
        """Boot: links up, haxlb started."""
        self.powered = True
        self.kernel.boot(self._random.randrange(1_000_000, 1_000_000_000), self._world.loop.now_us)
        self._note("power on, haxlb starts")
        self.start()

    def start_again(self) -> None:
        """`systemctl start haxlb`."""
        self._note("haxlb is started")
        self.start()

    def stop(self, reason: str) -> None:
        """Orderly: `systemctl stop haxlb`. The forwarder stays."""
        self._note(f"haxlb stops in order: {reason}")
        self.speaker.stop(reason)
        self._world.look()
        self._die()

    def kill_supervisor(self) -> None:
        """SIGKILL for the supervisor: the other processes find their pipes closed, and the speaker hands over."""
        self._note("the supervisor is killed: the speaker resigns and ends")
        self.speaker.stop("the supervisor is gone")
        self._world.look()
        self._die()

    def kill(self) -> None:
        """SIGKILL for all of haxlb: nobody is left to clean up but the kernel."""
        self._note("all processes of haxlb are killed")
        self._die()
        self._expire_later()

    def kill_speaker(self) -> None:
        """SIGKILL for the speaker alone: the supervisor resigns for it and starts another."""
        self._note("the speaker is killed")
        self._estate.statuses = self.speaker.status(self._epoch_us())
        self._close_speaker()
        self.roles = {}
        self._bereave_later()

    def freeze(self) -> None:
        """SIGSTOP for all of haxlb, or a hypervisor that steals its time; the kernel goes on."""
        self._note("all processes of haxlb are frozen")
        self._stand_still()
        self._expire_later()

    def thaw(self) -> None:
        """They run again, and find the time passed: what comes first is chance."""
        self._note("the processes run again")
        self._proceed()

    def suspend(self) -> None:
        """The whole host stands still: the kernel, too, hears and forwards nothing, and no lifetime runs out."""
        self._note("the host is suspended")
        self.suspended = True
        self._slept_at_us = self._world.loop.now_us
        self._stand_still()
        self.kernel.sleep(asleep=True)

    def resume_host(self, *, clock_stood: bool) -> None:
        """It goes on. `clock_stood`: its monotonic clock has not counted the time (as CLOCK_MONOTONIC does not)."""
        self._note(f"the host goes on{', its clock has stood' if clock_stood else ''}")
        self.suspended = False
        self.kernel.sleep(asleep=False)
        if clock_stood:
            self._clock.offset_us -= self._world.loop.now_us - self._slept_at_us
        self._proceed()

    def jump_wall_clock(self, by_us: int) -> None:
        """Somebody sets the time of day."""
        self._note(f"the time of day jumps by {by_us / SECOND_US:+.0f} s")
        self.wall_offset_us += by_us

    def reload(self, config: NodeConfig, what: str) -> None:
        """`haxlb reload`: the same instances (interface, VRID, family) with other settings or names."""
        self._note(f"reload: {what}")
        names = {each.key: each.name for each in self.config.instances}
        renamed = {names[each.key]: each.name for each in config.instances if names[each.key] != each.name}
        self.config = config
        self.roles = {renamed.get(name, name): role for name, role in self.roles.items()}
        by_key = {each.key: each for each in config.instances}
        for each in self.memberships:
            each.reloaded |= each.instance != by_key[each.instance.key]
            each.instance = by_key[each.instance.key]
            each.names.append(each.instance.name)
            each.slowest_us = max(each.slowest_us, each.instance.advert_interval_us)
        self.bench.configure(config)
        self.bench.accounts.renamed(renamed)
        self.bench.disturb()
        if self._supervisor is not None:
            self._supervisor.reload(config)
        if self._speaker is not None:
            self._speaker.configure(config.instances, config.sync_groups, config.speaker)
            self._tell_priorities()
        self._start_tracker()
        self._world.laws.restart(self.memberships)
        self._world.touch()

    def set_health(self, key: Key, health: Health) -> None:
        """Something that is tracked is so from now on."""
        self._note(f"{key[0].value} {key[1]} is {health.value}")
        self.health[key] = health
        if self._tracking is not None:
            self._tracking.look(key)

    def power_off(self) -> None:
        """Gone, as by a pulled plug."""
        self._note("power off")
        if self._supervisor is not None:
            self._supervisor.lose_power()
            self._supervisor = None
        self._die()
        self.powered = self.suspended = False
        self.kernel.halt()

    def unplug(self) -> None:
        """All cables are pulled; the host sees its carriers go."""
        self._note("all links lost")
        self._set_carriers(up=False, interfaces=tuple(self.nics))

    def plug(self) -> None:
        """All cables are back."""
        self._note("all links are back")
        self._set_carriers(up=True, interfaces=tuple(self.nics))

    def set_link(self, interface: str, *, up: bool) -> None:
        """One cable, out or in."""
        self._note(f"{interface} {'is back' if up else 'lost'}")
        self._set_carriers(up=up, interfaces=(interface,))

    def hand_over(self, reason: str) -> None:
        """`haxlb failover`."""
        self._note(f"asked to hand over: {reason}")
        self.speaker.hand_over((), reason)

    def resume(self) -> None:
        """`haxlb resume`."""
        self._note("resumes")
        self.speaker.resume()

    def _stand_still(self) -> None:
        self.bench.pause()
        self.process = Process.FROZEN
        self._life += 1
        if self._supervisor is not None:
            self._supervisor.freeze()
        self._world.touch()

    def _proceed(self) -> None:
        self.process = Process.RUNNING
        self._life += 1
        self.bench.proceed()
        if self.addresses.held:
            self.addresses.renew()
        missed, self._missed = self._missed, {}
        todo = list(missed.values())
        self._random.shuffle(todo)
        for each in todo:
            each()
        if self._supervisor is not None:
            self._supervisor.thaw()
            if self._speaker is None:
                # It died before the supervisor was stopped, which finds that out now.
                self._bereave_later()
        self._world.touch()
