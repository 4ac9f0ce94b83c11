from __future__ import annotations

import json
import struct
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.cli.hex_text import HexError, packets_of
from haxlb.cli.main import haxlb
from haxlb.linux.capture import CaptureError, is_capture, read_capture
from haxlb.vrrp.envelope import Layer
from tests.vrrp.frames import OTHER, ah, ethernet, ipv4, ipv6, message

HAXLB = Path(sys.executable).with_name("haxlb")
FRAME = ethernet(ipv4(message(2)))
FRAME3 = ethernet(ipv4(message(3), ttl=254), vlans=(7,))
FRAME6 = ethernet(ipv6(message(3, family=6)), destination_mac="33:33:00:00:00:12")
FRAME_AH = ethernet(ipv4(ah(message(2, auth_type=2)), protocol=51))
UDP = ethernet(ipv4(bytes(20), protocol=17))


def pcap(*packets, order="<", link_type=1, nano=False, missing=0):
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    out = struct.pack(f"{order}IHHIIII", magic, 2, 4, 0, 0, 262144, link_type)
    for number, data in enumerate(packets):
        at = (1_800_000_000 + number, 250_000_000 if nano else 250_000)
        out += struct.pack(f"{order}IIII", *at, len(data), len(data) + missing) + data
    return out


def pcapng(*packets, order="<", link_type=1):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        return struct.pack(f"{order}II", kind, len(body) + 12) + body + struct.pack(f"{order}I", len(body) + 12)

    out = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, struct.pack(f"{order}HHI", link_type, 0, 262144))
    for number, data in enumerate(packets):
        ticks = (1_800_000_000 + number) * 1_000_000 + 250_000
        out += block(6, struct.pack(f"{order}5I", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data)) + data)
    return out + block(5, struct.pack(f"{order}III", 0, 0, 0))  # interface statistics, as dumpcap writes them


def decode(*words, stdin=b""):
    return CliRunner().invoke(haxlb, ["vrrp", "decode", *map(str, words)], input=stdin)


@pytest.fixture
def write(tmp_path):
    def make(data: bytes) -> Path:
        path = tmp_path / "file"
        path.write_bytes(data)
        return path

    return make


# -- what is said


def test_a_frame_with_everything_in_order():
    done = decode("-x", FRAME.hex())
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "#1  02:00:00:00:00:01 -> 01:00:5e:00:00:12  10.9.0.1 -> 224.0.0.18  TTL 255",
        "    VRRPv2 ADVERTISEMENT  VRID 51  priority 150  every 1 s  authentication none  checksum 0x3e5d good",
        "    1 address  10.9.0.100",
        "1 advert, 0 that receivers drop",
    ]


def test_what_is_wrong_and_where():
    bad = ethernet(ipv4(message(3, interval=0, reserved=1), ttl=3))
    done = decode("-x", bad.hex())
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-4:] == [
        "    ! byte 22: TTL 3 instead of 255: it came through a router (ip_ttl_err)",
        "    ! byte 38: its advertisement interval is 0 (advert_interval_err)",
        "    ~ byte 38: reserved bits are 0x1 instead of 0 (reserved)",
        "1 advert, 1 that receivers drop",
    ]


def test_of_a_message_that_is_too_short_no_field_is_made_up():
    lines = decode("-x", "21336401000100", "--layer", "vrrp").stdout.splitlines()
    assert lines == [
        "#1",
        "    ! byte 0: 7 bytes are too short for a VRRP message (packet_len_err)",
        "1 advert, 1 that receivers drop",
    ]


def test_headers_of_all_kinds():
    text = decode("-x", FRAME3.hex(), "-x", FRAME6.hex(), "-x", FRAME_AH.hex()).stdout
    assert "  VLAN 7  10.9.0.1 -> 224.0.0.18  TTL 254\n" in text
    assert "  fe80::1 -> ff02::12  hop limit 255\n" in text
    assert "authentication AH" in text
    assert "    AH  SPI 0x0a090001  sequence 9  check value 000102030405060708090a0b\n" in text


def test_a_password_is_not_shown():
    frame = ethernet(ipv4(message(2, auth_type=1, auth_data=b"hushhush"))).hex()
    for words in (("-x", frame), ("-x", frame, "--json")):
        done = decode(*words)
        assert done.exit_code == 0
        assert "PASS" in done.stdout
        assert "hush" not in done.stdout
        assert b"hush".hex() not in done.stdout


def test_authentication_is_judged_with_the_password(tmp_path):
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("hushhush\n")
    wrong.write_text("other\n")
    frame = ethernet(ipv4(message(2, auth_type=1, auth_data=b"hushhush"))).hex()
    assert decode("-x", frame, "--auth-pass-file", right).exit_code == 0
    done = decode("-x", frame, "--auth-pass-file", wrong)
    assert done.exit_code == 1
    assert "    ! byte 46: its password is another one (auth_failure)\n" in done.stdout
    done = decode("-x", FRAME_AH.hex(), "--auth-pass-file", right)
    assert "    ! byte 34: its integrity check value is wrong" in done.stdout
    assert decode("-x", frame, "--auth-pass-file", tmp_path / "none").exit_code == 2


