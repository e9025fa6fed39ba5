"""What is shown of a broker's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.brokers.process import tail

if TYPE_CHECKING:
    from pathlib import Path

LOG = """\
starting
java.lang.IllegalStateException: cannot start
\tat org.example.Broker.start(Broker.java:1)
Caused by: bind(..) failed: Address already in use
\tat org.example.Net.bind(Net.java:2)
\t... 3 more
"""


def test_stack_frames_do_not_hide_the_cause(tmp_path: Path) -> None:
    """Of a Java broker's last words those are shown that say something."""
    (tmp_path / "broker.log").write_text(LOG)
    assert tail(tmp_path / "broker.log", 2) == (
        "java.lang.IllegalStateException: cannot start\nCaused by: bind(..) failed: Address already in use"
    )


def test_no_log_is_no_word(tmp_path: Path) -> None:
    """And no error."""
    assert tail(tmp_path / "broker.log") == ""
