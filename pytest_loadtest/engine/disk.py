"""Files that are there whole or not at all, and a disk that is full, told so that people know what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING

from pytest_loadtest.errors import NoData
from pytest_loadtest.values.quantities import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def unwritten(who: str, what: str, folder: Path, error: BaseException, needed: int | None) -> NoData:
    """The error of somebody who could not write. :param needed: bytes that the plan needs for all samples; None where nobody planned."""
    said = f"{who} could not write {what} below {folder}"
    if not is_full(error):
        return NoData(f"{said}: {error}")
    need = "" if needed is None else f"the plan needs {format_size(needed)} there for the samples of all workers, "
    free = format_size(shutil.disk_usage(folder).free)
    return NoData(f"{said}: the disk is full\n  {need}{free} are free: make room, or set load_results in pytest.ini to another disk")


def is_full(error: BaseException) -> bool:
    """Whether it says that there is no room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def gone_unless_whole(aside: Path) -> Iterator[None]:
    """A disk that is full must not keep what can never be used."""
    try:
        yield
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def replace(path: Path, content: bytes) -> None:
    """Write a file aside and rename it; after that it is on the disk."""
    aside = path.with_name(f".{path.name}.tmp")
    with gone_unless_whole(aside), aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
