"""``compare`` and ``trend`` on results and history files made up for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from builders.documents import document
from builders.measurements import spread
from builders.results import put

from pytest_loadtest.commands import cli
from pytest_loadtest.report.history import append_history, history_line

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.report.document import RunDocument


def stored(root: Path, run: RunDocument) -> str:
    put(root, run)
    return str(root)


def test_a_comparison_shows_both_runs_of_a_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without regression objectives nothing is judged, and the status is 0."""
    folders = [
        stored(tmp_path / "a", document()),
        stored(tmp_path / "b", document(end_to_end=spread(0.5, 30))),
    ]
    assert cli.main(["compare", *folders]) == cli.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("loadtests/test_smoke.py::test_smoke")
    assert any("endToEndLatency.p99" in line for line in lines)


def test_a_test_in_one_folder_only_is_listed_and_has_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No test is in both folders, so there is no data."""
    other = document(facts={"test": "loadtests/test_other.py::test_other"})
    folders = [stored(tmp_path / "a", document()), stored(tmp_path / "b", other)]
    assert cli.main(["compare", *folders]) == cli.NO_DATA
    out = capsys.readouterr().out
    assert "only in the baseline: .loadtest/1/test_smoke" in out
    assert "only in the later results: .loadtest/1/test_smoke" in out
    assert cli.main(["compare", *folders, "--json"]) == cli.NO_DATA
    assert [test["comparison"] for test in json.loads(capsys.readouterr().out)] == [None, None]


def gated(**bounds: str) -> RunDocument:
    profile = {
        "name": "smoke",
        "producerRate": 1,
        "driver": {"name": "pulsar"},
        "slo": {"regression": bounds},
    }
    return document(facts={"profile": profile})


def test_bounds_on_regression_that_cannot_be_judged_are_no_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A later version may have written them, or one side does not have the test."""
    plain, other = (
        stored(tmp_path / "a", document()),
        document(facts={"test": "loadtests/test_other.py::test_other"}),
    )
    assert cli.main(["compare", plain, stored(tmp_path / "b", gated(vibes="10%"))]) == cli.NO_DATA
    assert (
        "? no data: the bounds on regression are in the grammar of another version"
        in capsys.readouterr().out
    )
    both = stored(tmp_path / "c", gated(throughput="10%"))
    put(tmp_path / "c", other, "test_other")
    alone = stored(tmp_path / "d", other)
    for folders in ((both, alone), (alone, both)):
        assert cli.main(["compare", *folders]) == cli.NO_DATA
        assert "its bounds on regression cannot be judged" in capsys.readouterr().out
    assert cli.main(["compare", plain, plain]) == cli.OK


@pytest.mark.parametrize("text", ['{"version": 4, "test": "cut o', '{"version": 2}', ""])
def test_results_that_cannot_be_read_are_named_and_no_data(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bounds of that run may have been missed."""
    folders = [stored(tmp_path / "a", document()), stored(tmp_path / "b", document())]
    file = put(tmp_path / "b", document(), "test_other") / "results.json"
    file.write_text(text, encoding="utf-8")
    assert cli.main(["compare", *folders]) == cli.NO_DATA
    printed = capsys.readouterr()
    assert printed.err.startswith(f"{file} ")
    assert "compared" in printed.out
    assert cli.main(["compare", str(tmp_path / "a"), str(file.parent)]) == cli.USAGE
    assert f"error: {file} " in capsys.readouterr().err


def test_two_files_are_compared_whatever_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The title has both, with their scale."""
    other = document(
        facts={"test": "test_other.py::test_other", "scale": 0.1, "scaling": {"rate": "less"}}
    )
    files = [
        f"{put(tmp_path / name, run)}/results.json"
        for name, run in (("a", other), ("b", document()))
    ]
    assert cli.main(["compare", *files]) == cli.OK
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.endswith(
        "profile smoke, compared with test_other.py::test_other · profile smoke · SCALED ×0.1"
    )
    assert any("NOT COMPARABLE" in line for line in lines)


def test_markdown_is_for_a_comment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text of the comparison only; the status is that of the bounds, and problems are in both."""
    slower = document(end_to_end=spread(0.5, 30))
    folders = [stored(tmp_path / "a", document()), stored(tmp_path / "b", slower)]
    assert cli.main(["compare", *folders, "--markdown"]) == cli.OK
    printed = capsys.readouterr()
    assert printed.out.startswith("## Load tests compared: 1 without a certain change\n\n| | test")
    assert printed.err == ""
    broken = put(tmp_path / "b", document(), "test_other") / "results.json"
    broken.write_text("{", encoding="utf-8")
    assert cli.main(["compare", *folders, "--markdown"]) == cli.NO_DATA
    assert "- **no data**: " in capsys.readouterr().out
    with pytest.raises(SystemExit) as wrong:
        cli.main(["compare", *folders, "--markdown", "--json"])
    assert wrong.value.code == cli.USAGE


def test_markdown_survives_an_output_of_ascii(tmp_path: Path) -> None:
    """Arrows and signs are written as references, which Markdown reads."""
    scaled = document(facts={"scale": 0.1, "scaling": {"rate": "less"}})
    folders = [stored(tmp_path / "a", scaled), stored(tmp_path / "b", scaled)]
    command = [sys.executable, "-m", "pytest_loadtest", "compare", *folders, "--markdown"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (cli.OK, b"")
    assert b"SCALED &#215;0.1" in done.stdout


def test_a_trend_skips_lines_of_other_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their number goes to standard error; a test without runs is a usage error."""
    file = tmp_path / "history.jsonl"
    append_history(file, [history_line(document())] * 2)
    with file.open("a", encoding="utf-8") as lines:
        lines.write('{"version": 99}\n')
    assert cli.main(["trend", str(file), "--test", "smoke"]) == cli.OK
    printed = capsys.readouterr()
    assert "2 runs" in printed.out
    assert "skipped 1 line:" in printed.err
    assert cli.main(["trend", str(file), "--json"]) == cli.OK
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert cli.main(["trend", str(file), "--test", "orders"]) == cli.USAGE
    assert "has no run of 'orders'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--markdown",)])
def test_a_comparison_is_printed_on_any_standard_output(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """A name may have characters that it lacks; a closed one prints nothing."""
    now = document(facts={"test": "loadtests/test_ü.py::test"})
    folders = [stored(tmp_path / name, now) for name in "ab"]
    command = [sys.executable, "-m", "pytest_loadtest", "compare", *folders, *arguments]
    for redirection, printed in (("", True), (" >&-", False)):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@"{redirection}', "sh", *command],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, bool(done.stdout)) == (cli.OK, printed), done.stderr
        if printed and "--json" in arguments:
            assert "ü" in json.loads(done.stdout)[0]["name"]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    """``trend FILE | head`` ended with a traceback."""
    file = tmp_path / "history.jsonl"
    append_history(file, [history_line(document())])
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "pytest_loadtest", "trend", str(file)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (cli.CLOSED, b"")
