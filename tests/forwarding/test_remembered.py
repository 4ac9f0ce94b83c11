from __future__ import annotations

from haxlb.forwarding.remembered import Remembered


def test_it_is_found_out_once() -> None:
    asked: list[int] = []

    def find_out(key: int) -> str | None:
        asked.append(key)
        return str(key) if key else None

    texts = Remembered(find_out, most=8)
    assert [texts[key] for key in (1, 0, 1, 0, 2)] == ["1", None, "1", None, "2"]
    assert asked == [1, 0, 2]


def test_it_stays_small_and_right_whoever_chooses_the_keys() -> None:
    doubles: Remembered[int, int] = Remembered(lambda key: 2 * key, most=8)
    for key in (*range(100), *range(100)):
        assert doubles[key] == 2 * key
        assert len(doubles) <= 8
