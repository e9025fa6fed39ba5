"""Small steps from frame to frame: no action, no session, nothing that Spark Connect cannot carry.

Rows leave the samples only as tables and as words of 64 sequences (:mod:`pytest_loadtest.pipeline.kernel`), so that a message costs no row
of its own; Spark spreads the files, and brings together what comes of them.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from pytest_loadtest.pipeline.executor import TABLE_SCHEMA, WORDS_SCHEMA, TablesOfFiles, WordsOfFiles, deliveries_of_words, merge_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from pytest_loadtest.stats import Run

    Tasks = Sequence[Sequence[str]]


def file_tables(numbers: DataFrame, tasks: Tasks, parts: Sequence[Run]) -> DataFrame:
    """``part, name, content``: every table of every part, whole. :param numbers: of the tasks, each in a partition of its own."""
    with _for_workers():
        parted = numbers.mapInArrow(TablesOfFiles(tasks, parts), TABLE_SCHEMA)
        return parted.groupBy("part", "name").applyInArrow(merge_tables, TABLE_SCHEMA)


@contextlib.contextmanager
def _for_workers() -> Iterator[None]:
    """Functions travel to the workers as code, not as the name of a module that these may not have. That pyspark warns of any pandas later
    than 2 is not for the user's eyes: no row ever goes through pandas."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__.partition(".")[0]])  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def deliveries(numbers: DataFrame, tasks: Tasks, parts: Sequence[Run], begins: Sequence[int], ranges: int) -> DataFrame:
    """``part, name, content``: of every slot of every part the tables ``deliveries`` and ``buckets``, and the ``edges`` of lost messages.

    Words travel in columns and not as rows: Spark takes longer for a row of them than reading its 64 messages takes.
    """
    with _for_workers():
        words = numbers.mapInArrow(WordsOfFiles(tasks, parts, begins), WORDS_SCHEMA)
        return words.groupBy("part", "slot").applyInArrow(deliveries_of_words(parts, ranges), TABLE_SCHEMA)
