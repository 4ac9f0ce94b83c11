"""Standard streams that whoever has started us has closed (`>&-`), or stops to read (`| head`)."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Outlet(io.FileIO):
    """A descriptor to write to; what nobody reads any more is written for nobody."""

    gone = False
    """The reader."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Bytes that were written, or that nobody wants."""
        try:
            return super().write(data)
        except BrokenPipeError:
            self.gone = True
            return memoryview(data).nbytes


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


def outlive_readers() -> None:
    """Let output and complaints outlive who reads them: a command ends with its own exit code, and says nothing of it.

    What the daemon logs is another matter: sys.__stderr__ stays what it is.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            patient = io.TextIOWrapper(
                io.BufferedWriter(_Outlet(stream.fileno(), "w", closefd=False)),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, patient)


def reader_gone() -> bool:
    """Whether nobody reads what is printed, as far as has been found out: who prints without end may stop."""
    outlet = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(outlet, _Outlet) and outlet.gone
