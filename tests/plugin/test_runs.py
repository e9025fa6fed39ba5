"""Whole runs on the loopback: the same load for any number of workers, four outcomes, and their results.

Every pytest run that aggregates takes long, so each test checks many things.
"""

from __future__ import annotations

import json
import os
import pty
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pytest_loadtest.report.document import results_schema

if TYPE_CHECKING:
    from xml.etree import ElementTree

    from .projects import Project

TESTS = """\
import pytest
from pytest_loadtest import ms

@pytest.mark.load("mix")
def test_met(load, record_property):
    load.assert_slo()
    assert load.loss == 0
    assert load.end_to_end.p50 <= ms(30_000)
    for name, value in {
        "p50": load.end_to_end.p50, "bound": ms(20), "throughput": load.throughput, "lost": load.loss, "latency": load.end_to_end,
        "counts": load.measurements.counts, "both": (load.end_to_end.p50, load.publish.p90), "verdict": load.verdict.outcome.value,
    }.items():
        record_property(f"own.{name}", value)

@pytest.mark.load("mix")
def test_once_plain_assert(load):
    assert load.end_to_end.p50 <= ms(0.0001)

@pytest.mark.load("missed")
def test_missed(load):
    load.assert_slo()

@pytest.mark.load("rare")
def test_too_few_samples(load):
    load.assert_slo()

@pytest.mark.load("bare")
def test_once_no_objectives(load):
    load.assert_slo()

@pytest.mark.load("mix", live=True)
def test_once_live(load):
    load.start().assert_slo()

@pytest.mark.load("rare", live=True)
def test_live_no_data(load):
    load.start()

@pytest.mark.load("mix", live=True)
def test_once_started_twice(load):
    load.start()
    load.start()

@pytest.mark.timeout(3)
@pytest.mark.load("long")
def test_longer_than_its_timeout(load): ...

def test_ordinary(): ...
"""
# what JUnit has for a test, and what its results say; without objectives the implicit ones decide, which is not looked at here
EXPECTED = {
    "test_met": ("", "met"), "test_missed": ("failure", "missed"), "test_too_few_samples": ("error", "no data"),
    "test_live_no_data": ("error", "no data"), "test_longer_than_its_timeout": ("error", "no data"), "test_ordinary": ("", ""),
    "test_once_live": ("", "met"), "test_once_plain_assert": ("failure", "met"), "test_once_no_objectives": ("error", ""),
    "test_once_started_twice": ("error", "met"),
}  # fmt: skip
SIZES = 'messageSizeDistribution: {"32-128": 5, "128-1KB": 3, "1KB-4KB": 1}\nuseRandomizedPayloads: true\nrandomBytesRatio: 0.5'


@pytest.fixture
def outcomes(project: Project) -> Project:
    """Return a project with a test for every outcome."""
    project.profile("mix", rate=800, duration="2s", size=SIZES, more="warmupDuration: 500ms")
    project.missed_profile(duration="500ms")
    project.profile("rare", duration="500ms", slo="{endToEndLatency: {p99.9: 10s}}")
    project.profile("bare", duration="500ms", slo="{}")
    project.profile(
        "long", slo="{throughput: 1%, sent: 1%}", more="drainTimeout: 5min"
    )  # and what it waits for comes later
    long = (project.path / "profiles/long.yaml").read_text(encoding="utf-8")
    project.write(
        "profiles/long.yaml", long.replace("{name: loopback}", "{name: loopback, delay: 2min}")
    )
    project.write("test_it.py", TESTS)
    return project


def sent(project: Project, test: str) -> list[pa.Table]:
    """Return the messages that each session so far has sent in a test: stream, seq, bucket and size, sorted."""
    folders = [folder for folder in project.runs() if f"{test}-" in str(folder)]
    order = [(name, "ascending") for name in ("stream", "seq")]
    return [pa.concat_tables(pq.read_table(p).select(["stream", "seq", "bucket", "size"]) for p in (f / "sent").glob("*.parquet")).sort_by(order)
            for f in folders]  # fmt: skip


