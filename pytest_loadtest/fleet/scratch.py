"""Temporary folders of a process that may be killed: the next process that makes one removes those
that were left behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

# s; a folder is locked right after it was made, and must not be taken for an abandoned one in
# between.
_YOUNG = 60.0


class ScratchFolder:
    """A new temporary folder, locked as long as this process lives. A lock also holds between
    processes that do not see each other's ids.

    :param prefix: of its name; abandoned folders of this user with the same prefix are removed.
    :ivar path: the folder.
    """

    def __init__(self, prefix: str) -> None:
        remove_abandoned(Path(tempfile.gettempdir()), prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def remove(self) -> None:
        """Remove the folder. Safe to call twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove this user's folders with this prefix whose process has ended."""
    for path in parent.glob(f"{prefix}*"):
        try:
            facts = path.lstat()
            if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < _YOUNG:
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # removed meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
