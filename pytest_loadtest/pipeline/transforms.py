"""Small steps from frame to frame: no action, no session, nothing that Spark Connect cannot carry.

Rows leave the samples only as tables and as words of 64 sequences (:mod:`pytest_loadtest.pipeline.kernel`), so that a message costs no row
of its own; Spark spreads the files, and brings together what comes of them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from pytest_loadtest.pipeline.executor import TABLE_SCHEMA, WORDS_SCHEMA, TablesOfFiles, WordsOfFiles, deliveries_of_words, merge_tables
from pytest_loadtest.pipeline.first_copies import ROWS_SCHEMA, FirstCopiesOfFiles, tables_of_slots

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.read import SampleFile
    from pytest_loadtest.pipeline.tables import Table

    Tasks = Sequence[Sequence[SampleFile]]


def file_tables(numbers: DataFrame, tasks: Tasks, parts: Sequence[Expected]) -> DataFrame:
    """``part, name, content``: every table of every part, whole. :param numbers: of the tasks, each in a partition of its own."""
    parted = numbers.mapInArrow(TablesOfFiles(tasks, parts), TABLE_SCHEMA)
    return parted.groupBy("part", "name").applyInArrow(merge_tables, TABLE_SCHEMA)


def for_workers() -> AbstractContextManager[None]:
    """Around every action on these frames: a cluster's workers need not have this package."""
    return by_value(sys.modules[__name__.partition(".")[0]])


def deliveries(numbers: DataFrame, tasks: Tasks, parts: Sequence[Expected], begins: Sequence[int], ranges: int) -> DataFrame:
    """``part, name, content``: of every slot of every part the tables ``deliveries`` and ``buckets``, the ``edges`` of lost messages, and
    the words with ``repeated`` ones.

    Words travel in columns and not as rows: Spark takes longer for a row of them than reading its 64 messages takes.
    """
    words = numbers.mapInArrow(WordsOfFiles(tasks, parts, begins), WORDS_SCHEMA)
    return words.groupBy("part", "slot").applyInArrow(deliveries_of_words(parts, ranges), TABLE_SCHEMA)


def first_copies(numbers: DataFrame, tasks: Tasks, parts: Sequence[Expected], repeated: Sequence[Table | None]) -> DataFrame:
    """``part, name, content``: the tables of latencies of each part that has deliveries which came more than once.

    :param repeated: as of :class:`~pytest_loadtest.pipeline.first_copies.FirstCopiesOfFiles`.
    """
    rows = numbers.mapInArrow(FirstCopiesOfFiles(tasks, parts, repeated), ROWS_SCHEMA)
    tables = rows.groupBy("part", "slot", "name").applyInArrow(tables_of_slots(parts), TABLE_SCHEMA)
    return tables.groupBy("part", "name").applyInArrow(merge_tables, TABLE_SCHEMA)


# Functions that travel to Spark's workers as code: those need not have the modules to import them from.

_LOCK = threading.Lock()
_USERS: Counter[str] = Counter()


@contextlib.contextmanager
def by_value(*modules: ModuleType) -> Iterator[None]:
    """Until the end of this, what these modules (and those below them) define is sent whole.

    Around the action, and not only where the frame is made: Spark Connect pickles functions when rows are asked for. Several threads may
    be in it; whoever is last leaves the registry, which is the whole process's, as it was.
    """
    register, unregister = cloudpickle.register_pickle_by_value, cloudpickle.unregister_pickle_by_value
    with _LOCK:
        others = cloudpickle.list_registry_pickle_by_value() - _USERS.keys()  # type: ignore[no-untyped-call]
        ours = [module for module in modules if module.__name__ not in others]
        for module in ours:
            _USERS[module.__name__] += 1
            register(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        with _LOCK:
            for module in ours:
                _USERS[module.__name__] -= 1
                if not _USERS[module.__name__]:
                    del _USERS[module.__name__]
                    unregister(module)  # type: ignore[no-untyped-call]
