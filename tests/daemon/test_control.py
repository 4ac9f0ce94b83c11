from __future__ import annotations

import contextlib
import json
from dataclasses import fields, is_dataclass
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.daemon.control import (
    Answer,
    Failover,
    Reload,
    Resume,
    SetWeight,
    Show,
    Step,
    Swap,
    command_name,
    decode_reply,
    decode_request,
    encode,
    refusal,
)
from haxlb.model.errors import HostError, PeerError
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

STATUS = NodeStatus(
    node="lb1",
    version="0.1.0",
    at=1.5,
    config_file="/etc/keepalived/keepalived.conf",
    config_loaded_at=1.0,
    instances=(
        InstanceStatus(
            name="VI_1",
            interface="eth0",
            vrid=51,
            version=2,
            role=Role.MASTER,
            since_at=1.0,
            reason="no advert",
            priority=100,
            peers=(PeerStatus(address=IPv4Address("192.168.10.12"), priority=100, heard_at=0.5),),
            adverts_rejected={"ip_ttl_err": 3},
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
                RealServerStatus(
                    address=IPv4Address("192.168.10.21"),
                    port=80,
                    weight=1,
                    up=True,
                    in_pool=True,
                    reason="200",
                    since_at=1.0,
                    mac=None,
                ),
            ),
        ),
    ),
    data_plane=DataPlaneStatus(links=(LinkStatus(interface="eth0", mode="native", program="haxlb 12ab"),)),
    alarms=(AlarmStatus(key="split-brain/VI_1", severity="critical", summary="two", evidence=("a",), raised_at=1.0),),
    processes=(ProcessStatus(name="speaker", pid=12, restarts=0, since_at=1.0),),
    history=("one",),
)

MESSAGES = [
    Show(),
    Reload(),
    Failover(instances=("VI_1",), force=True),
    Resume(instances=("VI_1", "VI_2")),
    Swap(),
]
REPLIES = [
    Step(subject="VI_1", step="peer", ok=True, reason="ähm"),
    Answer(ok=True, status=STATUS),
    Answer(ok=False, exit_code=4, message="no", report="x:1:1", diagnostics=({"code": "syntax", "line": 1},)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_requests_come_back_as_they_were(message):
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_request(line) == message


@pytest.mark.parametrize("reply", REPLIES, ids=lambda each: type(each).__name__)
def test_replies_come_back_as_they_were(reply):
    assert decode_reply(encode(reply)) == reply


def test_a_request_may_leave_out_what_has_a_default():
    assert decode_request(b'{"type": "Failover"}') == Failover()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b'"Show"',
        b"{}",
        b'{"type": 1}',
        b'{"type": ["Show"]}',
        b'{"type": "Answer", "ok": true}',
        b'{"type": "Failover", "instances": "VI_1"}',
        b'{"type": "Failover", "instances": [1]}',
        b'{"type": "Failover", "force": 1}',
        b"\xff\xfe{}",
        b"[" * 60000,
        b'{"a":' * 10000,
        b'{"type": "Show"} trailing',
        b'{"type": "Failover", "instances": ' + b"1" * 6000 + b"}",
    ],
)
def test_what_is_no_request_is_the_peers_error(line):
    with pytest.raises(PeerError) as caught:
        decode_request(line)
    assert caught.value.reason == "malformed_message"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(["Show", "Reload", "Failover", "Resume", "Swap", "Step", "Answer", "NodeStatus"])


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.binary(max_size=300), st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
)
def test_garbage_never_kills(line):
    for decode in (decode_request, decode_reply):
        with contextlib.suppress(PeerError):
            decode(line)


@settings(max_examples=300, deadline=None)
@given(name=names, body=st.dictionaries(st.sampled_from(["instances", "force", "ok", "status", "step"]), json_values))
def test_almost_requests_never_kill(name, body):
    line = json.dumps({"type": name, **body}).encode()
    for decode in (decode_request, decode_reply):
        try:
            message = decode(line)
        except PeerError:
            continue
        assert is_dataclass(message)
        assert {each.name for each in fields(message)} >= body.keys() - {"instances", "force", "ok", "status", "step"}


def test_an_error_reaches_the_client_with_code_and_remedy():
    answer = refusal(HostError("no BCC", remedy="apt install python3-bpfcc"))
    assert (answer.ok, answer.exit_code, answer.message) == (False, 71, "no BCC")
    assert answer.remedy == "apt install python3-bpfcc"


def test_requests_have_the_names_of_their_commands():
    weights = [SetWeight(virtual_server="v", real_server="r", weight=each) for each in (7, 0, None)]
    requests = [Show(), Reload(), Failover(), Resume(), Swap(), *weights]
    assert " ".join(map(command_name, requests)) == "show reload failover resume swap weight drain enable"
