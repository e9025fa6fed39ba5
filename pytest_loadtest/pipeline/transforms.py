"""Steps from frame to frame, without actions and sessions.

The rule: Spark distributes the files and groups the results, and nothing here lacks in Spark
Connect. Rows leave the samples only as tables and as words of 64 sequences
(:mod:`pytest_loadtest.pipeline.kernel`), so no message is a row of Spark.
:mod:`pytest_loadtest.pipeline.aggregate` calls it in the controller's thread; the functions in the
frames run in the processes of Spark's workers.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from pytest_loadtest.pipeline.executor import (
    COUNTED_SCHEMA,
    TABLE_SCHEMA,
    WORDS_SCHEMA,
    TablesOfFiles,
    WordsOfFiles,
    counted_tables,
    deliveries_of_words,
)
from pytest_loadtest.pipeline.first_copies import ROWS_SCHEMA, FirstCopiesOfFiles, tables_of_slots
from pytest_loadtest.pipeline.gap_receipts import (
    ReceiptsOfFiles,
    SuspectCells,
    longest_inside,
    receipts_of_slots,
)
from pytest_loadtest.pipeline.taps import TapsOfFiles, latencies_of_slots

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.in_time import Begins
    from pytest_loadtest.pipeline.read import SampleFile
    from pytest_loadtest.pipeline.tables import Table

    Tasks = Sequence[Sequence[SampleFile]]


def file_tables(numbers: DataFrame, tasks: Tasks, parts: Sequence[Expected]) -> DataFrame:
    """Return the columns of ``executor.COUNTED_SCHEMA``: every table of every part.

    :param numbers: of the tasks, each in a partition of its own.
    """
    parted = numbers.mapInArrow(TablesOfFiles(tasks, parts), TABLE_SCHEMA)
    return parted.groupBy("part", "name").applyInArrow(counted_tables, COUNTED_SCHEMA)


def for_workers() -> AbstractContextManager[None]:
    """Return the context for every action on these frames.

    It sends this package to workers that do not have it.
    """
    return by_value(sys.modules[__name__.partition(".")[0]])


def deliveries(
    numbers: DataFrame,
    tasks: Tasks,
    parts: Sequence[Expected],
    begins: Sequence[Begins],
    ranges: int,
) -> DataFrame:
    """Return ``part, name, content``: the tables that ``Words.tables`` counts in every slot.

    Words are packed in columns, not in rows: Spark needs more time for a row with one word than
    reading its 64 messages takes.
    """
    words = numbers.mapInArrow(WordsOfFiles(tasks, parts, begins), WORDS_SCHEMA)
    return words.groupBy("part", "slot").applyInArrow(
        deliveries_of_words(parts, ranges), TABLE_SCHEMA
    )


def first_copies(
    numbers: DataFrame, tasks: Tasks, parts: Sequence[Expected], repeated: Sequence[Table | None]
) -> DataFrame:
    """Return the columns of ``executor.COUNTED_SCHEMA``: the tables of latencies of first copies.

    Only parts with deliveries that came more than once have them.

    :param repeated: see :class:`~pytest_loadtest.pipeline.first_copies.FirstCopiesOfFiles`.
    """
    rows = numbers.mapInArrow(FirstCopiesOfFiles(tasks, parts, repeated), ROWS_SCHEMA)
    tables = rows.groupBy("part", "slot", "name").applyInArrow(tables_of_slots(parts), TABLE_SCHEMA)
    return tables.groupBy("part", "name").applyInArrow(counted_tables, COUNTED_SCHEMA)


def gap_receipts(
    numbers: DataFrame,
    tasks: Tasks,
    parts: Sequence[Expected],
    repeated: Sequence[Table | None],
    suspects: Sequence[SuspectCells | None],
) -> DataFrame:
    """Return ``part, name, content``: the tables of ``gap_receipts.longest_inside``.

    :param repeated: see :class:`~pytest_loadtest.pipeline.first_copies.FirstCopiesOfFiles`.
    """
    rows = numbers.mapInArrow(ReceiptsOfFiles(tasks, parts, repeated, suspects), ROWS_SCHEMA)
    # Only where deliveries came more than once: their first copies are
    # found before receipts are grouped by cell.
    if any(repeated):
        rows = rows.groupBy("part", "slot", "name").applyInArrow(
            receipts_of_slots(parts, suspects), ROWS_SCHEMA
        )
    return rows.groupBy("part", "slot").applyInArrow(longest_inside, TABLE_SCHEMA)


def tapped(numbers: DataFrame, tasks: Tasks, parts: Sequence[Expected]) -> DataFrame:
    """Return ``part, name, content``: the tables of the latencies past a tap, of every slot."""
    rows = numbers.mapInArrow(TapsOfFiles(tasks, parts), ROWS_SCHEMA)
    return rows.groupBy("part", "slot").applyInArrow(latencies_of_slots(parts), TABLE_SCHEMA)


_LOCK = threading.Lock()
_USERS: Counter[str] = Counter()


@contextlib.contextmanager
def by_value(*modules: ModuleType) -> Iterator[None]:
    """Pickle the functions of these modules, and of those below them, by value.

    It must enclose the action, not only the definition of the frame: Spark Connect pickles
    functions when rows are requested. Several threads can be in it; the last one restores the
    registry, which belongs to the whole process.
    """
    # Modules that the user has registered are not in _USERS and stay registered.
    register: Any = cloudpickle.register_pickle_by_value
    unregister: Any = cloudpickle.unregister_pickle_by_value
    registry: Any = cloudpickle.list_registry_pickle_by_value
    with _LOCK:
        others = registry() - _USERS.keys()
        registered = [module for module in modules if module.__name__ not in others]
        for module in registered:
            _USERS[module.__name__] += 1
            register(module)
    try:
        yield
    finally:
        with _LOCK:
            for module in registered:
                _USERS[module.__name__] -= 1
                if not _USERS[module.__name__]:
                    del _USERS[module.__name__]
                    unregister(module)