def test_outcomes_and_messages_are_the_same_for_any_number_of_workers(outcomes: Project) -> None:
    for workers, chosen in (("-n0", ""), ("-n3", "not once")):
        run = outcomes.run(
            workers,
            "-k",
            chosen,
            "--load-scale",
            "0.5",
            "--load-duration",
            "1s",
            "-p",
            "no:cacheprovider",
        )
        assert run.ret == pytest.ExitCode.TESTS_FAILED
        kinds = {
            case.get("name"): [child.tag for child in case if child.tag in ("failure", "error")]
            for case in run.junit
        }
        assert kinds == {
            name: [tag] if tag else []
            for name, (tag, _) in EXPECTED.items()
            if not chosen or "once" not in name
        }
        _told(run.out)
        properties = run.properties("test_met")
        assert properties["load.outcome"] == properties["own.verdict"] == "met"
        assert (properties["own.lost"], properties["own.bound"]) == ("0", "20.0 ms")
        assert re.fullmatch(r"[\d.]+ (µs|ms|s)", properties["own.p50"])
        assert re.fullmatch(r"[\d.]+ msg/s", properties["own.throughput"])
        assert {"own.latency", "own.counts", "own.both"} < set(properties)
        assert properties["load.scaled"].startswith("×0.5")
        assert (properties["load.sent"], properties["load.lost"]) == ("400", "0")
        assert run.properties("test_missed")["load.outcome"] == "missed"
        assert run.properties("test_live_no_data")["load.outcome"] == "no data"
        _documents(run.documents, 1 if workers == "-n0" else 3)
        assert {
            name: document["verdict"]["outcome"]
            for name, document in run.documents.items()
            if EXPECTED[name][1]
        } == {name: outcome for name, (_, outcome) in EXPECTED.items() if outcome and name in kinds}
    for test in ("test_met", "test_missed"):
        alone, together = sent(outcomes, test)
        assert alone.num_rows == (400 if test == "test_met" else 125)
        assert alone.equals(together)
    assert len(set(sent(outcomes, "test_met")[0]["bucket"].to_pylist())) == 3
    assert _files(outcomes.runs()[0]) == {
        "run.json",
        "streams.npz",
        "results.json",
        "latency.hlog",
        "telemetry.json",
        "main.manifest.json",
        "sent/main-000001.parquet",
        "received/main-000001.parquet",
    }
    assert {"gw0.manifest.json", "gw1.manifest.json", "gw2.manifest.json"} <= {
        name for folder in outcomes.runs() for name in _files(folder)
    }


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _told(out: str) -> None:
    assert out.count("= load tests =") == 1
    assert out.count("test_met · profile mix · MET") == 1
    assert "1 of 9 objectives missed (profile missed, scaled ×0.5" in out
    assert "SCALED ×0.5" in out
    assert "FAILED test_it.py::test_missed" in out
    assert "ERROR test_it.py::test_live_no_data" in out


def _documents(documents: dict[str, dict[str, Any]], workers: int) -> None:
    validator = jsonschema.Draft202012Validator(results_schema())
    for document in documents.values():
        validator.validate(document)
    met = documents["test_met"]
    assert met["scale"]["factor"] == 0.5
    assert set(met["scale"]["changes"]) == {"rate", "measured phase"}
    assert met["plan"]["workers"] == len(met["measurements"]["workers"]) == workers
    assert met["broker"]["name"] == "loopback"
    sampled = met["bottleneck"][
        "columns"
    ]  # of the processes that drove load, each by its own name, and of the target
    assert {
        f"worker {worker['worker']}.busiest" for worker in met["measurements"]["workers"]
    } < set(sampled)
    assert {"broker.busiest", "broker.unread", "workers.unsent"} < set(sampled)


def on_terminal(project: Project, *args: str, columns: int = 160) -> str:
    """Run pytest on a terminal. :returns: everything that it wrote."""
    try:
        ours, theirs = pty.openpty()
    except OSError as error:  # a root without /dev/pts
        pytest.skip(f"no terminal to be had: {error}")
    project.environment["COLUMNS"] = str(columns)
    process = project.start(*args, "-p", "no:cacheprovider", stdout=theirs)
    os.close(theirs)
    seen: list[bytes] = []
    reader = threading.Thread(target=_read, args=(ours, seen))
    reader.start()
    run = project.finish(process)
    reader.join(10)
    os.close(ours)
    text = b"".join(seen).decode()
    assert run.ret == 0, text
    return text


def test_the_live_line_is_rewritten_on_a_terminal(project: Project) -> None:
    """While one worker of xdist drives load."""
    project.profile("two", duration="4s")
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("two")\ndef test_met(load): load.assert_slo()\n',
    )
    text = on_terminal(project, "-n1")
    assert re.search(r"\r[^\r\n]*measure [1-4]/4 s[^\r\n]*sent \d", text), text
    assert "delay p99" in text


@pytest.mark.parametrize("workers", [("-n1",), ("-p", "no:xdist")], ids=["xdist", "alone"])
def test_each_workload_has_a_line_on_a_terminal(project: Project, workers: tuple[str, ...]) -> None:
    """A terminal that is narrower than the lines shows which line is whose."""
    more = "workloads: [{name: small}, {name: large, producerRate: 20}]"
    project.profile("both", duration="5s", more=more)
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("both")\ndef test_met(load): load.assert_slo()\n',
    )
    text = on_terminal(project, *workers, columns=70)
    screens = screens_of(text)
    shown = [
        [line.split(":")[0] for line in lines if re.match(r"(small|large): measure", line)]
        for lines in screens
    ]
    assert ["small", "large"] in shown or ["large", "small"] in shown, text
    assert max(len(names) for names in shown) == 2, text
    assert not [line for line in screens[-1] if re.search(r"measure \d+/5 s", line)]


