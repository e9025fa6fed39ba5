"""False alarms and missed regressions of bounds on regression.

Run ``python benchmarks/regression_power.py FOLDER``.

Real runs on the loopback driver, in one pytest session: twenty times a run, one of the same build,
and one with a delay that is a fifth longer. Each of the two later ones is compared with the first
of its three, with bounds of 10 % on percentiles and of 5 % on throughput; the different delay in
the profiles is forced to be comparable. *missed* is a regression found, *no data* means that noise
hid it; generator-limited runs are not compared. Other block lengths than the package's are tried on
the same runs. It takes 25 minutes with the defaults; a folder with complete runs is only evaluated
again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median, stdev
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.metrics import resampled
from pytest_loadtest.report.baseline import read_documents
from pytest_loadtest.report.comparison import VALID, compare_runs
from pytest_loadtest.report.find_results import RESULTS
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.objectives import Slo

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument

SECTION = {f"endToEndLatency.{percentile}": "10%" for percentile in ("p50", "p90", "p99")} | {
    "throughput": "5%"
}
SAME = "same build"
SLOWER = "20 % slower"
PROFILE = """\
name: power
topics: 2
producersPerTopic: 2
messageSize: 256
producerRate: 500
testDuration: {duration}s
warmupDuration: 2s
driver: {{name: loopback, delay: {delay}ms}}
slo: {{throughput: 1%, sent: 1%}}
"""
TEST = """\
import pytest
RUNS = [
    ({{"driver.delay": delay}}, f"{{pair:02d}}-{{kind}}")
    for pair in range({pairs}) for kind, delay in (("a", "{delay}ms"), ("b", "{delay}ms"), ("slower", "{slower}ms"))
]


@pytest.mark.load(profile="power", judge=False)
@pytest.mark.parametrize("load_matrix", [pytest.param(keys, id=name) for keys, name in RUNS], indirect=True)
def test_power(load): ...
"""
INI = "[pytest]\naddopts = -p no:randomly -p no:rerunfailures -p no:cacheprovider\n"


class Held(NamedTuple):
    """A figure of two runs. :param width: half of the interval."""

    outcome: str
    change: float
    width: float


def drive(folder: Path, pairs: int, delay: int, duration: int) -> None:
    """Run all tests in one session."""
    (folder / "profiles").mkdir(parents=True, exist_ok=True)
    (folder / "profiles" / "power.yaml").write_text(
        PROFILE.format(duration=duration, delay=delay), encoding="utf-8"
    )
    (folder / "test_power.py").write_text(
        TEST.format(pairs=pairs, delay=delay, slower=delay * 6 // 5), encoding="utf-8"
    )
    (folder / "pytest.ini").write_text(INI, encoding="utf-8")
    spark = (
        "--load-spark-conf",
        "spark.master=local[1]",
        "--load-spark-conf",
        "spark.driver.memory=512m",
    )
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *spark],
        cwd=folder,
        check=False,
        stdout=subprocess.DEVNULL,
    )


def held(documents: dict[str, RunDocument]) -> dict[tuple[str, str], list[Held]]:
    """Return the comparisons of each pair, by kind and figure."""
    found: dict[tuple[str, str], list[Held]] = {}
    for name, baseline in documents.items():
        if not name.endswith("-a"):
            continue
        for kind, other in ((SAME, "b"), (SLOWER, "slower")):
            if any(
                one.verdict.outcome not in VALID
                for one in (baseline, documents[f"{name[:-1]}{other}"])
            ):
                continue
            section = compare_runs(
                baseline,
                documents[f"{name[:-1]}{other}"],
                Slo.read({"regression": SECTION}).gates,
                force=True,
            ).section
            for row in section.rows:
                if (
                    row.name in SECTION
                    and row.outcome
                    and row.change is not None
                    and row.low is not None
                    and row.high is not None
                ):
                    found.setdefault((kind, row.name), []).append(
                        Held(row.outcome, row.change, (row.high - row.low) / 2)
                    )
    return found


def table(found: dict[tuple[str, str], list[Held]], seconds: int) -> None:
    """Return a row for each kind and figure."""
    print(
        f"\nblocks of {seconds} s\n{'':12} {'figure':20} pairs missed   met no data  half"
        " interval  spread of changes"
    )
    for (kind, name), pairs in sorted(found.items()):
        counted = Counter(one.outcome for one in pairs)
        width = median(one.width for one in pairs)
        spread = stdev(one.change for one in pairs) if len(pairs) > 1 else 0.0
        print(
            f"{kind:12} {name:20} {len(pairs):5} {counted['missed']:6} {counted['met']:5}"
            f" {counted['no data']:7} {width * 100:12.1f} % {spread * 100:16.1f} %"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "folder", type=Path, help="of a project that is made for it, with its results"
    )
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument(
        "--delay", type=int, default=50, help="ms that the relay holds each message back"
    )
    parser.add_argument("--duration", type=int, default=20, help="s of each run")
    options = parser.parse_args()
    if not any(options.folder.glob(f".loadtest/**/{RESULTS}")):
        drive(options.folder, options.pairs, options.delay, options.duration)
    documents = {
        document.test.partition("[")[2][:-1]: document
        for document in read_documents(options.folder / ".loadtest").documents
    }
    for seconds in (1, 2, 5):
        # an experiment with another length
        resampled.length = lambda duration, length=seconds * SECOND: length  # type: ignore[misc]
        resampled.FEWEST = 4  # type: ignore[misc]
        table(held(documents), seconds)


if __name__ == "__main__":
    main()
