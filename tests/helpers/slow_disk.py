"""A disk that is slow for one process, with version 1 of cgroups."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


GROUPS = Path("/sys/fs/cgroup/blkio")


def need_slow_disk() -> None:
    """Skip the test if this machine cannot slow a disk: call it before anything is started."""
    if not os.access(GROUPS, os.W_OK):
        pytest.skip(f"this system lets nobody slow a disk down: no {GROUPS} that can be written")


@contextmanager
def slow_disk(pid: int, folder: Path, rate: int) -> Iterator[None]:
    """Limit the process's writes to the disk of ``folder`` to this number of bytes a second."""
    device = Path(
        f"/sys/dev/block/{os.major(folder.stat().st_dev)}:{os.minor(folder.stat().st_dev)}"
    ).resolve()
    disk = device.parent if (device / "partition").exists() else device
    group = GROUPS / f"loadtest-{pid}"
    try:
        number = (disk / "dev").read_text().strip()
        group.mkdir()
        (group / "blkio.throttle.write_bps_device").write_text(f"{number} {rate}")
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"this system lets nobody slow a disk down: {error}")
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()
