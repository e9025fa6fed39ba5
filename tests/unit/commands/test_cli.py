"""The command line: its arguments, its errors and its exit status."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_loadtest.commands import calibrate, cli, doctor, starter
from pytest_loadtest.errors import GeneratorLimited, NoData, TargetError, UsageError
from pytest_loadtest.fleet import planning
from pytest_loadtest.kinds.registry import shipped_costs

COST = shipped_costs()["loopback"]


def refused(*arguments: str) -> int:
    """Return the status with which argparse ends a wrong command line."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("fly",), ("aggregate",), ("report",), ("aggregate", "a", "b"), ("calibrate", "--driver", "kafka"),
        ("aggregate", "a", "--spark-conf", "novalue"), ("aggregate", "a", "--spark-conf", "=1"), ("doctor", "--mend"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_ends_with_status_2_and_the_usage(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(*arguments) == cli.USAGE
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--target", "mqtt://joe:hush@127.0.0.1"),
        ("doctor", "--hosts", "env", "--target", "mqtt://joe:hush@127.0.0.1"),
        ("doctor", "--hosts", "env", "--bandwidth", "--target", "mqtt://joe:hush@127.0.0.1"),
        ("doctor", "--hosts", "env", "--target", "odd://127.0.0.1/?token=hush"),
        ("learn", "mqtt://joe:hush@127.0.0.1", "--topic", "a"),
        ("learn", "odd://127.0.0.1?key=hush", "--topic", "a"),
        ("aggregate", "RUN", "--spark-remote", "sc://127.0.0.1:9/;token=hush"),
        (
            "aggregate",
            "RUN",
            "--spark-remote",
            "sc://127.0.0.1:9/;token=hush",
            "--spark-conf",
            "spark.master=local",
        ),
        ("aggregate", "RUN", "--spark-master", "odd://joe:hush@127.0.0.1"),
    ],
)
def test_no_secret_of_an_address_is_in_an_error_of_a_command(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert (
        cli.main([str(tmp_path) if argument == "RUN" else argument for argument in arguments])
        != cli.OK
    )
    shown = capsys.readouterr()
    assert "***" in shown.err
    assert "hush" not in shown.out + shown.err


@pytest.mark.parametrize("command", cli.STATUSES)
def test_help_has_the_exit_statuses_of_its_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(command, "--help") == cli.OK
    shown = capsys.readouterr().out
    assert all(
        f"  {status}  {meaning}\n" in f"{shown}\n"
        for status, meaning in cli.STATUSES[command].items()
    )


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused("--help") == cli.OK
    shown = capsys.readouterr().out
    assert all(re.search(rf"^ +{command}\b", shown, re.MULTILINE) for command in cli.STATUSES)


@pytest.mark.parametrize("command", cli.STATUSES)
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a command line that parses."""
    refused(command, "-h")
    lines = [
        line.strip()
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(f"  python -m pytest_loadtest {command}")
    ]
    assert lines
    for line in lines:
        assert cli._parser().parse_args(line.split()[3:]).command


def test_spark_settings_are_pairs() -> None:
    """The value may hold an equals sign itself."""
    options = cli._parser().parse_args(
        ["aggregate", "run", "--spark-conf", "a=1", "--spark-conf", "b=-Dx=2"]
    )
    assert (dict(options.spark_conf), options.run_dir) == ({"a": "1", "b": "-Dx=2"}, Path("run"))


def test_every_driver_with_a_cost_can_be_calibrated() -> None:
    """The calibration and the shipped table name the same drivers."""
    assert set(calibrate.measurable_rows()) == set(shipped_costs())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x"), cli.USAGE),
        (NoData("x"), cli.NO_DATA),
        (TargetError("x"), cli.NO_DATA),
        (GeneratorLimited("x"), cli.NO_DATA),
    ],
)
def test_errors_have_their_status(
    error: Exception,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line on standard error, no traceback."""

    def fail(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(cli, "_doctor", fail)
    assert cli.main(["doctor"]) == status
    assert capsys.readouterr().err == "error: x\n"


@pytest.mark.parametrize(
    ("arguments", "environment", "redirection", "status", "error"),
    [
        (("schema",), {}, ">/dev/full", cli.USAGE, "error: [Errno 28] No space left on device\n"),
        (("schema",), {}, ">&-", cli.OK, ""),
        (("schema",), {"PYTHONIOENCODING": "ascii"}, "", cli.OK, ""),
        (("init", "ü"), {"PYTHONIOENCODING": "ascii"}, "", cli.OK, ""),
    ],
)
def test_a_standard_output_that_cannot_take_a_text_is_no_missed_objective(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    redirection: str,
    status: int,
    error: str,
    tmp_path: Path,
) -> None:
    """Python's own status after an uncaught error is 1."""
    command = [sys.executable, "-m", "pytest_loadtest", *arguments]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, error)


@pytest.mark.parametrize("name", starter.SCHEMAS)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_schema_is_utf_8_whatever_standard_output_can_take(name: str, encoding: str) -> None:
    command = [sys.executable, "-m", "pytest_loadtest", "schema", name]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    printed = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert json.loads(printed.decode("utf-8")) == json.loads(starter.schema_text(name))


def test_an_interrupted_command_ends_as_a_shell_reports_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_doctor", interrupt)
    assert cli.main(["doctor"]) == cli.INTERRUPTED == 130
    assert capsys.readouterr().err == ""


# --- aggregate


def test_a_missing_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["aggregate", str(tmp_path / "gone")]) == cli.USAGE
    assert f"{tmp_path / 'gone'}: no such folder" in capsys.readouterr().err


