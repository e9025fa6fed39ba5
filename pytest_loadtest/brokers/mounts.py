"""Where a broker's data can lie: Pulsar's bookie asks Java which mount its folders are on, and ends where Java finds none."""

from __future__ import annotations

import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")


def mount_known(folder: Path, mounts: str) -> bool:
    """Whether Java finds the mount that a folder is on.

    Java goes up from the folder as long as the device stays the same, and looks for the last path in the list of mounts. Below a changed
    root (chroot) that is no mount point itself it finds none.

    :param mounts: the text of ``/proc/self/mounts``.
    """
    top = folder.resolve()
    while top != top.parent and top.parent.stat().st_dev == top.stat().st_dev:
        top = top.parent
    return str(top) in {line.split()[1] for line in mounts.splitlines()}


def data_folder(folder: Path, mounts: str) -> str:
    """Make ``folder``, or a link of that name to a folder in memory where its mount cannot be known; where the data lies then, or ""."""
    if folder.exists() or mount_known(folder.parent, mounts) or not mount_known(MEMORY, mounts):
        folder.mkdir(exist_ok=True)
        return str(MEMORY) if folder.is_symlink() else ""
    folder.symlink_to(tempfile.mkdtemp(prefix="pytest-loadtest-", dir=MEMORY), target_is_directory=True)
    return str(MEMORY)
