"""A user's project with load tests, and pytest runs of it in processes of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import numpy_aggregation
import pytest
import warm_python
from warm_python import WarmProcess

from pytest_loadtest.report.document import dumps, parse_document, results_schema

VALIDATOR = jsonschema.Draft202012Validator(results_schema())
TIMEOUT = 280  # s; a run that hangs ends here
ALONE = pytest.param("-n0", marks=pytest.mark.slow)
"""The option of a session without workers, in a slow test: most sessions of other tests have none."""
ALONE_OR_TWO = (ALONE, "-n2")
NO_REPORTERS = "    -p no:allure_pytest -p no:html -p no:html_fixtures -p no:metadata -p no:pytest_jsonreport -p no:asyncio\n"
VERBOSE = "    -v\n"  # the complete summary; without a terminal this option is unknown
INI = f"""\
[pytest]
addopts = --strict-markers -p no:randomly -p no:rerunfailures -p no:cov -p no:hypothesispytest -p no:anyio
{VERBOSE}{NO_REPORTERS}"""
SPARK_INI = """\
    --load-spark-conf spark.master=local[1] --load-spark-conf spark.sql.shuffle.partitions=1
    --load-spark-conf spark.driver.memory=512m
"""
# what a busy machine does to the generator is not what these tests are about: a pause of 10 ms at the end of a second is 1 % sent too late
PROFILE = """\
name: {name}
topics: 2
producersPerTopic: 2
consumerPerSubscription: 1
{size}
producerRate: {rate}
testDuration: {duration}
{more}
driver: {driver}
generator: {{sendDelayP99: 5s, receiveLagP99: 5s, cpu: 5, stalled: 1}}
slo: {slo}
"""
# A live test disturbs a broker while load runs. What waits for the broker is late, and clients wait longer and longer between two attempts to
# connect. Messages that are resent may come twice.
DISTURBED = """\
name: {name}
topics: 2
producersPerTopic: 2
consumerPerSubscription: 1
messageSize: 64
producerRate: 400
testDuration: 5min
drainTimeout: 3min
maxSendDelay: 5min
{more}
generator: {{sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}}
slo: {slo}
"""


@dataclass
class Finished:
    """A pytest run that has ended."""

    ret: int
    out: str
    junit: list[ElementTree.Element]
    documents: dict[str, dict[str, Any]]
    report: str | None
    """The property of the whole suite in JUnit that names the report."""

    @property
    def outcomes(self) -> dict[str, int]:
        """The counts in pytest's last line, by its words in the singular."""
        found = re.findall(
            r"(\d+) (passed|failed|error|skipped|deselected|rerun|xfailed|warning)s?\b",
            self.out.strip().splitlines()[-1],
        )
        return {word: int(number) for number, word in found}

    def case(self, name: str) -> ElementTree.Element:
        """Return the only JUnit test case of a test."""
        (case,) = [case for case in self.junit if case.get("name") == name]
        return case

    def ending(self, name: str) -> str:
        """Return how a test ended by JUnit: ``passed``, ``failure``, ``error`` or ``skipped``."""
        ends = {child.tag for child in self.case(name)} & {"failure", "error", "skipped"}
        (end,) = ends or {"passed"}
        return end

    def properties(self, name: str) -> dict[str, str]:
        """Return the JUnit properties of a test."""
        return {p.get("name", ""): p.get("value", "") for p in self.case(name).iter("property")}


