"""SIGTERM, by which CI systems and process managers cancel a job, ends a session of load tests as
Ctrl-C does: in order, samples kept.

The plugin installs the handler in every process of a session that has load tests, in its main
thread, and the controller removes it at the end. A handler that somebody else has installed is
never replaced.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType


def interrupt_on_sigterm() -> None:
    """Raise KeyboardInterrupt on SIGTERM, unless it has a handler already.

    Only the main thread may install handlers.
    """
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _interrupt)


def restore_sigterm() -> None:
    """Restore the default action of SIGTERM."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(
        signal.SIGTERM
    ) in (_interrupt, _ignore):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, _ignore)  # a second SIGTERM would interrupt the cleanup
    raise KeyboardInterrupt("SIGTERM")


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    """Do nothing. Unlike ``SIG_IGN``, a handler is not inherited by processes that are started."""
