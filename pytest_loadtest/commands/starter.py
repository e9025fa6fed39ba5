"""The files that ``init`` writes, and copies of what comes with the package."""

from __future__ import annotations

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline import java_process
from pytest_loadtest.profile.files import shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CI_FILES: Final = {"github": ".github/workflows/load.yml", "gitlab": ".gitlab-ci.yml"}
SCHEMAS: Final = ("profile", "results")
_TEMPLATES: Final = Path(__file__).with_name("templates")
_DRIVER: Final = r"(?<=driver: \{name: )\w+"
_TEST: Final = """\
import pytest


@pytest.mark.load(profile="orders")
def test_orders(load):
    load.assert_slo()
"""
_TEST_OF_SERVICE: Final = """\
import sys
from pathlib import Path

import pytest

SERVICE = Path(__file__).with_name("{service}")


@pytest.fixture
def orders(load_service):
    # To see what the load test finds, add a fault of this service: "--lose", "500".
    return load_service([sys.executable, SERVICE, "--url", "{{url}}"], ready="ready")


@pytest.mark.load(profile="confirmed")
def test_orders_are_confirmed(load, orders):
    load.assert_slo()
"""
_TEST_OF_ROUTE: Final = """\
import pytest


@pytest.mark.load(profile="confirmed")
def test_orders_are_confirmed(load):
    load.assert_slo()
"""
_REQUIREMENTS: Final = """\
# If no index of yours has this version, name the place of the package instead:
# pytest-loadtest @ git+https://HOST/REPOSITORY@COMMIT
pytest-loadtest=={}
"""
_INI: Final = """\
[pytest]
load_profiles = profiles
"""


def starter_files(
    folder: Path, broker: str | None, ci: str | None, *, service: bool
) -> dict[str, str]:
    """Return path → text of the files of a new project; paths are relative to its folder.

    The path of the CI's file is absolute: a CI reads only that in the root of the git work tree.

    :param broker: the driver of its profile; None: the relay of the template, which needs nothing.
    :param ci: a key of :data:`CI_FILES`; None: no file.
    :param service: the load goes through a service of the user's.
    :raises UsageError: there is no service for this broker, or no job can name the folder.
    """
    broker = broker or re.findall(_DRIVER, _template("profile.yaml"))[0]
    files = _service_files(broker) if service else _broker_files(broker)
    files["profiles/schema.json"] = schema_text("profile")
    files[_configuration(folder)] = _INI
    if ci is not None:
        here = folder.resolve()
        root = next((place for place in (here, *here.parents) if (place / ".git").exists()), here)
        inside = f"{here.relative_to(root)}/".removeprefix("./")
        # Shell, YAML and the CI's patterns each have special characters of their own.
        if not re.fullmatch(r"[\w./ -]*", inside):
            raise UsageError(f"no job for {inside}: name a folder of letters, digits, . _ or -")
        files["requirements-load.txt"] = _REQUIREMENTS.format(version("pytest-loadtest"))
        files[str(root / CI_FILES[ci])] = _template(f"{ci}.yml").replace("FOLDER/", inside)
    return files


def _configuration(folder: Path) -> str:
    """Return the name of the file in a folder that configures pytest, or of a new one.

    Pytest would ignore it next to a new ``pytest.ini``.
    """
    table = r"(?m)^\[(tool[.:])?pytest(\.ini_options)?\]"
    own = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")  # even an empty one wins
    for name in (*own, "pyproject.toml", "tox.ini", "setup.cfg"):
        file = folder / name
        if not file.is_file():
            continue
        if name in own or re.search(table, file.read_text(encoding="utf-8", errors="replace")):
            return name
    return "pytest.ini"


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _broker_files(broker: str) -> dict[str, str]:
    profile = re.sub(_DRIVER, broker, _template("profile.yaml"))
    return {"profiles/orders.yaml": profile, "test_orders.py": _TEST}


def _service_files(broker: str) -> dict[str, str]:
    """Return a profile with a route, its test, and the service unless the target has one."""
    known = sorted(path.stem for path in (_TEMPLATES / "service").glob("*.yaml"))
    if broker not in known:
        raise UsageError(
            f"no service for {broker} comes with the package: choose {' or '.join(known)}"
        )
    files = {
        "profiles/confirmed.yaml": _template(f"service/{broker}.yaml"),
        "test_confirmed.py": _TEST_OF_ROUTE,
    }
    service = shipped("services") / f"orders_{broker}.py"
    if service.exists():
        files[service.name] = service.read_text(encoding="utf-8")
        files["test_confirmed.py"] = _TEST_OF_SERVICE.format(service=service.name)
    return files


def schema_text(name: str) -> str:
    """Return the JSON schema of profiles (``profile``) or of results.json (``results``)."""
    if name == "profile":
        return (shipped("profiles") / "schema.json").read_text(encoding="utf-8")
    from pytest_loadtest.report.document import results_schema  # on use: it loads pydantic

    return json.dumps(results_schema(), indent=2, ensure_ascii=False)


def write_starter(folder: Path, files: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Write the files, never over an existing one; say for each whether it was written.

    :raises UsageError: the folder cannot be written.
    """
    for path, text in files.items():
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            progress(f"kept   {target}: it exists")
            if text == _INI:
                progress("       its load_profiles, if set, must be profiles; testpaths need .")
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from error
        else:
            progress(f"wrote  {target}")


def suites() -> list[str]:
    """Return the names of the acceptance suites that come with the package."""
    return sorted(path.name for path in shipped("loadtests").glob("[!._]*/"))


def copy_suite(name: str, folder: Path) -> None:
    """Copy the load tests of an acceptance suite into a new folder.

    :raises UsageError: the folder exists, or cannot be written.
    """
    source = shipped("loadtests") / name
    try:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    except FileExistsError:
        raise UsageError(f"{folder} exists: name a new folder") from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error


def show_next(command: str, show: Callable[[str], None]) -> None:
    """Show the command to run next, and the one before it without which Spark starts slowly."""
    archive = java_process.path()
    if archive is None or not archive.is_file():
        show("once: pytest-loadtest doctor --fix lets Spark start in a third of the time")
    show(f"next: {command}")
