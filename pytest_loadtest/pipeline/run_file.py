"""What a run was, as two files of its folder: ``run.json``, and beside it one number for each stream, in columns.

The columns are ``first`` and ``end`` of the run, ``first_0``, ``end_0``, ``first_1`` … of its stages: int64, by stream, the first measured
sequence and one past the last. ``numpy.load`` reads them.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.errors import NoData

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

RUN_FILE: Final = "run.json"
RUN_VERSION: Final = 3
STREAMS_FILE: Final = "streams.npz"


def write_document(folder: Path, document: dict[str, Any]) -> None:
    """Write ``run.json`` aside and rename it: nobody ever reads half of it."""
    aside = folder / f".{RUN_FILE}.tmp"
    aside.write_text(json.dumps(document, indent=1), encoding="utf-8")
    aside.replace(folder / RUN_FILE)


def write_columns(folder: Path, columns: Iterable[tuple[str, NDArray[np.int64]]]) -> None:
    """Write the columns, each with its name, in the same way. They are taken one by one, so that they need not be in memory together."""
    aside = folder / f".{STREAMS_FILE}.tmp"
    with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, column in columns:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, column, allow_pickle=False)
    aside.replace(folder / STREAMS_FILE)


class Columns:
    """The columns of a run folder. :param count: how many streams the run has."""

    def __init__(self, folder: Path, name: str, count: int) -> None:
        self._path, self._count = folder / name, count

    def read(self, name: str) -> NDArray[np.int64]:
        """One of them.

        :raises NoData: the file is missing or not whole, or the column is not one number for each stream.
        """
        try:
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                column: NDArray[np.int64] = archive[name]
        except FileNotFoundError as error:
            raise NoData(f"{self._path} is missing: the load did not come to its end, or the folder was not copied whole") from error
        except KeyError as error:
            raise NoData(f"{self._path} has no column {name!r}, which {RUN_FILE} speaks of") from error
        except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise NoData(f"{self._path} is not whole: {error}") from error
        if column.dtype != np.int64 or column.shape != (self._count,):
            what = f"{column.dtype} {column.shape}"
            raise NoData(f"{self._path}: column {name!r} is {what}, {RUN_FILE} has {self._count} streams: int64 ({self._count},)")
        return column
