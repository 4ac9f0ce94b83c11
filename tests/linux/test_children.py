from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from haxlb.daemon.messages import AskStatus, Logged, Stop
from haxlb.linux.children import Children, dying
from haxlb.linux.instance_lock import InstanceLock, RouterLocks
from haxlb.linux.niceness import SUPERVISOR_NICE
from haxlb.linux.offspring import Cradle, start
from haxlb.model.errors import HostError
from haxlb.model.instance import VrrpInstance

ECHO = """
import argparse, asyncio, os, sys
from haxlb.daemon.messages import AskStatus, Logged, Stop
from haxlb.linux.pipe import Pipe

async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    pipe = Pipe(parser.parse_known_args()[0].fd)
    pipe.log("info", "hello", pid=os.getpid())
    async for message in pipe:
        if isinstance(message, AskStatus) and message.ticket == 13:
            os.write(pipe._socket.fileno(), b"not a message\\n")
        elif isinstance(message, AskStatus):
            for number in range(message.ticket):
                pipe.log("info", "last_words", number=number)
            await pipe.drained(60)
            os._exit(7)
        elif isinstance(message, Stop):
            return
    sys.exit(9)

asyncio.run(main())
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / "hx_echo_child.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return {"speaker": "hx_echo_child", "checker": "hx_echo_child"}


class World:
    def __init__(self, modules: dict[str, str], cradle: Cradle | None = None) -> None:
        self.said: list[tuple[str, object]] = []
        self.malformed: list[str] = []
        self.exits: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.heard = asyncio.Event()
        self.children = Children(
            on_message=self._hear,
            on_exit=self._end,
            on_malformed=lambda name, _: self.malformed.append(name),
            modules=modules,
            cradle=cradle,
        )

    def _hear(self, name: str, message: object) -> None:
        self.said.append((name, message))
        self.heard.set()

    def _end(self, name: str, code: int) -> None:
        self.said.append((name, "dead"))
        self.exits.put_nowait((name, code))

    async def hello(self) -> None:
        await self.heard.wait()

    async def exit(self) -> tuple[str, int]:
        return await asyncio.wait_for(self.exits.get(), 60)


def test_a_child_is_started_told_and_its_orderly_end_is_seen(modules):
    async def scene():
        world = World(modules)
        pid = world.children.start("speaker")
        await world.hello()
        assert world.said == [("speaker", Logged(level="info", event="hello", fields={"pid": str(pid)}))]
        world.children.send("speaker", Stop())
        assert await world.exit() == ("speaker", 0)
        world.children.send("speaker", Stop())  # nobody is there: nothing happens

    asyncio.run(scene())


def test_one_that_is_killed_when_it_has_just_died_is_reaped_all_the_same(modules):
    async def scene():
        world = World(modules)
        pid = world.children.start("speaker")
        await world.hello()
        os.kill(pid, signal.SIGTERM)
        # Dead, and the loop has not been told.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        world.children.kill("speaker")
        assert await world.exit() == ("speaker", -signal.SIGTERM)

    asyncio.run(scene())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a negative nice value")
def test_a_speaker_imports_before_what_else_the_host_computes(modules):
    async def scene():
        world = World(modules)
        urgent, other = world.children.start("speaker"), world.children.start("checker")
        assert os.getpriority(os.PRIO_PROCESS, urgent) == SUPERVISOR_NICE
        assert os.getpriority(os.PRIO_PROCESS, other) == os.getpriority(os.PRIO_PROCESS, 0)
        for name in ("speaker", "checker"):
            world.children.kill(name)
            await world.exit()

    asyncio.run(scene())


def test_the_last_words_of_a_dead_child_come_before_its_death(modules):
    async def scene():
        world = World(modules)
        world.children.start("checker")
        await world.hello()
        world.children.send("checker", AskStatus(ticket=1000))
        assert await world.exit() == ("checker", 7)
        assert world.said[-1] == ("checker", "dead")
        assert sum(message.event == "last_words" for _, message in world.said[:-1]) == 1000

    asyncio.run(scene())


def test_a_killed_child_is_known_by_its_signal_and_may_be_started_again(modules):
    async def scene():
        world = World(modules)
        first = world.children.start("speaker")
        await world.hello()
        world.children.kill("speaker")
        assert await world.exit() == ("speaker", -signal.SIGKILL)
        world.heard.clear()
        assert world.children.start("speaker") != first
        await world.hello()
        world.children.kill("speaker")
        await world.exit()

    asyncio.run(scene())


RECORDING = ECHO.replace(
    "    pipe.log(",
    """    from haxlb.linux.flight_recorder import FlightRecorder
    parser.add_argument("--recorder", type=int)
    recorder = FlightRecorder(parser.parse_known_args()[0].recorder)
    recorder.configure([("eth0", 51), ("eth0", 52)])
    recorder.sent(("eth0", 52), os.getpid())
    pipe.log(""",
    1,
)


@pytest.fixture
def recording_modules(tmp_path, modules):
    (tmp_path / "hx_recording_child.py").write_text(RECORDING)
    return {**modules, "speaker": "hx_recording_child", "spare": "hx_recording_child"}


def test_a_child_that_gets_another_name_is_heard_and_mourned_under_it(recording_modules):
    async def scene():
        world = World(recording_modules)
        speaker = world.children.start("speaker")
        await world.hello()
        world.heard.clear()
        spare = world.children.start("spare")
        await world.hello()
        assert [name for name, _ in world.said] == ["speaker", "spare"]
        world.children.kill("speaker")
        assert await world.exit() == ("speaker", -signal.SIGKILL)
        assert world.children.recorded("speaker")[:3] == (0, speaker, 0)
        world.children.rename("spare", "speaker")
        world.children.rename("nobody", "speaker")
        world.children.send("speaker", AskStatus(ticket=1))
        assert await world.exit() == ("speaker", 7)
        assert [name for name, _ in world.said[2:]] == ["speaker"] * 3  # dead, last words, dead
        assert world.children.recorded("speaker")[:3] == (0, spare, 0)
        assert world.children.recorded("checker") == ()

    asyncio.run(scene())


def test_a_malformed_line_is_reported_and_the_child_is_heard_on(modules):
    async def scene():
        world = World(modules)
        world.children.start("speaker")
        await world.hello()
        world.children.send("speaker", AskStatus(ticket=13))
        world.children.send("speaker", Stop())
        assert await world.exit() == ("speaker", 0)
        assert world.malformed == ["speaker"]

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("code", "returncode"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9), ("pass", 0)]
)
def test_who_runs_no_code_any_more_is_dying(code, returncode):
    process = subprocess.Popen([sys.executable, "-c", code])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not buried
    assert dying(process.pid) == returncode
    process.wait()
    assert dying(process.pid) is None


def test_who_runs_is_not_dying():
    assert dying(os.getpid()) is None


def test_a_child_that_closes_its_pipe_and_runs_on_is_not_dead(tmp_path, modules):
    (tmp_path / "hx_lingering_child.py").write_text(
        "import os, sys, time\nos.close(int(sys.argv[2]))\ntime.sleep(600)\n"
    )

    async def scene():
        world = World({**modules, "checker": "hx_lingering_child"})
        world.children.start("checker")
        listening = world.children._children["checker"].listening
        await asyncio.wait((listening,), timeout=60)
        await asyncio.sleep(0)  # its callbacks
        assert world.exits.empty()
        world.children.kill("checker")
        assert await world.exit() == ("checker", -signal.SIGKILL)

    asyncio.run(scene())


def open_descriptors() -> int:
    gc.collect()  # what other tests have left is not closed between two counts
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_do_not_pile_up(modules):
    async def scene():
        world = World(modules)

        async def once() -> None:
            pidfd = os.pidfd_open(world.children.start("speaker"))
            world.children.kill("speaker")
            await world.exit()
            # Its last descriptor goes when the kernel has buried it.
            loop = asyncio.get_running_loop()
            buried = asyncio.Event()
            loop.add_reader(pidfd, buried.set)
            await asyncio.wait_for(buried.wait(), 60)
            loop.remove_reader(pidfd)
            os.close(pidfd)

        await once()
        before = open_descriptors()
        for _ in range(3):
            await once()
        assert open_descriptors() == before

    asyncio.run(scene())


# -- the lock


def test_one_lock_per_directory(tmp_path):
    lock = InstanceLock(tmp_path / "run")
    with pytest.raises(HostError) as caught:
        InstanceLock(tmp_path / "run")
    assert f"pid {os.getpid()}" in caught.value.message
    assert "--runtime-dir" in caught.value.remedy
    InstanceLock(tmp_path / "other").release()
    lock.release()
    InstanceLock(tmp_path / "run").release()


FIRST, SECOND = (f"hxt{os.getpid()}{each}" for each in "ab")
"""The locks are the host's: another run of these tests has other interfaces."""


def test_one_haxlb_per_virtual_router_of_a_host():
    def instance(interface: str, vrid: int) -> VrrpInstance:
        return VrrpInstance(name="VI", interface=interface, vrid=vrid)

    held = RouterLocks([instance(FIRST, 51), instance(FIRST, 52)])
    with pytest.raises(HostError, match=rf"^another haxlb runs VRID 52 on {FIRST} of this host: pid {os.getpid()}"):
        RouterLocks([instance(SECOND, 52), instance(FIRST, 52)])
    # What the refused one had taken before is free again.
    RouterLocks([instance(SECOND, 52)]).release()
    held.release()
    RouterLocks([instance(FIRST, 52)]).release()


def test_a_reload_claims_virtual_routers_and_gives_up_those_that_leave():
    def instance(vrid: int) -> VrrpInstance:
        return VrrpInstance(name="VI", interface=FIRST, vrid=vrid)

    ours, others = RouterLocks([instance(51)]), RouterLocks([instance(53)])
    ours.claim([instance(51), instance(52)])
    with pytest.raises(HostError, match=rf"^another haxlb runs VRID 53 on {FIRST} of this host") as caught:
        ours.claim([instance(51), instance(54), instance(53)])
    assert "take that virtual router out" in caught.value.remedy
    others.claim([instance(54)])  # the refused reload has kept nothing of what it claimed first
    with pytest.raises(HostError):
        others.claim([instance(52)])
    ours.keep([instance(51)])
    others.claim([instance(52)])
    with pytest.raises(HostError):
        others.claim([instance(51)])
    ours.release()
    others.claim([instance(51)])
    others.release()


def test_the_virtual_routers_of_both_families_may_share_a_vrid():
    """RFC 9568 section 5.2.3."""
    four = VrrpInstance(name="VI_4", interface=FIRST, vrid=51)
    six = VrrpInstance(name="VI_6", interface=FIRST, vrid=51, family=6)
    held = RouterLocks([four, six])
    with pytest.raises(HostError, match=f"^another haxlb runs VRID 51 on {FIRST} of this host"):
        RouterLocks([six])
    held.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(("kind", "listens"), [("STREAM", True), ("STREAM", False), ("DGRAM", False)])
def test_no_other_user_can_keep_a_director_from_starting(kind, listens):
    squatting = (
        f"import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX, socket.SOCK_{kind});"
        f"s.bind('\\0haxlb/{FIRST}/9/4'); {'s.listen();' if listens else ''}"
        "print('there', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", squatting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as squatter:
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == "there\n"
        RouterLocks([VrrpInstance(name="VI", interface=FIRST, vrid=9)]).release()
        squatter.communicate("")


def test_the_lock_ends_with_its_process(tmp_path):
    code = (
        f"from haxlb.linux.instance_lock import InstanceLock as L; from pathlib import Path; L(Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-c", code + "; import os; os.kill(os.getpid(), 9)"], check=False)
    InstanceLock(tmp_path).release()


def test_a_runtime_directory_that_cannot_be_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="cannot use the runtime directory"):
        InstanceLock(tmp_path / "file" / "below")


