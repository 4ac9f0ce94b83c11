"""What a host can run out of: no fault of whoever wanted it, and one remedy for all."""

from __future__ import annotations

import errno

LACKS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN)
REMEDY = "see the limits of open files, processes and memory"


def remedy_for(problem: OSError, otherwise: str) -> str:
    """The remedy where this is a lack, else the other one: a program that is there cannot be had by installing it."""
    return REMEDY if problem.errno in LACKS else otherwise
