"""The plugin's options, marks and header, as a user of pytest sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Project


def test_help_names_the_options(project: Project) -> None:
    """``pytest --help`` has the options, ``--markers`` the marks."""
    run = project.run("--help")
    assert all(
        f"--load-{name}" in run.out
        for name in (
            "scale",
            "duration",
            "plan",
            "force",
            "broker",
            "target",
            "admin-url",
            "spark-master",
        )
    )
    assert "@pytest.mark.load(profile" in project.run("--markers").out


def test_keys_from_the_command_line_override_mark_and_matrix(project: Project) -> None:
    """The header shows them without secrets; a wrong key is a usage error that quotes the option."""
    project.profile("small", more="matrix: {topics: [1, 3]}")
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("small", producerRate=300)\ndef test_it(load, load_matrix): ...\n',
    )
    run = project.run(
        "--load-plan",
        "-n2",
        "--load-set",
        "producerRate=7000",
        "--load-set",
        "topics=5",
        "--load-set",
        "driver={name: loopback}",
    )
    assert run.ret == 0
    assert (
        "loadtest: set producerRate=7000, set topics=5, set driver=***, results in .loadtest"
        in run.out
    )
    assert run.out.count("7 000 msg/s of 64 B mean") == 2
    assert run.out.count("topics       5 × 1 partitions") == 2
    run = project.run("-n2", "--load-set", "mesageSize=5", "-k", "topics=1")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "--load-set mesageSize=5: unknown key 'mesageSize' (did you mean messageSize?)" in run.out
    )


def test_dist_each_works_without_load_tests(project: Project) -> None:
    """If no selected test drives load, the mode is not rejected."""
    project.write("test_it.py", "def test_it(): ...\n")
    assert project.run("-n2", "--dist", "each").outcomes == {"passed": 2}


def test_soak_tests_run_only_if_selected(project: Project) -> None:
    """By ``-m soak``; ``tests/unit`` tests the selection by node id."""
    project.profile("small")
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.soak\n@pytest.mark.load("small")\ndef test_soak(load): ...\ndef test_other(): ...\n',
    )
    collected = {
        options: project.run("--collect-only", "-qq", *options).out
        for options in ((), ("-m", "soak"))
    }
    assert {
        options: "test_it.py::test_soak" in out.split() for options, out in collected.items()
    } == {(): False, ("-m", "soak"): True}
    assert "1 deselected" in collected[()]
