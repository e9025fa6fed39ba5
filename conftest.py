"""For the project's own tests only; load tests need nothing from here."""

from __future__ import annotations

import signal

pytest_plugins = ["pytester"]


def pytest_configure() -> None:
    """A shell starts what it puts in the background with Ctrl-C ignored, and so would be every process that tests interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
