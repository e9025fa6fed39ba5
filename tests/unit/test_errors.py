"""Errors: their families, their texts, and their way from a worker to the controller."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile
from pytest_loadtest.errors import (
    MOST_SHOWN,
    BrokenRun,
    GeneratorLimited,
    Invalid,
    LoadtestError,
    NoData,
    Problem,
    ProfileError,
    RunAborted,
    TargetError,
    UsageError,
    WorkerError,
    invalid,
)


@pytest.mark.parametrize(
    ("family", "errors"),
    [
        (UsageError, [ProfileError, RunAborted]),
        (BrokenRun, [NoData, TargetError, WorkerError, GeneratorLimited]),
        (NoData, [TargetError, WorkerError]),
    ],
)
def test_a_family_has_its_errors_and_no_other(
    family: type[LoadtestError], errors: list[type[LoadtestError]]
) -> None:
    """pytest reports a usage error and a broken run differently, so no error may belong to both."""
    every = [
        UsageError,
        RunAborted,
        ProfileError,
        BrokenRun,
        NoData,
        TargetError,
        WorkerError,
        GeneratorLimited,
    ]
    assert all(issubclass(error, LoadtestError) for error in every)
    assert [error for error in every if issubclass(error, family) and error is not family] == [
        error for error in every if error in errors
    ]


def test_a_reader_s_error_is_not_one_that_users_see() -> None:
    """Whoever knows the whole text turns ``Invalid`` into a ``ProfileError``: if it escaped, it would be a bug and look like one."""
    assert not issubclass(Invalid, LoadtestError)


@pytest.mark.parametrize(
    "error",
    [
        TargetError("the target went away"),
        GeneratorLimited("late"),
        ProfileError("p.yaml", (Problem((), "wrong", "write right", line=1, column=2),)),
    ],
)
def test_errors_survive_pickling(error: LoadtestError) -> None:
    """They cross from workers to the controller."""
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


def test_the_problems_of_a_profile_survive_pickling() -> None:
    with pytest.raises(ProfileError) as caught:
        profile.loads("name: 5\n", "p.yaml")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_profile_error_has_one_line_for_each_problem() -> None:
    """With file, line, column, and the remedy if there is one."""
    problems = (
        Problem(("a",), "a: wrong", "write b", line=3, column=7),
        Problem((), "missing", line=9, column=1),
    )
    assert (
        str(ProfileError("p.yaml", problems))
        == "p.yaml:3:7: a: wrong (write b)\np.yaml:9:1: missing"
    )


def test_an_invalid_value_has_a_problem_without_a_path() -> None:
    """Its reader does not know the path, but whether the key is wrong."""
    problem = invalid("'x' is not a number", "write 0", at_key=True).problem
    assert (problem.path, problem.text, problem.at_key) == (
        (),
        "'x' is not a number (write 0)",
        True,
    )


def test_a_problem_of_a_section_becomes_one_of_the_whole_text() -> None:
    """Its path grows at the front; everything else stays."""
    problem = Problem(("p99",), "wrong", "write 1ms", at_key=True).below("slo", "publishLatency")
    assert (problem.path, problem.message, problem.suggestion, problem.at_key) == (
        ("slo", "publishLatency", "p99"),
        "wrong",
        "write 1ms",
        True,
    )
    assert problem.named().message == "slo.publishLatency.p99: wrong"


def located(message: str) -> str:
    return Problem((), message, line=1, column=1).message


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_long_quoted_value_is_cut(quote: str) -> None:
    """Also one of several words, with its closing quote; the text around it stays."""
    value = "ab " * MOST_SHOWN
    assert (
        located(f"x: {quote}{value}{quote} is wrong") == f"x: {quote}{value[:MOST_SHOWN]}… is wrong"
    )


@given(st.text("ab \\'", max_size=MOST_SHOWN // 2))
def test_a_value_that_is_short_enough_is_not_cut(value: str) -> None:
    """Values are shown as Python spells them, quotes and backslashes included."""
    message = f"{value!r} is wrong"
    assert located(message) == message
    words = f"'{'x ' * (MOST_SHOWN // 2)}' is wrong"
    assert located(words) == words


def test_a_long_word_is_cut_and_a_path_is_not() -> None:
    """A path names the file that the user must find."""
    assert located("x" * (MOST_SHOWN + 1)) == "x" * MOST_SHOWN + "…"
    path = "/folder" * MOST_SHOWN
    assert located(f"no file {path}") == f"no file {path}"


def test_the_remedy_is_cut_too() -> None:
    assert Problem((), "wrong", "y" * 500, line=1, column=1).suggestion == "y" * MOST_SHOWN + "…"


def test_a_problem_without_a_place_keeps_its_whole_text() -> None:
    """Its message is worked on: only a problem that is shown is cut, and once."""
    message = "x" * (2 * MOST_SHOWN)
    assert Problem((), message).message == message
    assert Problem((), message).text == message
