"""The functions of Spark's workers: what leaves a task, and what it takes to merge it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from runs import MESSAGES, STREAMS, slow_streams

from pytest_loadtest.metrics.in_time import Begins
from pytest_loadtest.pipeline import executor, read
from pytest_loadtest.pipeline.bitmaps import Words
from pytest_loadtest.pipeline.executor import GatheredWords, WordsOfFiles, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.pipeline.tables import Table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 1300 files, which no test changes."""
    return slow_streams(tmp_path_factory.mktemp("slow"))


def gathered(folder: Path) -> list[Table]:
    """The words that leave each task."""
    found = read.load_run(folder)
    words = WordsOfFiles(read.tasks(found), [found.run], [Begins(0)])
    batches = (
        batch
        for i in range(len(read.tasks(found)))
        for batch in words(iter([pa.record_batch([pa.array([i])], names=["id"])]))
    )
    return [unpack(content.as_buffer()) for batch in batches for content in batch["content"]]


def test_words_meet_before_they_are_shuffled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task reads a stretch of the run, so a word leaves from the task or two that it lies in, and not from every one."""
    monkeypatch.setattr(read, "TASK_ROWS", 2 * STREAMS * MESSAGES // 10)
    assert len(read.tasks(read.load_run(folder))) == 10
    tables = gathered(folder)
    assert sum(len(table["word"]) for table in tables) <= 2.5 * STREAMS * MESSAGES / 64


def test_merging_takes_memory_for_words_and_not_for_pieces(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pieces a word comes in, and the answer is the same."""
    monkeypatch.setattr(read, "TASK_ROWS", 500)
    monkeypatch.setattr(executor, "CELLS", 6000)
    words, tables = Words(read.load_run(folder).run), gathered(folder)
    merging = GatheredWords(words)
    most = 0
    for table in tables:
        merging.add(table)
        most = max(most, merging.size)
    assert sum(len(table["word"]) for table in tables) >= 10_000
    assert most <= 4 * STREAMS * MESSAGES / 64
    whole, alike = words.merge(tables), words.merge(merging.tables)
    assert {name: column.tolist() for name, column in alike.items()} == {
        name: column.tolist() for name, column in whole.items()
    }


def test_more_bytes_than_a_column_of_spark_holds_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Offsets of 32 bits would wrap around and give one table the bytes of another."""
    monkeypatch.setattr(executor, "LARGEST", 10)
    with pytest.raises(
        ValueError, match="12 bytes of tables are more than an Arrow column holds, 10"
    ):
        executor._column([b"123456", b"123456"], "binary")