@dataclass
class Project:
    """A folder with load tests, profiles and results."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)
    """A command that runs pytest, such as ``unshare --net``."""

    def profile(
        self,
        name: str,
        *,
        rate: float | str = 500,
        duration: str = "1s",
        slo: str = "{throughput: 1%, sent: 1%}",
        size: str = "messageSize: 64",
        more: str = "",
        driver: str = "{name: loopback}",
    ) -> None:
        """Write a profile of four streams on the loopback."""
        text = PROFILE.format(
            name=name, rate=rate, duration=duration, slo=slo, size=size, more=more, driver=driver
        )
        self.write(f"profiles/{name}.yaml", text)

    def missed_profile(
        self, *, rate: float = 500, duration: str = "1s", percentile: str = "p50"
    ) -> None:
        """Write the profile ``missed``: its target delays each message by twice the bound.

        A missed throughput would not do: on a busy machine the generator sends late, and the run is generator-limited.
        """
        self.profile(
            "missed",
            rate=rate,
            duration=duration,
            slo=f"{{endToEndLatency: {{{percentile}: 50ms}}, throughput: 1%, sent: 1%}}",
            driver="{name: loopback, delay: 100ms}",
        )

    def without_verbose(self) -> None:
        """Remove ``-v`` from its options."""
        ini = self.path / "pytest.ini"
        ini.write_text(ini.read_text(encoding="utf-8").replace(VERBOSE, ""), encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def start(self, *args: str, stdout: int | None = None) -> subprocess.Popen[str] | WarmProcess:
        """Start pytest in a process group of its own.

        :param stdout: the descriptor of its output and errors, if the test reads it by itself.
        """
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_", "GITHUB_"))
        } | self.environment
        arguments = ["-m", "pytest", *args, "--junitxml", "junit.xml"]
        if not self.prefix:
            return warm_python.start(arguments, cwd=self.path, env=environment, stdout=stdout)
        return subprocess.Popen(
            [*self.prefix, sys.executable, *arguments],
            cwd=self.path, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=stdout or subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *args: str, timeout: float = TIMEOUT) -> Finished:
        """Run pytest to its end."""
        return self.finish(self.start(*args), timeout)

    def finish(
        self, process: subprocess.Popen[str] | WarmProcess, timeout: float = TIMEOUT
    ) -> Finished:
        """Wait for a started run."""
        before = set(self.path.glob(".loadtest/*"))
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, _ = process.communicate()
            pytest.fail(f"pytest did not end within {timeout} s:\n{out}")
        print(out)
        junit = self.path / "junit.xml"
        suite = ElementTree.parse(junit).find("testsuite") if junit.exists() else None
        cases = [] if suite is None else list(suite.iter("testcase"))
        named = None if suite is None else suite.find("properties/property[@name='load.report']")
        junit.unlink(missing_ok=True)
        sessions = sorted(set(self.path.glob(".loadtest/*")) | before)[-1:]
        texts = [
            path.read_text(encoding="utf-8")
            for session in sessions
            for path in session.glob("**/results.json")
        ]
        documents = [json.loads(text) for text in texts]
        for text, document in zip(texts, documents, strict=True):
            VALIDATOR.validate(document)
            assert dumps(parse_document(text)) == text
        by_test = {document["test"].rpartition("::")[2]: document for document in documents}
        return Finished(
            process.returncode, out, cases, by_test, None if named is None else named.get("value")
        )

    def runs(self) -> list[Path]:
        """Return the run folders of all sessions so far, oldest first."""
        return sorted(
            (path.parent for path in self.path.glob(".loadtest/**/run.json")),
            key=lambda path: (path / "run.json").stat().st_mtime_ns,
        )

    def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run ``python -m pytest_loadtest`` to its end."""
        command = [sys.executable, "-m", "pytest_loadtest", *args]
        return subprocess.run(
            command,
            cwd=self.path,
            env=os.environ | self.environment,
            text=True,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )

    def survivors(self) -> list[str]:
        """Return the processes of this project that still exist: runs, workers, brokers, JVMs."""
        return [command for _, command in self.processes()]

    def processes(self) -> list[tuple[int, str]]:
        """Return them with their ids."""
        mark = self.environment["LOADTEST_MARK"]
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                is_started = mark.encode() in (entry / "environ").read_bytes()
                name = (entry / "comm").read_text(encoding="utf-8").strip()
                if not is_started and name != warm_python.process_name(mark):
                    continue
                state = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if state != "Z":
                found.append((int(entry.name), command.decode(errors="replace")))
        return found


@contextmanager
def fresh(path: Path, *, spark: bool = False) -> Iterator[Project]:
    """Make an empty project; no process that it started may be left at the end.

    :param spark: aggregate with Spark, as users do.
    """
    made = Project(
        path,
        {"LOADTEST_MARK": uuid.uuid4().hex, **({} if spark else numpy_aggregation.ENVIRONMENT)},
    )
    made.write("pytest.ini", INI + (SPARK_INI if spark else "    -p numpy_aggregation\n"))
    yield made
    # A watchdog ends after the process whose end it waits for, which a busy machine delays.
    end = time.monotonic() + 20
    while made.survivors() and time.monotonic() < end:
        time.sleep(0.02)
    assert made.survivors() == []
