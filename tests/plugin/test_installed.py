"""The installed wheel, in a virtual environment without this checkout."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml
from installing import installed, run

from .projects import NO_REPORTERS, PROFILE

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[2]
TEST = """\
import pytest

@pytest.mark.load("smoke")
def test_smoke(load):
    load.assert_slo()
"""
TYPED = """\
import pytest
from pytest_loadtest import LiveLoad, Load, LoadService, LoadTarget, Service, ms


@pytest.mark.load(profile="smoke")
def test_smoke(load: Load) -> None:
    load.assert_slo()
    assert load.end_to_end.p99 <= ms(100)


@pytest.mark.load(profile="smoke", live=True)
def test_live(load: LiveLoad) -> None:
    load.begin()
    load.wait("1s")
    result: Load = load.stop()
    result.assert_slo()


@pytest.fixture
def orders(load_service: LoadService, load_target: LoadTarget) -> Service:
    command = ["orders", "--in", *load_target.inputs, "{url}"]
    return load_service(command, ready="listening", env={"LOG": "info"}, timeout="5s")


@pytest.mark.load(profile="smoke")
def test_orders(load: Load, orders: Service) -> None:
    pid: int = orders.pid
    assert orders.log.read_text().count(str(pid))
"""
SAY = """\
import json
from importlib.metadata import distribution
import pytest_loadtest
print(json.dumps([pytest_loadtest.__file__, distribution("pytest-loadtest").requires]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel; a test checks the versions of its dependencies."""
    return installed(tmp_path_factory.mktemp("installed"), ROOT)


def test_the_wheel_requires_a_pandas_that_pyspark_supports(python: Path, tmp_path: Path) -> None:
    """A version below 3."""
    packaging = pytest.importorskip("packaging.requirements")
    told = run(python, "-c", SAY, cwd=tmp_path)
    file, requires = json.loads(told.stdout)
    assert str(python.parents[1]) in file
    demanded = {
        found.name: found.specifier
        for found in map(packaging.Requirement, requires)
        if found.marker is None
    }
    assert [
        demanded["pandas"].contains(version) for version in ("2.2.2", "2.3.3", "3.0.0", "3.1.2")
    ] == [True, True, False, False]


class Shop(NamedTuple):
    """A project that ``init`` wrote, and one session in it. :param written: the files that ``init`` wrote."""

    folder: Path
    written: set[str]
    init: subprocess.CompletedProcess[str]
    session: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def shop(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Go from an empty folder to a session on two workers, with a further test whose objectives any machine meets."""
    parent = tmp_path_factory.mktemp("shops")
    init = run(python.with_name("pytest-loadtest"), "init", "shop", "--ci", "gitlab", cwd=parent)
    assert init.returncode == 0, init.stderr
    folder = parent / "shop"
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    profile = PROFILE.format(
        name="smoke",
        rate=500,
        duration="1s",
        slo="{throughput: 1%, sent: 1%}",
        size="messageSize: 64",
        more="",
        driver="{name: loopback}",
    )
    (folder / "profiles" / "smoke.yaml").write_text(profile, encoding="utf-8")
    (folder / "test_smoke.py").write_text(TEST, encoding="utf-8")
    others = ("-p", "no:randomly", *NO_REPORTERS.split())
    session = run(python, "-m", "pytest", "-n2", "--load-duration", "1s", *others, cwd=folder)
    return Shop(folder, written, init, session)


def test_a_run_of_the_wheel_emits_no_warning(shop: Shop) -> None:
    """In the test processes, Spark's workers and the JVM, by this package or its dependencies."""
    out = shop.session.stdout + shop.session.stderr
    assert "profile smoke · MET" in out, out
    assert [line for line in out.splitlines() if re.search(r"\bwarn", line, re.IGNORECASE)] == []


def test_an_empty_folder_goes_from_init_to_a_report(python: Path, shop: Shop) -> None:
    """The console script, its starter files, a plan, a run and the report, without the checkout."""
    assert "next: cd shop && pytest -n 2" in shop.init.stdout
    assert shop.written == {
        "profiles/orders.yaml",
        "profiles/schema.json",
        "test_orders.py",
        "pytest.ini",
        ".gitlab-ci.yml",
        "requirements-load.txt",
    }
    planned = run(python, "-m", "pytest", "--load-plan", cwd=shop.folder)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "profile Orders · " in shop.session.stdout, shop.session.stdout + shop.session.stderr
    (session,) = (shop.folder / ".loadtest").iterdir()
    page = shop.folder / "again.html"
    again = run(
        python.with_name("pytest-loadtest"), "report", session, "--output", page, cwd=shop.folder
    )
    assert again.returncode == 0, again.stderr
    assert "Orders" in page.read_text(encoding="utf-8")


def test_every_profile_of_the_wheel_has_a_plan_in_an_empty_folder(
    python: Path, tmp_path: Path
) -> None:
    """A test names them as it would its own; the plan shows the file. Of a matrix, one combination is enough."""
    profiles = ROOT / "profiles"
    names = []
    tests = ""
    for path in sorted(profiles.rglob("*.yaml")):
        name = path.relative_to(profiles).with_suffix("").as_posix()
        matrix = yaml.safe_load(path.read_text(encoding="utf-8")).get("matrix", {})
        first = {axis: next(iter(values)) for axis, values in matrix.items()}
        tests += (
            f"@pytest.mark.load({name!r}, matrix={first!r})\ndef test_{len(names)}(load): ...\n"
        )
        names.append(name)
    (tmp_path / "test_all.py").write_text(f"import pytest\n{tests}", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    planned = run(python, "-m", "pytest", "--load-plan", cwd=tmp_path)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    for name in names:
        assert f"shipped/profiles/{name}.yaml" in planned.stdout


def test_the_wheel_has_the_acceptance_suite_the_schemas_the_service_and_the_dashboard(
    python: Path, tmp_path: Path
) -> None:
    script = python.with_name("pytest-loadtest")
    copied = run(script, "suite", "pulsar", "suite", cwd=tmp_path)
    assert copied.returncode == 0, copied.stderr
    names = {path.name for path in (ROOT / "loadtests/pulsar").glob("*.py")}
    assert {path.name for path in (tmp_path / "suite").iterdir()} == names
    twice = run(script, "suite", "pulsar", "suite", cwd=tmp_path)
    assert (twice.returncode, "suite exists" in twice.stderr) == (2, True)
    planned = run(python, "-m", "pytest", "suite", "--load-plan", cwd=tmp_path)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    for name, file in (
        ("profile", ROOT / "profiles/schema.json"),
        ("results", ROOT / "pytest_loadtest/report/results.schema.json"),
    ):
        shown = run(script, "schema", name, cwd=tmp_path)
        assert json.loads(shown.stdout) == json.loads(file.read_text(encoding="utf-8"))
    made = run(script, "init", "service", "--service", "--broker", "mqtt", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    service = tmp_path / "service/orders_mqtt.py"
    assert service.read_bytes() == (ROOT / "examples/order-service/orders_mqtt.py").read_bytes()
    place = "from pytest_loadtest.profile.files import shipped; print(shipped('grafana'))"
    shown = run(python, "-c", place, cwd=tmp_path)
    dashboard = Path(shown.stdout.strip()) / "loadtest.json"
    assert dashboard.read_bytes() == (ROOT / "docs/grafana/loadtest.json").read_bytes()


def test_a_typed_test_of_a_user_passes_mypy_strict(python: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "test_typed.py").write_text(TYPED, encoding="utf-8")
    # A cache that no later run reads costs a fifth of the time.
    options = ("--strict", "--cache-dir", os.devnull)
    checked = run(python, "-m", "mypy", *options, "test_typed.py", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.14"])
def test_every_dependency_has_a_wheel_for_aarch64(version: str, tmp_path: Path) -> None:
    """Installing the package there needs no compiler.

    pyspark has no wheel for any machine: it is Python and jars, and its own needs are asked for.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [need for need in project["dependencies"] if not need.startswith("pyspark")]
    platforms = [f"--platform=manylinux{year}_aarch64" for year in ("2014", "_2_28")]
    resolve = (
        *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
        *(f"--target={tmp_path}", "--only-binary=:all:", f"--python-version={version}"),
        *platforms,
    )
    if run(*resolve, "annotated-types", cwd=tmp_path).returncode:
        pytest.skip("no package index answers")
    done = run(*resolve, *needs, "py4j", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
