"""run.json: one dataclass, written and parsed strictly."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from builders.run_file import made_run_file

from pytest_loadtest.errors import NoData
from pytest_loadtest.metrics.clocks import ClockFit, ClockLine
from pytest_loadtest.pipeline.run_file import RunChange, RunClock, RunFile, RunStage
from pytest_loadtest.schedule.changes import Aborted

if TYPE_CHECKING:
    from pathlib import Path

STAGE = RunStage(
    name="up", start=7, duration=2, slo={"loss": 0}, rate=1.5, window=10**9, drift=True
)
CHANGE = RunChange(
    at=1,
    rate=500.0,
    bytes=False,
    distribution=True,
    paused=None,
    consumers=3,
    end=True,
    unattainable=None,
    aborted="lost",
)


def edited(folder: Path, change: Any) -> Path:
    made_run_file(stages=(STAGE,), changes=(CHANGE,)).write(folder)
    document = json.loads((folder / "run.json").read_text())
    change(document)
    (folder / "run.json").write_text(json.dumps(document))
    return folder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Stages, changes and the reason of an abort included; a run that did not end, is on one host, has one output of each message, or no tap, has no key for it."""
    run = made_run_file(
        stages=(STAGE,),
        changes=(CHANGE,),
        aborted=Aborted(reason="lost"),
        workload="a",
        delays={"seed": 1},
    )
    run.write(tmp_path)
    assert RunFile.read(tmp_path) == run
    document = json.loads((tmp_path / "run.json").read_text())
    ordinary = ("ended", "clocks", "within_hosts", "samples", "ended_services")
    ordinary += ("outputs", "selective", "tapped", "sole_user")
    assert set(ordinary).isdisjoint(document)
    assert document == {
        name: value
        for name, value in json.loads(json.dumps(asdict(run))).items()
        if name not in ordinary
    }
    routed = replace(run, outputs=3, selective=True, sole_user=True)
    routed.write(tmp_path)
    assert RunFile.read(tmp_path) == routed
    fit = ClockFit(
        line=ClockLine(at=5, offset=-7, drift=1e-6), error=3, round_trip=2, exchanges=1, holds=True
    )
    ended = replace(
        run,
        ended=True,
        ended_services=("service s.py exited with status 3",),
        clocks=(RunClock(worker="h1-1", host="h1", used=ClockLine(at=1, offset=2), fit=fit),),
    )
    ended.write(tmp_path)
    assert RunFile.read(tmp_path) == ended
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_folders_of_older_releases_lack_keys_that_have_a_default(tmp_path: Path) -> None:
    """They have no changes, windows or paced connections."""
    added = (
        "changes",
        "window",
        "drift",
        "connects_only",
        "connect_rate",
        "delays",
        "workload",
        "unattainable",
        "aborted",
        "stages",
    )
    run = RunFile.read(edited(tmp_path, lambda document: [document.pop(key) for key in added]))
    assert run == made_run_file()


def test_the_key_foregone_of_older_releases_is_read(tmp_path: Path) -> None:
    def as_before(document: dict[str, Any]) -> None:
        for part in (document, *document["changes"]):
            del part["unattainable"]
            part["foregone"] = "loss"

    run = RunFile.read(edited(tmp_path, as_before))
    assert run.unattainable == "loss"
    assert [change.unattainable for change in run.changes] == ["loss"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run.pop("start"), "'start' is missing"),
        (lambda run: run["streams"].pop("count"), "'streams.count' is missing"),
        (lambda run: run["stages"][0].pop("name"), "'stages[0].name' is missing"),
        (lambda run: run.update(start="soon"), "start must be a whole number, not 'soon'"),
        (lambda run: run.update(topics=True), "topics must be a whole number, not True"),
        (lambda run: run.update(rate=None), "rate must be a number, not None"),
        (lambda run: run.update(ordered=1), "ordered must be true or false, not 1"),
        (lambda run: run.update(workers="gw0"), "workers must be a list, not 'gw0'"),
        (lambda run: run.update(workers=[0]), "workers[0] must be a text, not 0"),
        (lambda run: run.update(facts=[]), "facts must be an object, not []"),
        (
            lambda run: run["changes"][0].update(at=0.5),
            "changes[0].at must be a whole number, not 0.5",
        ),
        (lambda run: run.update(version=2), "version 2 is not 3, the one this release reads"),
        (lambda run: run.pop("version"), "'version' is missing"),
    ],
)
def test_a_missing_or_mistyped_key_is_no_data(tmp_path: Path, change: Any, message: str) -> None:
    """The message names file, key and value."""
    with pytest.raises(NoData) as caught:
        RunFile.read(edited(tmp_path, change))
    assert str(caught.value) == f"{tmp_path / 'run.json'}: {message}"


@pytest.mark.parametrize("text", ["[]", "3", "null"])
def test_a_file_that_is_no_object_is_no_data(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(NoData, match=r"run\.json: "):
        RunFile.read(tmp_path)


def test_a_folder_without_run_json_is_no_data(tmp_path: Path) -> None:
    """The error names the file, missing or unreadable."""
    with pytest.raises(
        NoData, match=rf"{tmp_path}/run.json is missing: the run was never planned here"
    ):
        RunFile.read(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(NoData, match=rf"{tmp_path}/run.json is not whole: "):
        RunFile.read(tmp_path)
