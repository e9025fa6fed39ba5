"""The parts of a fleet on Spark that need no Spark: what travels, and how hosts are named."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import execnet
import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.host_process import host_facts
from pytest_loadtest.fleet.hosts import HostFacts
from pytest_loadtest.fleet.options import Options
from pytest_loadtest.fleet.slot_service import JoinedSlot
from pytest_loadtest.fleet.spark_fleet import FleetOptions, SparkFleet, host_names, package_archive

if TYPE_CHECKING:
    from pathlib import Path


def test_the_archive_is_a_package_with_its_version_and_plugin(tmp_path: Path) -> None:
    """A Python without site-packages imports it."""
    path = tmp_path / "archive.zip"
    path.write_bytes(package_archive())
    code = (
        "import pytest_loadtest.fleet.host_process as h, importlib.metadata as m; print(h.__file__); print(m.version('pytest-loadtest'));"
        "print(*m.entry_points(group='pytest_loadtest.drivers').names)"
    )
    command = [sys.executable, "-P", "-S", "-c", code]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=True
    )
    file, its_version, drivers = done.stdout.splitlines()
    assert file.startswith(str(path))
    assert its_version == version("pytest-loadtest")
    assert "loopback" in drivers.split()
    assert [
        name
        for name in zipfile.ZipFile(io.BytesIO(package_archive())).namelist()
        if name.endswith(".pyc")
    ] == []


def facts(**changes: Any) -> HostFacts:
    return replace(HostFacts(**host_facts()), **changes)


def test_slots_of_one_node_are_one_host() -> None:
    """Also if they are in several executors. A name that several nodes have is not one clock."""
    nodes = [
        facts(node="a", clock="1"),
        facts(node="b", clock="2"),
        facts(node="a", clock="1"),
        facts(node="a", clock="3"),
    ]
    assert host_names(nodes) == ["a", "b", "a", "a.2"]
    assert host_names([facts(node="-worker_1..x-")]) == ["worker-1..x"]


@pytest.fixture
def fleet(tmp_path: Path) -> SparkFleet:
    return SparkFleet(
        Options(results=tmp_path),
        FleetOptions(workers=2, directory="/srv/loadtests"),
        lambda line: None,
    )


def slot(path: Path, **changes: Any) -> JoinedSlot:
    return JoinedSlot(hello=host_facts() | changes, socket=path)


def test_workers_are_numbered_on_each_host(fleet: SparkFleet, tmp_path: Path) -> None:
    """xdist gets a command for each, which names its host."""
    fleet._place(
        [
            slot(tmp_path / "0", node="a"),
            slot(tmp_path / "1", node="b"),
            slot(tmp_path / "2", node="a"),
        ]
    )
    specs = [execnet.XSpec(spec) for spec in fleet.specs]
    assert [spec.id for spec in specs] == ["a-1", "b-1", "a-2"]
    assert [fleet.hosts[spec.python] for spec in specs] == ["a", "b", "a"]
    assert [(share.name, share.workers, share.of) for share in fleet.shares] == [
        ("a", 2, 3),
        ("b", 1, 3),
    ]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"missing": ["numpy"]}, "host n1: its Python lacks numpy: pip install"),
        ({"python": "3.9.1"}, "host n1: its Python is 3.9.1, the controller's is 3"),
        (
            {"problem": "FileNotFoundError: [Errno 2] …: '/srv/loadtests'"},
            "host n1: it has no directory /srv/loadtests: create it",
        ),
        (
            {"problem": "ModuleNotFoundError: No module named 'x'"},
            "host n1: ModuleNotFoundError: No module named 'x'",
        ),
    ],
)
def test_a_host_that_cannot_run_workers_is_named_once(
    fleet: SparkFleet, tmp_path: Path, changes: dict[str, Any], error: str
) -> None:
    """Whatever number of slots it has; nothing is started."""
    with pytest.raises(UsageError) as raised:
        fleet._place([slot(tmp_path / "0", node="n1", **changes)] * 2)
    assert str(raised.value).startswith(f"--load-fleet spark: {error}")
    assert len(str(raised.value).splitlines()) == 1
    assert not fleet.specs
