"""Thousands of slow streams, of which each has a message now and then: what is shuffled of them, and what it takes to merge it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from runs import Rows, make_run, write_run

from pytest_loadtest.message.samples import KINDS
from pytest_loadtest.pipeline import executor, read
from pytest_loadtest.pipeline.bitmaps import Words
from pytest_loadtest.pipeline.executor import GatheredWords, WordsOfFiles, unpack
from pytest_loadtest.pipeline.first_copies import FirstCopiesOfFiles

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.pipeline.tables import Table

STREAMS, MESSAGES = 100, 640


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run in the order of time, two messages of each stream to a file."""
    seq, stream = np.divmod(np.arange(STREAMS * MESSAGES), STREAMS)
    rows: Rows = {column.name: np.zeros(len(seq), np.int64) for kind in KINDS.values() for column in kind}
    rows |= {"stream": stream, "topic": stream % 2, "seq": seq, "sent": seq + 1, "acked": seq + 1, "received": seq + 1}
    run = make_run(streams=STREAMS, messages=MESSAGES, end=np.full(STREAMS, MESSAGES))
    return write_run(tmp_path / "run", run, rows, rows, chunk=STREAMS)


def gathered(folder: Path) -> list[Table]:
    """The words that leave each task."""
    found = read.load(folder)
    words = WordsOfFiles(read.tasks(found), [found.run], [0])
    batches = (batch for i in range(len(read.tasks(found))) for batch in words(iter([pa.record_batch([pa.array([i])], names=["id"])])))
    return [unpack(content.as_buffer()) for batch in batches for content in batch["content"]]


def test_words_meet_before_they_are_shuffled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task reads a stretch of the run, so a word leaves from the task or two that it lies in, and not from every one."""
    monkeypatch.setattr(read, "TASK_ROWS", 2 * STREAMS * MESSAGES // 10)
    assert len(read.tasks(read.load(folder))) == 10
    tables = gathered(folder)
    assert sum(len(table["word"]) for table in tables) <= 2.5 * STREAMS * MESSAGES / 64


def test_merging_takes_memory_for_words_and_not_for_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pieces a word comes in, and the answer is the same."""
    monkeypatch.setattr(read, "TASK_ROWS", 500)
    monkeypatch.setattr(executor, "CELLS", 6000)
    words, tables = Words(read.load(folder).run), gathered(folder)
    merging = GatheredWords(words)
    most = 0
    for table in tables:
        merging.add(table)
        most = max(most, merging.size)
    assert sum(len(table["word"]) for table in tables) >= 10_000
    assert most <= 4 * STREAMS * MESSAGES / 64
    whole, alike = words.merge(tables), words.merge(merging.tables)
    assert {name: column.tolist() for name, column in alike.items()} == {name: column.tolist() for name, column in whole.items()}


def test_of_what_came_three_times_a_row_leaves_a_task_for_each_delivery(folder: Path) -> None:
    """The others are counted in the task."""
    found = read.load(folder)
    files = [path for task in read.tasks(found) for path in task]
    scan = FirstCopiesOfFiles([[*files, *files, *files]], [found.run], [{"low": np.array([0]), "high": np.array([1 << 40])}])
    names: dict[str, int] = {}
    for batch in scan(iter([pa.record_batch([pa.array([0])], names=["id"])])):
        for name, content in zip(batch["name"].to_pylist(), batch["content"], strict=True):
            table = unpack(content.as_buffer())
            names[name] = names.get(name, 0) + (int(table["n"].sum()) if "n" in table else len(next(iter(table.values()))))
    assert (names["rows"], names["counts"]) == (STREAMS * MESSAGES, 2 * STREAMS * MESSAGES)