def test_priorities_that_mean_something():
    assert "priority 0 (resigns)" in decode("-x", message(2, priority=0).hex()).stdout
    assert "priority 255 (owner)" in decode("-x", message(2, priority=255).hex()).stdout


def test_json():
    done = decode("-x", FRAME_AH.hex(), "-x", UDP.hex(), "--layer", "ethernet", "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    (advert,) = document.pop("adverts")
    assert document == {"schema": "haxlb.vrrp-decode/1", "source": "-x", "dropped": 0, "others": 1, "problem": ""}
    assert advert["ah"] == {"spi": 0x0A090001, "sequence": 9, "icv": bytes(range(12)).hex()}
    assert (advert["offset"], advert["length"], advert["family"], advert["at"]) == (58, 20, 4, None)
    assert advert["findings"] == []
    unicast = ethernet(ipv4(message(3, destination=OTHER, count=9), destination=OTHER))
    (advert,) = json.loads(decode("-x", unicast.hex(), "--json").stdout)["adverts"]
    assert advert["dropped"]
    assert [each["reason"] for each in advert["findings"]] == ["packet_len_err"]


# -- captures


@pytest.mark.parametrize(
    "data",
    [
        pcap(FRAME, UDP, FRAME6),
        pcap(FRAME, UDP, FRAME6, order=">"),
        pcap(FRAME, UDP, FRAME6, nano=True),
        pcapng(FRAME, UDP, FRAME6),
        pcapng(FRAME, UDP, FRAME6, order=">"),
    ],
)
def test_captures(write, data):
    for done in (decode(write(data)), decode(stdin=data), decode("-", stdin=data)):
        assert done.exit_code == 0
        lines = done.stdout.splitlines()
        assert lines[0].startswith("#1  2027-01-15 08:00:00.250000 UTC  02:00:00:00:00:01 -> ")
        assert lines[3].startswith("#3  2027-01-15 08:00:02.250000 UTC")
        assert lines[-1] == "2 adverts, 0 that receivers drop, 1 other packet"


@pytest.mark.parametrize(
    ("link_type", "lead", "layer"),
    [(101, b"", Layer.IP), (0, b"\2\0\0\0", Layer.NULL), (113, b"\0\0\0\1\0\6\2\0\0\0\0\1\0\0\x08\0", Layer.SLL)],
)
def test_link_types(link_type, lead, layer):
    (packet,) = read_capture(pcap(lead + FRAME[14:], link_type=link_type))
    assert packet.layer is layer
    assert decode(stdin=pcap(lead + FRAME[14:], link_type=link_type)).exit_code == 0


def test_an_unknown_link_type(write):
    done = decode(write(pcap(FRAME, link_type=147)))
    assert str(done.exception) == "packet 1 is of link type 147, which haxlb does not read"


def test_what_was_not_captured_is_said(write):
    done = decode(write(pcap(FRAME[:44], missing=10)))
    assert done.exit_code == 1
    assert "    ! 10 bytes of it were not captured\n" in done.stdout


@pytest.mark.parametrize("data", [pcap(FRAME, FRAME)[:-9], pcapng(FRAME, FRAME)[:-9], pcapng(FRAME, FRAME)[:-33]])
def test_a_capture_that_is_cut_short_is_decoded_as_far_as_it_goes(write, data):
    path = write(data)
    done = subprocess.run([HAXLB, "vrrp", "decode", path], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 2
    assert done.stdout.startswith("#1 ")
    assert "haxlb: the capture is damaged behind packet " in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "there is no byte in it"),
        (b"\n \n", "there is no byte in it"),
        (b"\x89PNG\r\n", "is neither a capture (pcap, pcapng) nor hex: it is not text"),
        (b"hello\n", "is neither a capture (pcap, pcapng) nor hex: line 1 is not hex: 'hello'"),
        (b"2133 9\n", "5 hex digits are not a whole number of bytes"),
        (pcap()[:20], "not a capture that can be read"),
        (pcapng()[:10], "not a capture that can be read"),
        (b"00" * 65536, "65536 bytes are more than a packet can have"),
    ],
)
def test_what_is_neither(write, data, says):
    path = write(data)
    done = subprocess.run([HAXLB, "vrrp", "decode", path], capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.startswith("haxlb: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("end", [1, 3, 4, 7])
@pytest.mark.parametrize("make", [pcap, pcapng])
def test_bytes_behind_the_last_packet(make, end):
    with pytest.raises(CaptureError, match="damaged behind packet 1: "):
        list(read_capture(make(FRAME) + b"\1" * end))


def test_what_is_wrong_is_in_the_json_too(write):
    done = decode("--json", write(pcap(FRAME, FRAME)[:-9]))
    document = json.loads(done.stdout)
    assert len(document["adverts"]) == 2, "what is left of the last one is shown"
    assert document["problem"].startswith("the capture is damaged behind packet 2")


def test_no_advert_is_a_negative_answer(write):
    done = decode(write(pcap(UDP)))
    assert (done.exit_code, done.stdout) == (1, "0 adverts, 0 that receivers drop, 1 other packet\n")


@pytest.mark.parametrize("words", [("-x", "21", "file"), ("--layer", "tcp"), ("--frob",)])
def test_wrong_usage(words):
    assert decode(*words).exit_code == 2


def test_a_file_that_is_not_there(tmp_path):
    done = decode(tmp_path / "absent")
    assert isinstance(done.exception, CaptureError)
    assert str(done.exception) == f"cannot read {tmp_path / 'absent'}: No such file or directory"


def test_a_misspelt_subcommand_gets_the_nearest():
    assert "did you mean `decode`?" in CliRunner().invoke(haxlb, ["vrrp", "decod"]).stderr
    assert CliRunner().invoke(haxlb, ["vrrp", "frobnicate"]).exit_code == 2


# -- hex

IP_PACKET = FRAME[14:]
DUMPS = {
    "bare": FRAME.hex(),
    "blanks": FRAME.hex(" "),
    "colons": FRAME.hex(":"),
    "prefixes": " ".join(f"0x{each:02x}" for each in FRAME),
    "lines": "\n".join(FRAME.hex()[at : at + 32] for at in range(0, len(FRAME) * 2, 32)),
    "tcpdump": "\n".join(
        f"\t0x{at:04x}:  {FRAME[at : at + 16].hex(' ', 2)}  E..(...p....d..." for at in range(0, len(FRAME), 16)
    ),
    "xxd": "\n".join(
        f"{at:08x}: {FRAME[at : at + 16].hex(' ', 2)}  .^....cafe......" for at in range(0, len(FRAME), 16)
    ),
    "hexdump": "\n".join(
        f"{at:08x}  {FRAME[at : at + 8].hex(' ')}  {FRAME[at + 8 : at + 16].hex(' ')}  |..^.beef........|"
        for at in range(0, len(FRAME), 16)
    ),
    "wireshark": "\n".join(
        f"{at:04x}   {FRAME[at : at + 16].hex(' ')}   ..^...ad........" for at in range(0, len(FRAME), 16)
    ),
}


@pytest.mark.parametrize("name", DUMPS)
def test_forms_of_hex(name):
    assert packets_of(DUMPS[name]) == [FRAME]
    assert packets_of(f"{DUMPS[name]}\n\n{DUMPS[name]}\n") == [FRAME, FRAME]


def test_in_a_dump_offset_0_begins_another_packet():
    assert packets_of(f"{DUMPS['xxd']}\n{DUMPS['tcpdump']}") == [FRAME, FRAME]


@pytest.mark.parametrize(("layer", "data"), [("ethernet", FRAME), ("ip", IP_PACKET), ("vrrp", message(2))])
def test_the_layer_is_guessed_or_said(layer, data):
    assert decode("-x", data.hex()).stdout == decode("-x", data.hex(), "--layer", layer).stdout


def test_a_layer_that_does_not_fit_is_no_advert():
    assert decode("-x", message(2).hex(), "--layer", "ethernet").exit_code == 1


# -- fuzz


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    whole=st.sampled_from(
        (pcap(FRAME, FRAME6), pcapng(FRAME, FRAME6), pcap(FRAME, order=">"), pcapng(FRAME, order=">"))
    ),
    changes=st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=4)), max_size=4),
    end=st.integers(0, 400),
)
def test_a_damaged_capture_is_read_or_named(whole, changes, end):
    data = bytearray(whole)
    for at, new in changes:
        data[at % len(data) : at % len(data) + len(new)] = new
    data = bytes(data[: end or None])
    try:
        packets = list(read_capture(data))
    except CaptureError as problem:
        assert "\n" not in str(problem)  # noqa: PT017 - either is an answer
        return
    assert is_capture(data)
    assert all(len(each.data) <= len(data) for each in packets)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=200) | st.text(alphabet="0123456789abcdefx: \n|", max_size=200).map(str.encode))
def test_any_input_has_an_answer(data):
    done = decode(stdin=data)
    assert done.exit_code in {0, 1, 2}
    assert done.exception is None or isinstance(done.exception, (SystemExit, CaptureError, HexError))


def test_addresses_of_a_decoded_list():
    many = tuple(IPv4Address(f"10.9.1.{host}") for host in range(255))
    (advert,) = json.loads(decode("-x", message(2, addresses=many).hex(), "--json").stdout)["adverts"]
    assert advert["addresses"] == [str(each) for each in many]