def test_a_runtime_directory_without_room_is_one_line(tmp_path):
    code = (
        "import resource, signal; from pathlib import Path\n"
        "from haxlb.linux.instance_lock import InstanceLock; from haxlb.model.errors import HostError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try:\n    InstanceLock(Path('.'))\nexcept HostError as problem:\n    print(problem.message)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "cannot use the runtime directory .: File too large\n"


def test_a_lock_file_that_is_removed_while_it_is_being_locked_is_made_anew(tmp_path):
    """Else two could hold a lock, on two files of one name."""

    class Late(InstanceLock):
        late = False

        def _hold(self, runtime_dir: Path) -> None:
            if not self.late:
                (tmp_path / "haxlb.pid").unlink()
            self.late = True
            super()._hold(runtime_dir)

    lock = Late(tmp_path)
    with pytest.raises(HostError, match="another haxlb"):
        InstanceLock(tmp_path)
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_leaves_no_file_but_that_of_another_haxlb(tmp_path):
    lock = InstanceLock(tmp_path)
    (tmp_path / "haxlb.pid").unlink()
    other = InstanceLock(tmp_path)
    lock.release()
    assert (tmp_path / "haxlb.pid").read_text() == f"{os.getpid()}\n"
    with pytest.raises(HostError, match="another haxlb"):
        InstanceLock(tmp_path)
    other.release()
    assert list(tmp_path.iterdir()) == []


def test_a_planted_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / "haxlb.pid").symlink_to(victim)
    with pytest.raises(HostError):
        InstanceLock(run)
    assert victim.read_text() == "precious"


