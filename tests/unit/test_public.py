"""The package as users see it: its public names, and the cost of loading the plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

import pytest_loadtest

HEAVY = [
    "pyspark",
    "py4j",
    "numpy",
    "pyarrow",
    "pulsar",
    "paho",
    "pydantic",
    "yaml",
    "testcontainers",
    "docker",
    "httpx",
    "jinja2",
]

# Each process of a pytest run writes this when it ends.
SAY_WHAT_IS_LOADED = f"""
import json, os, sys
from pathlib import Path

def pytest_unconfigure(config):
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    Path({{folder!r}}, name + ".json").write_text(json.dumps(sorted(set(sys.modules) & set({HEAVY!r}))))
"""


def loaded(folder: Path, *arguments: str) -> dict[str, list[str]]:
    """Run pytest with one ordinary test. :returns: process → heavy packages loaded at its end."""
    folder.joinpath("conftest.py").write_text(SAY_WHAT_IS_LOADED.format(folder=str(folder)))
    folder.joinpath("test_ordinary.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "xdist.plugin",
        "-p",
        "pytest_loadtest.plugin.hooks",
        *arguments,
    ]
    outer = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }  # this run's own workers, if it has any
    environment = {
        **outer,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # other plugins load what they like
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """``pytest --help`` stays fast in a project that only has the package installed."""
    assert loaded(tmp_path, "--help") == {"main": []}


def test_ordinary_tests_load_nothing_heavy(tmp_path: Path) -> None:
    """This holds in a single process."""
    assert loaded(tmp_path) == {"main": []}


def test_ordinary_tests_on_workers_load_nothing_heavy(tmp_path: Path) -> None:
    """This holds for xdist's controller and workers."""
    assert loaded(tmp_path, "-n", "2") == {"main": [], "gw0": [], "gw1": []}


@pytest.mark.parametrize("name", pytest_loadtest.__all__)
def test_public_names_exist_and_have_docstrings(name: str) -> None:
    assert getattr(pytest_loadtest, name).__doc__


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pytest_loadtest.nothing


def test_the_package_under_test_is_the_one_installed() -> None:
    """A checkout that happens to be on the path is not tested in its place: tox tests the wheel.

    A checkout that PYTHONPATH names was chosen on purpose, so it is the one to be tested; tox clears that variable.
    """
    chosen = [
        Path(entry)
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if entry and Path(entry, "pytest_loadtest").is_dir()
    ]
    home = chosen[0] if chosen else installation_folder()
    assert (
        Path(pytest_loadtest.__file__).resolve()
        == (home / "pytest_loadtest" / "__init__.py").resolve()
    )


def installation_folder() -> Path:
    """Return the folder that holds the installed package: site-packages, or the checkout of an editable installation."""
    installed = distribution("pytest-loadtest")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return Path(origin["url"].removeprefix("file://"))
    return Path(str(installed.locate_file("")))
