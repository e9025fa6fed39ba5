"""Usage errors, all found before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Project

WRONG = """\
name: wrong
topics: 0
messageSize: 64
producerRate: 1e3
testDurration: 1s
driver: {name: loopback}
"""
ASKING_WRONGLY = """\
import pytest

@pytest.mark.load("wrong")
def test_wrong_profile(load): ...

@pytest.mark.load("nowhere")
def test_no_profile(load): ...

def test_without_mark(load): ...

@pytest.mark.load("small")
def test_without_fixture(): ...

@pytest.mark.load("small", scale=3)
def test_unknown_argument(load): ...
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_every_problem_is_a_usage_error_at_once(project: Project, workers: str) -> None:
    """Wrong profiles, marks and fixtures of all tests are reported together, with file, line, column and test, with and without xdist."""
    project.write("profiles/wrong.yaml", WRONG)
    project.profile("small")
    project.write("test_wrong.py", ASKING_WRONGLY)
    run = project.run(workers)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    for text in ("profiles/wrong.yaml:2:", "profiles/wrong.yaml:4:", "profiles/wrong.yaml:5:1: ", "testDuration", "no profile 'nowhere'",
                 "test_without_mark uses the fixture `load` but has no mark", "test_without_fixture is marked load but does not use",
                 "@pytest.mark.load(scale=3): unknown key 'scale'",
                 "in test_wrong.py::test_wrong_profile\n", "in test_wrong.py::test_no_profile\n"):  # fmt: skip
        assert text in run.out
    assert "Traceback" not in run.out
    assert not project.runs()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--load-scale", "much"], "--load-scale much: write a factor above 0"),
        (["--load-duration", "10"], "--load-duration"),
        (["--load-spark-conf", "cores"], "--load-spark-conf cores: write KEY=VALUE"),
        (["-n2", "--load-scale", "0"], "--load-scale 0: write a factor above 0"),
        (["-n2", "--dist", "each"], "--dist each runs every test once per worker"),
    ],
)
def test_a_wrong_option_ends_the_session_with_one_line(
    project: Project, options: list[str], error: str
) -> None:
    """Exit status 4, without a traceback."""
    project.profile("small")
    project.write(
        "test_it.py", 'import pytest\n@pytest.mark.load("small")\ndef test_it(load): ...\n'
    )
    run = project.run(*options)
    assert (run.ret, error in run.out) == (pytest.ExitCode.USAGE_ERROR, True)
    assert "Traceback" not in run.out


@pytest.mark.parametrize(
    ("options", "mark"),
    [
        (["--load-target", "mqtt://user:secret@host"], ""),
        (["-n2", "--load-admin-url", "http://user:secret@host:8080"], ""),
        ([], ", target='mqtt://user:secret@host'"),
    ],
)
def test_an_address_with_a_password_is_rejected_and_not_shown(
    project: Project, options: list[str], mark: str
) -> None:
    """From the command line and from a mark."""
    project.profile("small")
    project.write(
        "test_it.py", f'import pytest\n@pytest.mark.load("small"{mark})\ndef test_it(load): ...\n'
    )
    run = project.run(*options)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "***@host" in run.out
    assert "an address must not have a user or a password" in run.out
    assert "secret" not in run.out


def test_wrong_options_are_ignored_by_a_plan_of_no_load_tests(project: Project) -> None:
    """As by a run without load tests; it was an internal error."""
    project.write("test_it.py", "def test_it(): ...\n")
    run = project.run("--load-plan", "--load-target", "mqtt://user:secret@host")
    assert run.ret == pytest.ExitCode.OK
    assert "secret" not in run.out


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_an_address_of_another_kind_of_broker_is_a_usage_error_at_once(
    project: Project, workers: str
) -> None:
    """Nothing is started for it, and the test is named."""
    project.profile("small")
    path = project.path / "profiles/small.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("{name: loopback}", "{name: mqtt}"),
        encoding="utf-8",
    )
    project.write(
        "test_it.py", 'import pytest\n@pytest.mark.load("small")\ndef test_it(load): ...\n'
    )
    run = project.run(workers, "--load-target", "pulsar://127.0.0.1:6650")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "target 'pulsar://127.0.0.1:6650' is not an address of MQTT: it begins with mqtt:// or mqtts://"
        in run.out
    )
    assert "in test_it.py::test_it" in run.out
    assert not project.runs()


def test_a_mark_selects_values_of_the_matrix(project: Project) -> None:
    """Their names are the ids of the tests; a value that the matrix does not have is a usage error."""
    project.profile(
        "small",
        more="matrix: {crowd: {few: {topics: 1}, many: {topics: 9, consumerPerSubscription: 2}}, messageSize: [64, 96]}",
    )
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("small", matrix={"crowd": "many", "messageSize": [64, 96]})\ndef test_it(load): ...\n',
    )
    run = project.run("--collect-only", "-qq")
    assert run.out.splitlines()[:2] == [
        "test_it.py::test_it[many-messageSize=64]",
        "test_it.py::test_it[many-messageSize=96]",
    ]
    run = project.run("--load-plan", "-k", "many and 96")
    assert run.ret == 0
    assert run.out.count("topics       9 × 1 partitions") == 1
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("small", matrix={"crowd": "crowded"})\ndef test_it(load): ...\n',
    )
    run = project.run("--load-plan")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "matrix={'crowd': 'crowded'}: not in the profile's matrix: choose one of few, many"
        in run.out
    )
