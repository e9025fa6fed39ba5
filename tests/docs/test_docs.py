"""The documentation is built, and its examples are run."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy_aggregation
import pytest
import warm_python
from plugin.projects import NO_REPORTERS

from pytest_loadtest import profile
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.errors import ProfileError

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHOUT = f"-p no:cacheprovider -p no:randomly -p no:rerunfailures -p no:cov -p no:hypothesispytest -p no:anyio {NO_REPORTERS}"
"""Plugins that these sessions do not need: each process would import them."""
LOOSE = "generator: {sendDelayP99: 60s, receiveLagP99: 60s, stalled: 1, cpu: 16}\n"  # what the examples say must hold on any machine; bounds on time need not


class Block(NamedTuple):
    """One fenced block: page, line, language, text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that its first line names in a comment."""
        named = re.match(r"# ([\w./-]+\.(?:yaml|yml|py))$", self.text.partition("\n")[0])
        return named[1] if named else None

    @property
    def commands(self) -> list[str]:
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]


def blocks_of(page: Path) -> list[Block]:
    text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    return [
        Block(name, text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for match in FENCE.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def where(block: Block) -> str:
    return f"{block.page}:{block.line}"


def having(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def run(folder: Path, *arguments: str, spark: bool = False) -> subprocess.CompletedProcess[str]:
    """Run pytest. :param spark: aggregate with Spark, which no page but that of custom metrics needs to show what it shows."""
    options = WITHOUT.split()
    if not spark:
        options += ["-p", "numpy_aggregation"]
    command = ["-m", "pytest", *options, *arguments]
    environment = os.environ | numpy_aggregation.ENVIRONMENT
    process = warm_python.start(command, cwd=folder, env=environment)
    output, _ = process.communicate()
    return subprocess.CompletedProcess(command, process.wait(), output)


def lay_out(folder: Path, page: str) -> None:
    """Write the files that a page shows; if it shows one twice, the first."""
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    for block in BLOCKS:
        path = folder / (block.file or "")
        if block.page == page and block.file and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


def labels(output: str) -> list[str]:
    """Return the first words of the summary's lines, which do not depend on the numbers."""
    summary = output[output.index("= load tests =") :]
    found = [
        re.match(r"\s+[✓✗]? ?([a-zA-Z][\w/.-]*( delay|-to-end)?)", line)
        for line in summary.splitlines()
    ]
    shorter = (
        "SCALED",
        "SHORTENED",
        "p99/s",
    )  # the test's run is shorter than the one that the README shows
    return [match[1] for match in found if match and match[1] not in shorter]


def test_the_documentation_builds_without_warnings(tmp_path: Path) -> None:
    """All pages are read and written once, and a page has the theme.

    The tree of all pages that furo writes into each of them takes a third of the build.
    """

    def build(*arguments: str) -> None:
        options = ["-W", "--keep-going", "-q", "-d", str(tmp_path / "trees"), "-b", "html"]
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", *options, *arguments],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    docs, html = ROOT / "docs", tmp_path / "html"
    page = html / "tutorial.html"
    build("-D", "html_theme=basic", str(docs), str(html))
    assert "furo" not in page.read_text(encoding="utf-8")
    build(str(docs), str(html), str(docs / "tutorial.md"))
    assert "furo" in page.read_text(encoding="utf-8")


def first_test_of(folder: Path, page: str, command: str) -> tuple[str, str]:
    """Run the five-minute example of a page; return its output, and the one that the page shows."""
    lay_out(folder, page)
    path = folder / "profiles" / "orders.yaml"
    text = (
        path.read_text()
        .replace("{p50: 20ms, p99: 200ms}", "{p50: 20s, p99: 30s}")
        .replace("  throughput: 99%", "  sent: 1%\n  throughput: 1%")
    )
    path.write_text(text + LOOSE)
    assert any(block.page == page and command in block.commands for block in having("console"))
    done = run(folder, *command.split()[1:], "--load-duration", "2s")
    assert done.returncode == 0, done.stdout
    shown = next(
        block.text for block in having("text") if block.page == page and "· MET" in block.text
    )
    return done.stdout, shown


def test_the_readmes_first_test_has_the_output_shown(tmp_path: Path) -> None:
    """A met test has two lines, the session one; the numbers and the tightest objective differ."""
    printed, shown = first_test_of(tmp_path, "README.md", "pytest -n 2 test_orders.py")

    def without_numbers(output: str) -> list[str]:
        summary = output[output.index("= load tests =") :].splitlines()[1:4]
        summary[0] = summary[0].removesuffix(" · SHORTENED (measured phase 10.0 s → 2.00 s)")
        summary[1] = summary[1].partition(" · tightest ")[0]
        summary[2] = summary[2].partition("; ")[0]
        return [re.sub(r"\d[\d. ]*( k)?( ?[mµ]?s\b)?", "#", line) for line in summary]

    assert without_numbers(printed) == without_numbers(shown)


