"""A daemon that answers as it is told, on a real control socket, and a full status to show."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from haxlb.daemon.control import Answer, Request, Step
from haxlb.linux.control_socket import ControlSocket
from haxlb.model.instance import Role
from haxlb.model.status import (
    AlarmStatus,
    DataPlaneStatus,
    InstanceStatus,
    LinkStatus,
    NodeStatus,
    PeerStatus,
    ProcessStatus,
    RealServerStatus,
    VirtualServerStatus,
)

NOW = 1_800_000_000.0


def real_server(last: int, **changes: object) -> RealServerStatus:
    fields: dict[str, object] = {
        "address": IPv4Address(f"192.168.10.{last}"),
        "port": 80,
        "weight": 1,
        "up": True,
        "in_pool": True,
        "reason": "GET /health: 200",
        "since_at": NOW - 60,
        "mac": f"02:00:00:00:00:{last}",
        "packets": 7,
        "bytes": 700,
        "flows": 3,
    }
    return RealServerStatus(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def status() -> NodeStatus:
    return NodeStatus(
        node="lb1",
        version="0.1.0",
        at=NOW,
        config_file="/etc/keepalived/keepalived.conf",
        config_loaded_at=NOW - 90_000,
        config_problem="x.conf: 1 fatal",
        config_refused=True,
        config_errors=("x.conf:7: `abc` is not a whole number",),
        instances=(
            InstanceStatus(
                name="VI_1",
                interface="eth0",
                vrid=51,
                version=2,
                role=Role.MASTER,
                since_at=NOW - 3.25,
                reason="no advert for 3.609 s",
                priority=150,
                vips=("192.168.10.100/24",),
                peers=(PeerStatus(address=IPv4Address("192.168.10.12"), priority=100, heard_at=NOW - 250),),
                adverts_sent=12,
                adverts_received=3,
                adverts_rejected={"ip_ttl_err": 2},
                transitions=1,
            ),
        ),
        virtual_servers=(
            VirtualServerStatus(
                address=IPv4Address("192.168.10.100"),
                port=80,
                protocol="TCP",
                scheduler="wrr",
                quorum_up=True,
                sorry=False,
                real_servers=(
                    real_server(21, weight=3),
                    real_server(22, up=False, in_pool=False, reason="connection refused"),
                    real_server(23, weight=0, in_pool=False, mac=None, packets=123_456_789_012),
                ),
                packets=21,
                bytes=2100,
                flows=9,
            ),
        ),
        data_plane=DataPlaneStatus(
            links=(LinkStatus(interface="eth0", mode="native", program="haxlb d5780bfa90192afc"),),
            abi="1",
            swaps=1,
            verdicts={"forwarded": 21, "not_ipv4": 4, "loop": 0},
        ),
        alarms=(
            AlarmStatus(
                key="split-brain/VI_1",
                severity="critical",
                summary="two MASTERs of VRID 51",
                evidence=("adverts of 192.168.10.12 [priority 100]",),
                raised_at=NOW - 7300,
            ),
        ),
        mqtt="connected",
        processes=(
            ProcessStatus(name="checker", pid=11, restarts=0, since_at=NOW - 60),
            ProcessStatus(name="speaker", pid=0, restarts=2, since_at=NOW, problem="waiting to be started again"),
        ),
        history=("2027-01-15T07:59:00.000Z VI_1 BACKUP -> MASTER: no advert for 3.609 s",),
    )


class ScriptedDaemon:
    def __init__(self, runtime_dir: Path) -> None:
        self.runtime_dir = runtime_dir
        self.answer = Answer(ok=True, message="done")
        self.steps: tuple[Step, ...] = ()
        self.requests: list[Request] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(60)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = ControlSocket(self.runtime_dir, self._command, lambda level, event, **fields: None)
        await server.open()
        self._ready.set()
        await self._ending.wait()
        await server.close()

    async def _command(self, request: Request, step: Callable[[Step], None]) -> Answer:
        self.requests.append(request)
        for each in self.steps:
            step(each)
        return self.answer


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ScriptedDaemon]:
    made = ScriptedDaemon(tmp_path)
    yield made
    made.close()
