"""The matrix of a profile: its combinations, and parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest import profile
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import ProfileError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


LEAST = "name: a\nproducerRate: 1000\nmessageSize: 100\ntestDuration: 1s\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(text)
    return path


def test_a_matrix_gives_all_combinations_in_order(tmp_path: Path) -> None:
    """The last key changes fastest; each is an override, and the file alone gives the first."""
    text = (
        LEAST.replace("messageSize: 100\n", "")
        + 'matrix: {messageSize: [100, 1KB], "driver.batchingEnabled": [true, false]}\n'
    )
    path = written(tmp_path, text)
    found = profile.matrix_of(path)
    assert [tuple(one.changes.values()) for one in found] == [
        (100, True),
        (100, False),
        ("1KB", True),
        ("1KB", False),
    ]
    assert list(found[0].changes) == ["messageSize", "driver.batchingEnabled"]
    assert found[0].id == "messageSize=100-driver.batchingEnabled=True"
    sizes = [profile.override(path, one.changes).message_size for one in found]
    assert sizes == [100, 100, 1024, 1024]
    assert profile.load(path) == profile.override(path, found[0].changes)
    assert profile.matrix_of(written(tmp_path, LEAST)) == ()


NAMED = (
    LEAST
    + """\
driver: {name: mqtt}
matrix:
  sessions:
    clean: {driver.qos: 0}
    kept: {driver.qos: 2, driver.cleanStart: false, driver.sessionExpiry: 1h}
  topics: [1, 10]
"""
)


def test_named_keys_of_a_matrix_change_together(tmp_path: Path) -> None:
    """Test ids have the name; a key that a name omits is the profile's."""
    path = written(tmp_path, NAMED)
    found = profile.matrix_of(path)
    assert [one.id for one in found] == [
        "clean-topics=1",
        "clean-topics=10",
        "kept-topics=1",
        "kept-topics=10",
    ]
    assert found[3].changes == {
        "driver.qos": 2,
        "driver.cleanStart": False,
        "driver.sessionExpiry": "1h",
        "topics": 10,
    }
    drivers = [profile.override(path, one.changes).driver for one in found]
    assert [
        (driver.qos, driver.clean_start) for driver in drivers if isinstance(driver, MqttSettings)
    ] == [(0, True)] * 2 + [(2, False)] * 2
    assert profile.load(path).driver == drivers[0]


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        ({"sessions": "kept"}, ["kept-topics=1", "kept-topics=10"]),
        ({"sessions": ["clean", "kept"], "topics": 10}, ["clean-topics=10", "kept-topics=10"]),
        ({"topics": (1,), "sessions": ("clean",)}, ["clean-topics=1"]),
    ],
    ids=str,
)
def test_an_axis_can_be_limited_to_some_values(
    tmp_path: Path, chosen: dict[str, object], ids: list[str]
) -> None:
    assert [one.id for one in profile.matrix_of(written(tmp_path, NAMED), chosen)] == ids


@pytest.mark.parametrize(
    ("text", "chosen", "told"),
    [
        (
            NAMED,
            {"session": "kept"},
            "matrix={'session': …}: the matrix has no such axis: choose one of sessions, topics",
        ),
        (
            NAMED,
            {"sessions": "keep"},
            "matrix={'sessions': 'keep'}: not in the profile's matrix: choose one of clean, kept",
        ),
        (
            NAMED,
            {"topics": []},
            "matrix={'topics': []}: not in the profile's matrix: choose one of 1, 10",
        ),
        (LEAST, {"topics": 1}, "matrix={'topics': 1}: the profile has no matrix"),
    ],
)
def test_an_unknown_axis_or_value_is_an_error_with_the_possible_ones(
    tmp_path: Path, text: str, chosen: dict[str, object], told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        profile.matrix_of(written(tmp_path, text), chosen)
    assert str(caught.value) == told


MATRICES = [
    (
        "matrix: 5",
        "5:9: matrix: is not a mapping of keys to lists (write matrix: {messageSize: [100, 1KB]})",
    ),
    (
        "matrix: {messageSize: 5}",
        "5:23: matrix.messageSize: is not a list of values (write messageSize: [5, …])",
    ),
    (
        "matrix: {messageSize: []}",
        "5:23: matrix.messageSize: is not a list of values (write messageSize: [ … ])",
    ),
    (
        "matrix: {size: {small: 5}}",
        "5:24: matrix.size.small: is not a mapping of keys to values (write small: {driver.qos: 0})",
    ),
    (
        "matrix: {topics: [1], a: {b: {topics: 5}}}",
        "5:39: matrix.a.b.topics: 'topics' is in two axes: matrix.topics, matrix.a (remove it from one)",
    ),
    (
        "matrix: {a: {b: {workloads: 5}}}",
        "5:29: matrix.a.b.workloads: cannot be varied (write other keys of the profile)",
    ),
    (
        "matrix: {a: {b: {name.x: 5}}}",
        "5:18: matrix.a.b.name.x: name is not a section (replace it as a whole)",
    ),
    (
        "matrix: {matrix: [1]}",
        "5:18: matrix.matrix: cannot be varied (write other keys of the profile)",
    ),
    ("matrix: {name.x: [1]}", "5:10: matrix.name.x: name is not a section (replace it as a whole)"),
    ("matrix: {topics: [1, 2, 0]}", "5:25: topics: 0 must be at least 1"),
    (
        "matrix: {topic: [1], driver.ioThread: [1]}",
        "5:40: unknown key 'ioThread' (did you mean ioThreads?)",
    ),
]


@pytest.mark.parametrize(("line", "problem"), MATRICES, ids=[line for line, _ in MATRICES])
def test_a_wrong_matrix_is_an_error_at_its_value(tmp_path: Path, line: str, problem: str) -> None:
    """Every combination is checked."""
    with pytest.raises(ProfileError) as caught:
        profile.matrix_of(written(tmp_path, f"{LEAST}{line}\n"))
    assert f"{tmp_path}/p.yaml:{problem}" in str(caught.value).splitlines()


CELLS = """\
matrix:
  use:
    one: {messageSize: 100, driver.batchingMaxMessages: 7, slo.outOfOrder: 0}
    other: {messageSize: 200}
    both: {messageSize: 200, topics: 3}
"""


def test_a_key_of_one_combination_stays_in_it(tmp_path: Path) -> None:
    """Other combinations have the profile's own value, or none; also next to the keys of a mark."""
    path = written(tmp_path, LEAST.replace("messageSize: 100\n", "") + CELLS)
    one, other, both = (
        profile.override(path, {**variant.changes, "seed": 5}, {})
        for variant in profile.matrix_of(path)
    )
    assert isinstance(one.driver, PulsarSettings) and isinstance(other.driver, PulsarSettings)
    assert (one.driver.batching_max_messages, other.driver.batching_max_messages) == (7, 1000)
    assert ("outOfOrder" in one.slo, "outOfOrder" in other.slo) == (True, False)
    assert (other.topics, both.topics, both.message_size, both.seed) == (1, 3, 200, 5)
