"""SIGTERM, by which CI systems and process managers cancel a job, ends a session of load tests as Ctrl-C does: in order, samples kept."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType


def heed_sigterm() -> None:
    """Take SIGTERM for Ctrl-C from now on, unless somebody else handles it already. Only the main thread may handle signals."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)


def unheed_sigterm() -> None:
    """Give SIGTERM back."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) in (_interrupt, _ignore):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, _ignore)  # one is enough: a second would break off the clearing up
    raise KeyboardInterrupt("SIGTERM")


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    """Nothing; unlike ``SIG_IGN``, processes started meanwhile do not inherit it."""
