"""SIGTERM as an interrupt, with real signals in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.fleet.interrupts import interrupt_on_sigterm, restore_sigterm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _default_action() -> Iterator[None]:
    """Begin and end each test with the default action of SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_first_sigterm_interrupts_and_a_second_one_does_not() -> None:
    """A second one would interrupt the cleanup."""
    interrupt_on_sigterm()
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    restore_sigterm()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_somebody_else_is_neither_replaced_nor_removed() -> None:
    received: list[int] = []

    def theirs(number: int, _frame: object) -> None:
        received.append(number)

    signal.signal(signal.SIGTERM, theirs)
    interrupt_on_sigterm()
    os.kill(os.getpid(), signal.SIGTERM)
    restore_sigterm()
    assert (received, signal.getsignal(signal.SIGTERM)) == ([signal.SIGTERM], theirs)


def test_processes_started_after_the_interrupt_can_be_terminated() -> None:
    """An ignored signal would be inherited; a handler is not."""
    interrupt_on_sigterm()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    child = subprocess.run(
        [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"],
        check=False,
    )
    assert child.returncode == -signal.SIGTERM
