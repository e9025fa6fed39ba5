"""``python -m pytest_loadtest aggregate`` on the samples of real runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_loadtest.commands import cli

from .projects import Project, fresh

TESTS = """\
import pytest

@pytest.mark.load(profile="good")
def test_good(load):
    load.assert_slo()

@pytest.mark.load(profile="slow")
def test_slow(load):
    load.assert_slo()

@pytest.mark.load(profile="sought", search={"start": 250, "max": 370, "hold": "1s", "warmup": "0s", "precision": "50%", "repeats": 1})
def test_sought(load):
    load.assert_slo()

@pytest.mark.load(profile="piled", consumerBacklogSizeGB=0.00002, testDuration="500ms")
def test_piled(load):
    load.assert_slo()
"""
SPARK = (
    "spark.master=local[1]",
    "spark.sql.shuffle.partitions=1",
    "spark.driver.memory=512m",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project whose only session has ended; ``kept`` holds a copy of its results."""
    with fresh(tmp_path_factory.mktemp("session")) as project:
        project.profile("good", slo="{throughput: 1%, sent: 1%}")
        project.profile("slow", slo="{duplicates: {min: 1}}")
        project.profile("piled", slo="{sent: 1%}")
        project.profile("sought", slo="{throughput: 90%, sent: 1%, dropped: 100%}")
        text = (project.path / "profiles/sought.yaml").read_text(encoding="utf-8")
        project.write(
            "profiles/sought.yaml",
            text.replace("{name: loopback}", "{name: loopback, capacity: 300}"),
        )
        project.write("test_them.py", TESTS)
        project.run("-p", "no:cacheprovider")
    shutil.copytree(project.path / ".loadtest", project.path / "kept")
    return project


@pytest.fixture
def project(finished: Project) -> Project:
    """Return the project as the session left it, for a test to damage; at its own path, which results contain."""
    shutil.rmtree(finished.path / ".loadtest")
    shutil.copytree(finished.path / "kept", finished.path / ".loadtest")
    return finished


@pytest.fixture
def runs(project: Project) -> dict[str, Path]:
    """Return the folders of a run that met its objectives, of one that missed one, of a backlog and of a search."""
    return {
        json.loads((folder / "run.json").read_text())["profile"]["name"]: folder
        for folder in reversed(project.runs())
    }


def aggregate(project: Project, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    conf = [word for pair in SPARK for word in ("--spark-conf", pair)]
    done = project.command("aggregate", str(folder), *conf, *more)
    print(done.stdout, done.stderr)
    return done


def check_search(search: Path, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a search is judged by its answer.

    The status is that of the step at the peak: the steps above it were missed, which is how the peak was found. Without the results of
    that step the answer is unknown.
    """
    outcomes = {
        folder: json.loads((folder / "results.json").read_text())["verdict"]["outcome"]
        for folder in cli.runs_in(search)
    }
    steps = list(outcomes)
    (best,) = [
        folder
        for folder in steps
        if json.loads((folder / "results.json").read_text())["peak"] is not None
    ]
    assert "test_sought · profile sought · MISSED" in said
    assert json.loads((best / "results.json").read_text())["peak"]["rate"] >= 100
    assert len(steps) > 1 and cli.searches(steps) == [steps]
    assert "missed" in outcomes.values()
    assert cli._status(outcomes) == cli.OK

    (best / "results.json").unlink()
    assert cli._status(dict.fromkeys(steps, "met")) == cli.NO_DATA
    assert f"{search}: NO DATA" in capsys.readouterr().out


def test_runs_are_judged_again(
    project: Project, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """All runs of a session, with the same results to the byte; the status is that of the worst.

    The build-up and drain of a backlog were observed while load ran and are not in the samples: they are taken from the earlier results.

    Then one manifest is deleted and another run is given up: no data for both, without a question to Spark, and earlier results are kept.
    """
    search = runs.pop("sought").parent
    before = {
        (folder / name): (folder / name).read_bytes()
        for folder in runs.values()
        for name in ("results.json", "latency.hlog")
    }
    steps = {path: path.read_bytes() for path in search.glob("step-*/results.json")}
    backlog = json.loads(before[runs["piled"] / "results.json"])["backlog"]
    assert backlog["drained"]
    assert backlog["left"] <= backlog["allowed"] < backlog["messages"]
    for path in before:
        if path.parent != runs["piled"]:
            path.unlink()
    done = aggregate(project, project.path / ".loadtest")
    assert done.returncode == cli.MISSED
    assert "test_good · profile good · MET" in done.stdout
    assert "test_slow · profile slow · MISSED" in done.stdout
    assert {path: path.read_bytes() for path in before} == before
    assert {path: path.read_bytes() for path in steps} == steps
    check_search(search, done.stdout, capsys)

    (runs["good"] / "main.manifest.json").unlink()
    run = json.loads((runs["slow"] / "run.json").read_text())
    (runs["slow"] / "run.json").write_text(json.dumps({**run, "ended": False}))
    no_spark: Any = None
    for name, why in (("good", "main.manifest.json"), ("slow", "did not end normally")):
        outcome = cli._judge(no_spark, runs[name], None)
        assert cli._status({runs[name]: outcome}) == cli.NO_DATA
        out = capsys.readouterr().out
        assert "NO DATA" in out and why in out
    assert {path: path.read_bytes() for path in before} == before