def test_the_tutorials_first_test_has_the_output_shown(tmp_path: Path) -> None:
    """The complete summary has the lines in the tutorial."""
    page = "docs/tutorial.md"
    printed, shown = first_test_of(tmp_path, page, "pytest -n 2 -v test_orders.py")
    found = labels(printed)
    found.remove("sent")  # on a busy machine the implicit objective does not hold
    assert found == labels(shown)


def test_the_tutorials_service_has_the_faults_shown(tmp_path: Path) -> None:
    """The second part: met as it is, and missed with exactly the faults of the line shown."""
    page = "docs/tutorial.md"
    lay_out(tmp_path, page)
    path = tmp_path / "profiles" / "confirmed.yaml"
    text = path.read_text().replace("{p50: 20ms, p99: 200ms}", "{p50: 20s, p99: 30s}")
    path.write_text(text + "  sent: 1%\n  throughput: 1%\n" + LOOSE)
    command = "pytest -n 2 test_confirmed.py"
    assert any(block.page == page and command in block.commands for block in having("console"))
    met = run(tmp_path, *command.split()[1:])
    assert met.returncode == 0, met.stdout
    (faults,) = (
        block.text
        for block in having("yaml")
        if block.page == page and block.text.startswith("driver: {name: loopback, service: ")
    )
    path.write_text(path.read_text().replace("driver: {name: loopback, service: {}}\n", faults))
    missed = run(tmp_path, *command.split()[1:])
    assert missed.returncode == 1, missed.stdout
    (shown,) = (
        block.text for block in having("text") if block.page == page and "confirmed" in block.text
    )
    assert [line for line in shown.splitlines() if line not in missed.stdout] == []


@pytest.mark.slow
def test_the_hook_for_custom_metrics_has_the_output_shown(tmp_path: Path) -> None:
    page = "docs/howto/ask-your-own-questions.md"
    lay_out(tmp_path, page)
    path = tmp_path / "profiles" / "questions.yaml"
    text = (
        path.read_text()
        .replace("200ms", "30s")
        .replace("slo:\n", "slo:\n  throughput: 1%\n  sent: 1%\n")
    )
    path.write_text(
        text + LOOSE + "drainTimeout: 5s\n"
    )  # the whole of it, for what the relay loses
    done = run(tmp_path, "-n", "2", "-v", "-rP", "--load-duration", "2s", spark=True)
    assert done.returncode == 0, done.stdout
    shown = next(block.text for block in having("text") if block.page == page)
    names = re.findall(r"(?:p99|lost)\.\w+", shown)
    assert [name for name in names if name not in done.stdout] == []
    assert re.search(r"custom\.lost\.worst_topic +1(\.\d+)? %", done.stdout)
    assert (
        len(re.findall(r"of the slowest 100, \d+ have (?:topic|consumer|size) \d+", done.stdout))
        == 3
    )


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_plan_of_the_examples_runs_nothing(tmp_path: Path, page: str) -> None:
    lay_out(tmp_path, page)
    done = run(tmp_path, "-n", "2", "--load-plan", "test_orders.py")
    assert "rate         2 000 msg/s" in done.stdout, done.stdout
    assert not (tmp_path / ".loadtest").exists()


def test_the_plan_names_the_client_as_shown(tmp_path: Path) -> None:
    """It has the client and the reason if the page forces one; the library's version may differ."""
    page = "docs/howto/choose-the-client.md"
    lay_out(tmp_path, page)
    command = next(
        command for block in having("console") if block.page == page for command in block.commands
    )
    done = run(tmp_path, *command.split()[1:])
    shown = next(block.text for block in having("text") if block.page == page)
    without = re.compile(r"(?<=pulsar-client )\S+")
    assert without.sub("", shown) in without.sub("", done.stdout), done.stdout


@pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
def test_connections_are_opened_as_shown(tmp_path: Path) -> None:
    """The summary has the line shown, without the parts that depend on the machine."""
    page = "docs/howto/only-connect.md"
    lay_out(tmp_path, page)
    path = tmp_path / "profiles" / "doors-open.yaml"
    path.write_text(path.read_text().replace("{mean: 500ms, p99: 1s}", "{mean: 30s}") + LOOSE)
    (command,) = (
        command.split()[1:]
        for block in having("console")
        if block.page == page
        for command in block.commands
    )
    shown = next(block.text for block in having("text") if block.page == page)
    done = run(tmp_path, *command, "--load-broker-mode", "process").stdout
    of_the_machine = re.compile(r"[\d.]+ connections/s in [\d.]+ m?s \(gw\d [\d.]+ cores")
    assert of_the_machine.sub("", shown) in of_the_machine.sub("", done), done


@pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
def test_a_broadcast_is_planned_and_run_as_shown(tmp_path: Path) -> None:
    """The plan has the lines shown, without the parts that depend on the machine; then all subscribers get all messages."""
    page = "docs/howto/broadcast-at-scale.md"
    lay_out(tmp_path, page)
    planned, done = (
        command.split()[1:]
        for block in having("console")
        if block.page == page
        for command in block.commands
    )
    shown = next(block.text for block in having("text") if block.page == page)
    of_the_machine = re.compile(r"[\d.,]+ (?=cores|workers|.iB)|[KMG]iB")
    plan = run(tmp_path, *planned).stdout
    assert of_the_machine.sub("", shown) in of_the_machine.sub("", plan), plan
    path = tmp_path / "profiles" / "prices.yaml"
    path.write_text(
        re.sub(
            r"endToEndLatency: .*",
            "endToEndLatency: {p99: 30s}",
            path.read_text().replace("max: 5s", "max: 30s"),
        )
        + LOOSE
    )
    made = run(tmp_path, *done)
    assert made.returncode == 0, made.stdout
    assert "in         5 000 due, received 5 000, lost 0, duplicates 0" in made.stdout


