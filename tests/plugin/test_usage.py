"""What is said before anything is started: usage errors, selection, plans."""

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
    """Wrong profiles, marks and fixtures of all tests are told together, with file, line and column, with and without xdist."""
    project.write("profiles/wrong.yaml", WRONG)
    project.profile("small")
    project.write("test_wrong.py", ASKING_WRONGLY)
    run = project.run(workers)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    for text in ("profiles/wrong.yaml:2:", "profiles/wrong.yaml:4:", "profiles/wrong.yaml:5:1: ", "testDuration", "no profile 'nowhere'",
                 "test_without_mark uses the fixture `load` but has no mark", "test_without_fixture is marked load but does not use",
                 "@pytest.mark.load(scale=3): unknown key 'scale'"):  # fmt: skip
        assert text in run.out
    assert "Traceback" not in run.out
    assert not project.runs()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--load-scale", "much"], "--load-scale much: write a factor above 0"),
        (["--load-duration", "10"], "--load-duration"),
        (["--load-spark-conf", "cores"], "--load-spark-conf cores: write KEY=VALUE"),
        (["-n2", "--load-scale", "0"], "--load-scale 0: write a factor above 0"),
        (["-n2", "--dist", "each"], "--dist each runs every test once per worker"),
    ],
)
def test_options_that_cannot_be(project: Project, options: list[str], said: str) -> None:
    """They end in one line and exit status 4."""
    project.profile("small")
    project.write("test_it.py", 'import pytest\n@pytest.mark.load("small")\ndef test_it(load): ...\n')
    run = project.run(*options)
    assert (run.ret, said in run.out) == (pytest.ExitCode.USAGE_ERROR, True)
    assert "Traceback" not in run.out


@pytest.mark.parametrize(
    ("options", "mark"),
    [
        (["--load-target", "mqtt://user:secret@host"], ""),
        (["-n2", "--load-admin-url", "http://user:secret@host:8080"], ""),
        ([], ", target='mqtt://user:secret@host'"),
    ],
)
def test_users_and_passwords_in_addresses(project: Project, options: list[str], mark: str) -> None:
    """They are refused before anything is started, and never shown."""
    project.profile("small")
    project.write("test_it.py", f'import pytest\n@pytest.mark.load("small"{mark})\ndef test_it(load): ...\n')
    run = project.run(*options)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "***@host" in run.out
    assert "an address has no user and no password" in run.out
    assert "secret" not in run.out


def test_dist_each_without_load_tests(project: Project) -> None:
    """A project whose selected tests drive no load keeps --dist each."""
    project.write("test_it.py", "def test_it(): ...\n")
    assert project.run("-n2", "--dist", "each").outcomes == {"passed": 2}


def test_soak_tests_run_when_asked_for(project: Project) -> None:
    """A test marked soak is deselected unless -m says its name, or its node id, which ``tests/unit`` has."""
    project.profile("small")
    project.write(
        "test_it.py", 'import pytest\n@pytest.mark.soak\n@pytest.mark.load("small")\ndef test_soak(load): ...\ndef test_other(): ...\n'
    )
    collected = {options: project.run("--collect-only", "-q", *options).out for options in ((), ("-m", "soak"))}
    assert {options: "test_it.py::test_soak" in out.split() for options, out in collected.items()} == {(): False, ("-m", "soak"): True}
    assert "1 deselected" in collected[()]


def test_a_plan_runs_nothing(project: Project) -> None:
    """--load-plan prints the plan of every selected load test for -n 16, and starts no worker, no broker and no JVM."""
    project.profile("small", rate=10_000_000)
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("small")\ndef test_it(load): raise AssertionError\ndef test_other(): raise AssertionError\n',
    )
    run = project.run("--load-plan", "-n16", "--load-scale", "0.5", "-p", "no:cacheprovider")
    assert run.ret == 0
    assert "16: 1p+0c" in run.out
    assert "5.00 M msg/s of 64 B mean" in run.out
    assert "BEYOND" in run.out
    assert "SCALED" in run.out
    assert "test_other" not in run.out
    assert "workers [" not in run.out
    assert not (project.path / ".loadtest").exists()


def test_a_plan_that_cannot_be_is_a_usage_error(project: Project) -> None:
    """Every plan is printed, the wrong one with what is wrong, and the status says that there is one."""
    project.profile("good")
    project.profile("wrong", rate=10_000_000, duration="1000h", size="messageSize: 16")
    project.write(
        "test_it.py",
        "import pytest\n" + "".join(f'@pytest.mark.load("{name}")\ndef test_{name}(load): ...\n' for name in ("wrong", "good")),
    )
    run = project.run("--load-plan", "-p", "no:cacheprovider")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "make the payloads 32 B or larger" in run.out
    assert "ERROR: no plan for test_it.py::test_wrong: see above" in run.out
    assert "500 msg/s of 64 B mean" in run.out
    assert "Traceback" not in run.out


def test_keys_from_the_command_line(project: Project) -> None:
    """They win over mark and matrix in every test, and the header tells them, less their secrets; a wrong one is named as it was written."""
    project.profile("small", more="matrix: {topics: [1, 3]}")
    project.write("test_it.py", 'import pytest\n@pytest.mark.load("small", producerRate=300)\ndef test_it(load, load_matrix): ...\n')
    run = project.run(
        "--load-plan", "-n2", "--load-set", "producerRate=7000", "--load-set", "topics=5", "--load-set", "driver={name: loopback}"
    )
    assert run.ret == 0
    assert "loadtest: set producerRate=7000, set topics=5, set driver=***, results in .loadtest" in run.out
    assert run.out.count("7 000 msg/s of 64 B mean") == 2
    assert run.out.count("topics       5 × 1 partitions") == 2
    run = project.run("-n2", "--load-set", "mesageSize=5", "-k", "topics=1")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "--load-set mesageSize=5: unknown key 'mesageSize' (did you mean messageSize?)" in run.out


def test_a_part_of_a_matrix(project: Project) -> None:
    """The mark takes some names of the matrix, which are the ids; what the matrix does not have is a usage error."""
    project.profile(
        "small", more="matrix: {crowd: {few: {topics: 1}, many: {topics: 9, consumerPerSubscription: 2}}, messageSize: [64, 96]}"
    )
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("small", matrix={"crowd": "many", "messageSize": [64, 96]})\ndef test_it(load): ...\n',
    )
    run = project.run("--collect-only", "-q")
    assert run.out.splitlines()[:2] == ["test_it.py::test_it[many-messageSize=64]", "test_it.py::test_it[many-messageSize=96]"]
    run = project.run("--load-plan", "-k", "many and 96")
    assert run.ret == 0
    assert run.out.count("topics       9 × 1 partitions") == 1
    project.write("test_it.py", 'import pytest\n@pytest.mark.load("small", matrix={"crowd": "crowded"})\ndef test_it(load): ...\n')
    run = project.run("--load-plan")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "matrix={'crowd': 'crowded'}: not in the profile's matrix: choose one of few, many" in run.out


def test_help_names_the_options(project: Project) -> None:
    """pytest --help and --markers know the plugin."""
    run = project.run("--help")
    assert all(
        f"--load-{name}" in run.out for name in ("scale", "duration", "plan", "force", "broker", "target", "admin-url", "spark-master")
    )
    assert "@pytest.mark.load(profile" in project.run("--markers").out