def screens_of(text: str) -> list[list[str]]:
    """Return the lines of a terminal after each write of a carriage return."""
    lines = [""]
    row = column = 0
    screens = []
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|[^\x1b]", text):
        if part == "\r":
            screens.append([line.rstrip() for line in lines])
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif re.fullmatch(r"\x1b\[\d+A", part):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            del lines[row + 1 :]
            lines[row] = lines[row][:column]
        elif len(part) == 1:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + part + line[column + 1 :]
            column += 1
    return [*screens, lines]


def _read(terminal: int, seen: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            return
        if not data:
            return
        seen.append(data)


def test_without_xdist_quietly_and_with_auto_scale(project: Project) -> None:
    """-p no:xdist drives load in the only process; -q prints only the line with the target; auto does not scale what this machine can
    carry; results are in the folder load_results."""
    project.profile("two", rate=300)
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("two")\ndef test_met(load): load.assert_slo()\n',
    )
    run = project.run(
        "-p", "no:xdist", "--load-scale", "auto", "-qq", "-o", "load_results=out/results"
    )
    assert run.outcomes == {"passed": 1}
    (document,) = project.path.glob(
        "out/results/*/test_it.py-test_met-*/1/two/measure/results.json"
    )
    assert {path.name for path in document.parent.iterdir()} == {
        "run.json",
        "streams.npz",
        "results.json",
        "latency.hlog",
        "telemetry.json",
        "main.manifest.json",
        "sent",
        "received",
    }
    assert '"scale": null' in document.read_text(encoding="utf-8")
    assert [
        line.partition(" 0.")[0] for line in run.out.splitlines() if line.startswith("load: ")
    ] == ["load: target: loopback"]


WORKERS = """\
import os
from pathlib import Path

def pytest_configure(config):
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        Path(worker + ".tmp").write_text(str(os.getpid()))
        Path(worker + ".tmp").rename(worker + ".pid")
"""
TWICE = """\
import os, signal, time
from pathlib import Path
import pytest

@pytest.mark.load("short")
def test_it(load):
    if not Path("again").exists():
        Path("again").touch()
        raise ValueError("only once")
    os.kill(int(Path("gw1.pid").read_text()), signal.SIGKILL)
    while not Path("gw2.pid").exists():  # then the controller has replaced the worker
        time.sleep(0.05)
"""


NEVER_LOADS_AGAIN = """\
import pytest

attempts = []

@pytest.fixture
def database(record_property):
    record_property("load.generator", "rack 7")
    attempts.append(1)
    if len(attempts) == 2:
        raise RuntimeError("the database is gone")

@pytest.mark.load("missed")
def test_again(database, load): ...
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_an_attempt_that_never_loads_has_no_properties_of_the_one_before(
    project: Project, workers: str
) -> None:
    """And those of the user stay, whatever their name."""
    project.missed_profile(duration="500ms")
    project.write("test_it.py", NEVER_LOADS_AGAIN)
    run = project.run(
        workers, "-p", "pytest_rerunfailures", "--reruns=1", "-o", "junit_family=xunit1"
    )
    assert run.outcomes == {"error": 1, "rerun": 1}
    first, second = run.junit
    assert "load.outcome" in properties(first)
    assert {name for name in properties(second) if name.startswith("load.")} == {"load.generator"}


def properties(case: ElementTree.Element) -> set[str]:
    """Return the names of the properties of a test case."""
    return {part.get("name", "") for part in case.iter("property")}


def test_results_stand_when_the_test_runs_again_and_when_a_worker_dies_in_its_body(
    project: Project,
) -> None:
    """Both attempts have the verdict of their load, in their folders and in the history."""
    project.profile("short", duration="500ms")
    project.write("conftest.py", WORKERS)
    project.write("test_it.py", TWICE)
    run = project.run(
        "-n2",
        "-p",
        "pytest_rerunfailures",
        "--reruns=1",
        "--load-history",
        "history.jsonl",
        "-p",
        "no:cacheprovider",
        "-v",  # once more than in the project's options
    )
    (spent,) = [line for line in run.out.splitlines() if line.startswith("time  ")]
    parts = re.findall(r"(?:  |, )([a-z]+) \d", spent)
    assert [part for part in parts if part in ("load", "verdict", "report")] == [
        "load",
        "verdict",
        "report",
    ]
    assert (run.ret, run.outcomes) == (0, {"passed": 1, "rerun": 1})
    results = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in project.path.glob(".loadtest/*/*/*/short/measure/results.json")
    ]
    assert [document["verdict"]["outcome"] for document in results] == ["met"] * 2
    history = (project.path / "history.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["outcome"] for line in history] == ["met"] * 2
