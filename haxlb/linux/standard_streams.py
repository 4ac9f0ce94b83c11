"""Standard streams that whoever has started us has closed (`>&-`)."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Give those that are closed to nobody, here and in processes that are started.

    Else the first socket or file that is opened would get such a number, and a log would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:  # Python's word for it
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
