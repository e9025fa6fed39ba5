"""Keys that exclude each other, and required keys, of a workload as it is written."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.profile.presence import EXCLUSIVE, UNSENT, presence

COMPLETE = {"producerRate": 1000, "messageSize": "1KB", "testDuration": "30s"}


def with_keys(*dotted: str) -> dict[str, Any]:
    """A workload with these keys."""
    workload: dict[str, Any] = {}
    for key in dotted:
        section, _, name = key.rpartition(".")
        (workload.setdefault(section, {}) if section else workload)[name] = 1
    return workload


@pytest.mark.parametrize(("keep", "other"), EXCLUSIVE)
def test_two_keys_that_exclude_each_other_are_a_problem_of_the_second(
    keep: str, other: str
) -> None:
    """At its key, with the first one as the suggestion."""
    found = [
        problem for problem in presence(with_keys(keep, other)) if "exclude" in problem.message
    ]
    assert [(problem.path, problem.at_key) for problem in found] == [
        (tuple(other.split(".")), True)
    ]
    assert found[0].text == f"{keep} and {other} exclude each other (keep one, e.g. {keep})"


@pytest.mark.parametrize(("keep", "other"), EXCLUSIVE)
def test_one_of_two_exclusive_keys_is_no_problem(keep: str, other: str) -> None:
    """Nor is the other one."""
    for key in (keep, other):
        assert not [problem for problem in presence(with_keys(key)) if "exclude" in problem.message]


@pytest.mark.parametrize(("keep", "other"), sorted(UNSENT))
def test_a_run_without_messages_has_a_duration_next_to_their_number(keep: str, other: str) -> None:
    """Zero messages do not take time by themselves."""
    assert list(presence({keep: 0, other: "30s"})) == []


@pytest.mark.parametrize(
    ("missing", "replacements"),
    [
        ("producerRate", [{"producersPerTopic": 0}, {"search": {}}, {"messages": 0}]),
        (
            "messageSize",
            [
                {"messageSizeDistribution": {"0-256": 1}},
                {"skew": {"messageSizes": [1]}},
                {"producersPerTopic": 0},
            ],
        ),
        (
            "testDuration",
            [{"testDurationMinutes": 1}, {"messages": 10}, {"stages": []}, {"search": {}}],
        ),
    ],
)
def test_a_required_key_is_missing_unless_another_one_replaces_it(
    missing: str, replacements: list[dict[str, Any]]
) -> None:
    """The suggestion has an example."""
    rest = {key: value for key, value in COMPLETE.items() if key != missing}
    (problem,) = presence(rest)
    assert problem.message == f"{missing} is missing"
    assert problem.suggestion.startswith(f"write {missing}: ")
    for replacement in replacements:
        assert not [
            problem
            for problem in presence(rest | replacement)
            if problem.message == f"{missing} is missing"
        ]
