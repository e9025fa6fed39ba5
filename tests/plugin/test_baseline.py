"""``--load-baseline``, ``--load-history``, and the commands that read their files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_loadtest.commands import cli

if TYPE_CHECKING:
    import pytest

    from .projects import Project

TEST = """\
import pytest

@pytest.mark.load("orders")
def test_orders(load): ...
"""
SLO = "{throughput: 1%, sent: 1%, regression: {endToEndLatency.p50: 10%}}"


def test_a_run_is_compared_with_the_last_one_that_was_met(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a baseline the bound is only noted; with too few samples to know the noise it is no data; each run has a line in the history."""
    project.profile("orders", slo=SLO)
    project.write("test_orders.py", TEST)
    first = project.run("--load-history", "history.jsonl")
    (document,) = first.documents.values()
    assert first.outcomes == {"passed": 1}
    assert document["notes"] == [
        "regression of endToEndLatency.p50 is not judged: no baseline was given (--load-baseline)"
    ]
    assert document["comparison"] is None

    second = project.run("--load-history", "history.jsonl", "--load-baseline", "last-met")
    (later,) = second.documents.values()
    assert second.outcomes == {"error": 1}
    assert later["verdict"]["outcome"] == "no data"
    assert later["verdict"]["reasons"] == [
        "regression.endToEndLatency.p50: noise is known from 20 s of measured phase on, this run has 1 s"
    ]
    assert later["comparison"]["baseline"]["results"] == document["results"]
    assert later["comparison"]["comparable"]
    assert f"baseline   {document['results']}" in second.out

    lines = [json.loads(line) for line in (project.path / "history.jsonl").read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["met", "no data"]
    assert lines[0]["comparableKey"] == lines[1]["comparableKey"]
    assert cli.main(["trend", str(project.path / "history.jsonl")]) == cli.OK
    assert "· profile orders · 2 runs" in capsys.readouterr().out
    assert cli.main(["compare", document["results"], later["results"]]) == cli.NO_DATA
    out = capsys.readouterr().out
    assert "endToEndLatency.p99" in out
    assert (
        "? no data: regression.endToEndLatency.p50: noise is known from 20 s of measured phase on"
        in out
    )
    assert cli.main(["compare", document["results"], later["results"], "--json"]) == cli.NO_DATA
    assert json.loads(capsys.readouterr().out)[0]["comparison"]["comparable"] is True


def test_a_wrong_baseline_or_history_is_a_usage_error_before_any_load(project: Project) -> None:
    """A missing baseline, nothing to force, a history in a missing folder."""
    project.profile("orders")
    project.write("test_orders.py", TEST)
    for arguments, said in (
        (("--load-baseline", "gone"), "--load-baseline: "),
        (("--load-baseline-force",), "there is nothing to force without --load-baseline"),
        (
            ("--load-history", "gone/history.jsonl"),
            "cannot be written; name a file in an existing folder",
        ),
    ):
        done = project.run(*arguments)
        assert done.ret == 4
        assert said in done.out
        assert done.documents == {}


def test_a_missing_baseline_of_the_ini_file_is_no_data(project: Project) -> None:
    """Regression objectives cannot be judged; ``none`` leaves them out for one session, a missing file is a usage error."""
    project.profile("orders", slo=SLO)
    project.write("test_orders.py", TEST)
    found = project.run("-o", "load_baseline=last-met")
    (document,) = found.documents.values()
    assert found.outcomes == {"error": 1}
    assert (
        "was met yet: make one run with --load-baseline none first"
        in document["verdict"]["reasons"][0]
    )
    assert project.run("-o", "load_baseline=last-met", "--load-baseline", "none").outcomes == {
        "passed": 1
    }
    gone = project.run("-o", "load_baseline=gone/results.json")
    assert (gone.ret, "load_baseline (ini): " in gone.out) == (4, True)
