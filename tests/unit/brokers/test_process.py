"""The log of a broker's process, and the folder for its data."""

from __future__ import annotations

from pathlib import Path

from waiting_for import wait_until

from pytest_loadtest.brokers import watchdog
from pytest_loadtest.brokers.process import GRACE, MEMORY, Child, data_folder, mount_known, tail

LOG = """\
starting
java.lang.IllegalStateException: cannot start
\tat org.example.Broker.start(Broker.java:1)
Caused by: bind(..) failed: Address already in use
\tat org.example.Net.bind(Net.java:2)
\t... 3 more
"""


def test_stack_frames_do_not_hide_the_cause(tmp_path: Path) -> None:
    """The last lines of a Java broker's log are shown without them."""
    (tmp_path / "broker.log").write_text(LOG)
    assert tail(tmp_path / "broker.log", 2) == (
        "java.lang.IllegalStateException: cannot start\nCaused by: bind(..) failed: Address already in use"
    )


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path / "broker.log") == ""


HERE = Path("/proc/self/mounts").read_text()


def test_the_mount_of_a_folder_is_looked_up_as_java_does(tmp_path: Path) -> None:
    """It goes upwards from the folder to the top of its device."""
    assert mount_known(MEMORY, f"tmpfs {MEMORY} tmpfs rw 0 0")
    assert not mount_known(tmp_path, "proc /proc proc rw 0 0")


def test_data_stays_in_its_folder_if_the_mount_is_known(tmp_path: Path) -> None:
    folder = MEMORY / tmp_path.name  # a mount of its own on every Linux
    try:
        assert data_folder(folder, HERE) == ""
        assert folder.is_dir()
        assert not folder.is_symlink()
    finally:
        folder.rmdir()


def test_data_goes_to_memory_if_the_mount_is_unknown(tmp_path: Path) -> None:
    """This happens in a changed root. A second start has the same result, and the watchdog removes data and link."""
    folder = tmp_path / "data"
    mounts = f"tmpfs {MEMORY} tmpfs rw 0 0"
    assert data_folder(folder, mounts) == data_folder(folder, mounts) == str(MEMORY)
    target = folder.resolve()
    (target / "file").touch()
    watchdog.remove_folder(str(folder))
    assert not target.exists()
    assert not folder.is_symlink()


def test_a_process_gets_the_time_that_it_needs_to_end(tmp_path: Path) -> None:
    """It may write more than a broker whose data is deleted."""
    folder = tmp_path / "broker"
    (folder / "data").mkdir(parents=True)
    written = tmp_path / "written"
    code = f"trap 'sleep {GRACE + 0.5}; echo >{written}; exit' TERM; echo ready; while true; do sleep 0.1; done"
    child = Child(["sh", "-c", code], folder=folder, grace=60)
    wait_until(lambda: child.tail() == "ready", "its first line", seconds=30)
    child.stop()
    assert written.exists()
