"""What is in a file that a user names, which may be anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.quantities import format_size

if TYPE_CHECKING:
    from pathlib import Path

MOST = 16 * 1024**2
"""Bytes of a profile, or of what one names: a day of rates, second by second, has a tenth of it."""


def contents(path: Path, what: str, most: int = MOST) -> bytes:
    """All of a regular file.

    :param what: for messages, ``driver file``. :param most: bytes.
    :raises UsageError: it cannot be read, is a device or a pipe, which may never end, or is larger than ``most``.
    """
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{what} {path} is no regular file")
        size = path.stat().st_size
        if size > most:
            raise UsageError(f"{what} {path} has {format_size(size)}, at most {format_size(most)} are read")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from error