@pytest.mark.parametrize(
    "block",
    [block for block in having("yaml") if (block.file or "").startswith("profiles/")],
    ids=where,
)
def test_profiles_shown_are_valid(block: Block) -> None:
    """The invalid one has the problem that the page names."""
    assert block.file
    if "wrong" not in block.file:
        assert profile.loads(block.text, block.file).objectives
        return
    with pytest.raises(ProfileError) as caught:
        profile.loads(block.text, block.file)
    shown = [other.text.strip() for other in having("text") if other.page == block.page]
    assert f"{caught.value}\n  in loadtests/test_wrong.py::test_wrong" in shown


@pytest.mark.parametrize("block", having("python"), ids=where)
def test_python_shown_compiles(block: Block) -> None:
    """It imports only existing names."""
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom):
            module = __import__(str(node.module), fromlist=["*"])
            assert all(hasattr(module, alias.name) for alias in node.names)


def test_the_pages_name_only_existing_options() -> None:
    there = set(re.findall(r"--load-[a-z-]+", run(ROOT, "--help").stdout))
    named = {
        (page.name, option)
        for page in PAGES
        for option in re.findall(r"--load-[a-z]+(?:-[a-z]+)*", page.read_text(encoding="utf-8"))
    }
    assert {(page, option) for page, option in named if option not in there} == set()


def test_the_pages_name_only_existing_commands_and_scripts() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    usage = subprocess.run(
        [sys.executable, "-m", "pytest_loadtest", "--help"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert {
        name for name in re.findall(r"python -m pytest_loadtest (\w+)", text) if name not in usage
    } == set()
    assert [
        name for name in set(re.findall(r"\bscripts/\w+", text)) if not (ROOT / name).is_file()
    ] == []


def test_links_between_pages_lead_somewhere() -> None:
    """This includes the pages that Sphinx does not build."""
    links = [
        (page, link)
        for page in PAGES
        for link in re.findall(
            r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")
        )
    ]
    assert [
        f"{page.name} → {link}" for page, link in links if not (page.parent / link).exists()
    ] == []


def test_runs_are_compared_as_shown(tmp_path: Path) -> None:
    """The page's commands run a test twice and show the trend. Three seconds of load are too short to judge, and the output says so."""
    page = "docs/howto/compare-runs.md"
    lay_out(tmp_path, page)
    path = tmp_path / "profiles" / "orders.yaml"
    path.write_text(
        path.read_text()
        .replace("{p99: 2s}", "{p99: 30s}")
        .replace("slo:\n", "slo:\n  throughput: 1%\n  sent: 1%\n")
        + LOOSE
    )
    first, second, trend = (
        command.split()
        for block in having("console")
        if block.page == page
        for command in block.commands
    )
    done = run(tmp_path, *first[1:], "--load-duration", "3s")
    assert done.returncode == 0, done.stdout
    beside = run(tmp_path, *second[1:], "--load-duration", "3s").stdout
    assert "noise is known from 20 s of measured phase on" in beside, beside
    shown = next(block.text for block in having("text") if block.page == page)
    names = re.findall(r"^  [✓✗ ] (\w+[.\w]*)", shown, re.MULTILINE)
    assert len(names) > 5
    assert [
        name
        for name in names
        if not re.search(rf"^  [✓✗? ] {re.escape(name)} ", beside, re.MULTILINE)
    ] == [], beside
    told = subprocess.run(
        [sys.executable, *trend[1:]], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert "· profile orders · SHORTENED · 2 runs" in told


DRIVER_PAGE = "docs/howto/write-a-driver.md"
EXAMPLE = ROOT / "examples" / "redis-streams"


PARTS = [
    block
    for block in BLOCKS
    if block.page == DRIVER_PAGE and block.language != "yaml" and "DRIVER_CHECKS" not in block.text
]


@pytest.mark.parametrize("block", PARTS, ids=where)
def test_the_pages_code_of_a_driver_is_the_examples_code(block: Block) -> None:
    """Only indentation and the line breaks that follow from it may differ."""
    file = (
        EXAMPLE / {"python": "pytest_loadtest_redis.py", "toml": "pyproject.toml"}[block.language]
    )
    text = file.read_text(encoding="utf-8")
    assert "".join(block.text.split()) in "".join(text.split())


def test_the_driver_shown_is_one_short_file() -> None:
    assert [path.name for path in EXAMPLE.glob("*.py")] == ["pytest_loadtest_redis.py"]
    lines = (EXAMPLE / "pytest_loadtest_redis.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 420
