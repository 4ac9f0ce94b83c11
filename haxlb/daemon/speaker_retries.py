"""How often what the kernel has refused is tried again.

Each attempt is a request that waits for the lock of the host's network configuration: hundreds of them in one go would
hold up adverts. So it is a few each second, in turn; and as long as some of them succeed, the next ones soon.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from haxlb.model.node import SECOND_US

RETRY_US = SECOND_US
SOON_US = 10_000
"""What has failed for one reason mostly works again at once, as when an interface comes back."""
MOST_RETRIES = 16
"""In one go."""

Entry = TypeVar("Entry")
Holder = TypeVar("Holder")


def try_again(
    left: dict[Entry, Holder],
    refused: dict[Entry, Holder],
    *,
    remove: Callable[[Entry], bool],
    add: Callable[[Entry], bool],
) -> int | None:
    """Try some of what is still on and of what is not, and strike out what succeeds; after how many µs to come again.

    What fails goes to the end of its queue. None = nothing is left to be tried.
    """
    off = list(islice(left, max(MOST_RETRIES - len(refused), MOST_RETRIES // 2)))
    on = list(islice(refused, MOST_RETRIES - len(off)))
    before = len(left) + len(refused)
    for queue, turn, action in ((left, off, remove), (refused, on, add)):
        for entry in turn:
            holder = queue.pop(entry)
            if not action(entry):
                queue[entry] = holder
    after = len(left) + len(refused)
    if not after:
        return None
    untried = before > len(off) + len(on)
    return SOON_US if untried and after < before else RETRY_US
