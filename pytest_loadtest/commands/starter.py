"""The files that ``init`` writes, and copies of what comes with the package."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.profile.files import shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CI_FILES: Final = {"github": Path(".github/workflows/load.yml"), "gitlab": Path(".gitlab-ci.yml")}
SCHEMAS: Final = ("profile", "results")
_TEMPLATES: Final = Path(__file__).with_name("templates")
_TEST: Final = """\
import pytest


@pytest.mark.load(profile="orders")
def test_orders(load):
    load.assert_slo()
"""
_INI: Final = """\
[pytest]
load_profiles = profiles
"""


def starter_files(broker: str | None, ci: str | None) -> dict[Path, str]:
    """Return path → text of the files of a new project.

    :param broker: the driver of its profile; None: the relay of the template, which needs nothing.
    :param ci: a key of :data:`CI_FILES`; None: no file.
    """
    profile = (_TEMPLATES / "profile.yaml").read_text(encoding="utf-8")
    if broker is not None:
        profile = re.sub(r"driver: \{name: \w+\}", f"driver: {{name: {broker}}}", profile)
    files = {
        Path("profiles/orders.yaml"): profile,
        Path("profiles/schema.json"): schema_text("profile"),
        Path("test_orders.py"): _TEST,
        Path("pytest.ini"): _INI,
    }
    if ci is not None:
        template = (_TEMPLATES / f"{ci}.yml").read_text(encoding="utf-8")
        files[CI_FILES[ci]] = template
    return files


def schema_text(name: str) -> str:
    """Return the JSON schema of profiles (``profile``) or of results.json (``results``)."""
    if name == "profile":
        return (shipped("profiles") / "schema.json").read_text(encoding="utf-8")
    from pytest_loadtest.report.document import results_schema  # on use: it loads pydantic

    return json.dumps(results_schema(), indent=2, ensure_ascii=False) + "\n"


def write_starter(folder: Path, files: Mapping[Path, str], progress: Callable[[str], None]) -> None:
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
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from error
        else:
            progress(f"wrote  {target}")


def suites() -> tuple[str, ...]:
    """Return the names of the acceptance suites that come with the package."""
    folders = [path.name for path in shipped("loadtests").iterdir() if path.is_dir()]
    return tuple(sorted(name for name in folders if name[0] not in "._"))


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