def test_missing_capabilities_are_named(tmp_path):
    from haxlb.linux.supervisor_main import check_capabilities
    from haxlb.model.errors import NotPermitted

    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapEff:\t0000000000001000\n")  # CAP_NET_ADMIN only
    with pytest.raises(NotPermitted, match=r"^haxlb run lacks CAP_NET_RAW \("):
        check_capabilities(status)
    status.write_text("CapEff:\t000001ffffffffff\n")
    check_capabilities(status)


def test_systemd_is_told_and_children_are_not(tmp_path, monkeypatch):
    import socket

    from haxlb.linux.systemd import notify, take_notify_socket

    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        address = take_notify_socket()
        assert "NOTIFY_SOCKET" not in os.environ
        notify(address, "READY=1", "STATUS=MASTER")
        assert manager.recv(100) == b"READY=1\nSTATUS=MASTER"
    notify(address, "STOPPING=1")  # the manager is gone: no error
    notify("", "READY=1")
    assert Path(path).exists()


def test_the_speaker_that_waits_is_taken(modules):
    async def scenario(cradle, pid):
        world = World(modules, cradle)
        world.children.start("checker")
        assert world.children.start("speaker") == pid
        await world.hello()
        world.children.send("speaker", Stop(reason="test"))
        world.children.send("checker", Stop(reason="test"))
        return sorted([await world.exit(), await world.exit()])

    waiting = start("speaker", modules["speaker"])
    with Cradle(waiting) as cradle:
        assert asyncio.run(scenario(cradle, waiting.process.pid)) == [("checker", 0), ("speaker", 0)]
    assert waiting.process.returncode == 0


def test_a_speaker_that_is_not_wanted_is_ended(modules):
    waiting = start("speaker", modules["speaker"])
    with Cradle(waiting):
        pass
    assert waiting.process.returncode == -signal.SIGKILL


def test_in_the_place_of_one_that_has_died_waiting_another_one_is_started(modules):
    async def scenario(cradle, pid):
        world = World(modules, cradle)
        assert world.children.start("speaker") != pid
        world.children.send("speaker", Stop(reason="test"))
        return await world.exit()

    waiting = start("speaker", "no.such.module")
    assert waiting.process.wait(60) == 1
    with Cradle(waiting) as cradle:
        assert asyncio.run(scenario(cradle, waiting.process.pid)) == ("speaker", 0)


def test_it_ends_by_itself_when_whoever_started_it_is_gone(modules):
    waiting = start("speaker", modules["speaker"])
    waiting.end.close()
    assert waiting.process.wait(60) == 9, "the end of its pipe"
    waiting.dismiss()