def test_the_error_for_a_folder_without_runs_describes_one_with_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["aggregate", str(tmp_path)]) == cli.USAGE
    assert "a run's folder holds run.json" in capsys.readouterr().err


def test_runs_are_found_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are absolute and in order of name; a run's own folder is that run only."""
    for name in ("b/1", "a/2", "a/10"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").touch()
    (tmp_path / "c").mkdir()
    assert cli.runs_in(tmp_path) == [tmp_path / "a/10", tmp_path / "a/2", tmp_path / "b/1"]
    assert cli.runs_in(tmp_path / "a/2") == [tmp_path / "a/2"]
    monkeypatch.chdir(tmp_path / "a")
    assert cli.runs_in(Path("../b")) == [tmp_path / "b/1"]


def test_steps_of_a_search_are_one_run(tmp_path: Path) -> None:
    """Steps of different workloads are separate, and so are other runs."""
    names = ("a/measure", "b/step-01", "b/step-02", "c/step-01", "d/measure")
    found = cli.searches([tmp_path / name for name in names])
    assert [[str(path.relative_to(tmp_path)) for path in one] for one in found] == [
        ["a/measure"],
        ["b/step-01", "b/step-02"],
        ["c/step-01"],
        ["d/measure"],
    ]


# --- doctor


@pytest.mark.parametrize(
    ("arguments", "done", "status"),
    [((), None, cli.OK), (("--fix",), True, cli.OK), (("--fix",), False, cli.MISSED)],
)
def test_doctor_fix_ends_with_1_if_something_is_left_to_do(
    arguments: tuple[str, ...],
    done: bool | None,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without --fix the status is always 0. This machine is not changed."""
    monkeypatch.setattr(doctor, "fix", lambda *_: done)
    assert cli.main(["doctor", *arguments]) == status
    out = capsys.readouterr().out
    assert "mosquitto" in out
    assert ("nothing is left to do" in out) == (done is True)


# --- calibrate


@pytest.mark.parametrize(
    ("arguments", "working", "status"),
    [
        ((), set(calibrate.measurable_rows()), cli.OK),
        ((), {"loopback"}, cli.OK),
        ((), set(), cli.NO_DATA),
        (("--driver", "loopback"), {"loopback"}, cli.OK),
        (("--driver", "loopback", "--driver", "pulsar"), {"loopback"}, cli.NO_DATA),
        (("--driver", "pulsar-native"), {"pulsar-native"}, cli.OK),
    ],
)
def test_calibrate_measures_the_drivers_that_have_a_broker(
    arguments: tuple[str, ...],
    working: set[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A driver without a broker is skipped, unless it was given by name.

    Measured costs are written in any case.
    """

    def measure(key: str, _: object) -> object:
        if key not in working:
            raise TargetError("no broker")
        return replace(COST, produce=1)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "calibrate", measure)
    assert cli.main(["calibrate", *arguments]) == status
    kept = planning.calibrated_costs()
    assert {key for key, cost in kept.items() if cost.produce == 1} == working


def test_measured_costs_that_cannot_be_kept_are_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes minutes to measure them."""
    cache = tmp_path / "file"
    cache.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(calibrate, "calibrate", lambda *_: COST)
    assert cli.main(["calibrate", "--driver", "loopback"]) == cli.USAGE
    shown = capsys.readouterr()
    assert "\nloopback " in shown.out
    assert f"error: cannot write {cache}/pytest-loadtest/costs-" in shown.err
    assert ": Not a directory; set XDG_CACHE_HOME to a folder that can be written\n" in shown.err


def test_doctor_with_a_target_needs_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    """This machine's way to the broker is what a load test shows anyway."""
    assert cli.main(["doctor", "--target", "mqtt://h:1883"]) == 2
    assert "name them with --hosts FILE" in capsys.readouterr().err
