"""Setup for the project's own tests; load tests do not need it."""

from __future__ import annotations

import signal

pytest_plugins = ["pytester"]


def pytest_configure() -> None:
    """Restore Ctrl-C.

    A shell starts background jobs with SIGINT ignored, and the processes that tests interrupt
    would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
