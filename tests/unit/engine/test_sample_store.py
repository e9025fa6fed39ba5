"""Samples in a folder or a bucket other than the run's folder."""

from __future__ import annotations

import hashlib
import json
import socket
from typing import TYPE_CHECKING, Any

import pyarrow.fs
import pytest

from pytest_loadtest.engine.sample_store import (
    SampleStore,
    file_system,
    is_uri,
    make_location,
    s3_file_system,
    store_samples,
)
from pytest_loadtest.errors import NoData

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = {"sent": b"many rows", "received": b"other rows"}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The samples that a worker has recorded: a file of two kinds."""
    here = tmp_path / "here"
    nothing = {"rows": 0, "files": []}
    manifest: dict[str, Any] = {"worker": "gw0", "broadcast": nothing, "tap": nothing}
    for kind, content in CONTENT.items():
        (here / kind).mkdir(parents=True)
        (here / kind / "gw0-000001.parquet").write_bytes(content)
        manifest[kind] = {"rows": 3, "files": [{"name": "gw0-000001.parquet", "rows": 3}]}
    (here / "gw0.manifest.json").write_text(json.dumps(manifest))
    return here


def never() -> bool:
    return False


def test_files_are_stored_with_size_and_checksum_in_the_manifest(
    recorded: Path, tmp_path: Path
) -> None:
    """What was recorded stays as it is: its owner deletes it when everything is stored."""
    before = {path: path.read_bytes() for path in recorded.rglob("*.*")}
    location = str(tmp_path / "shared/session/test")
    make_location(location)
    store_samples("worker gw0", recorded, location, never)
    store = SampleStore(location)
    assert {name: size for name, size in store.sizes().items() if name.endswith(".parquet")} == {
        f"{kind}/gw0-000001.parquet": len(content) for kind, content in CONTENT.items()
    }
    manifest = json.loads(store.read("gw0.manifest.json"))
    for kind, content in CONTENT.items():
        (entry,) = manifest[kind]["files"]
        assert entry == {
            "name": "gw0-000001.parquet",
            "rows": 3,
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        assert store.read(f"{kind}/gw0-000001.parquet") == content
    assert {path: path.read_bytes() for path in recorded.rglob("*.*")} == before
    assert not (tmp_path / "shared/session/test/broadcast").exists()


def test_a_second_worker_uses_the_folders_of_the_first(recorded: Path, tmp_path: Path) -> None:
    location = str(tmp_path / "shared")
    make_location(location)
    store_samples("worker gw0", recorded, location, never)
    store_samples("worker gw0", recorded, location, never)
    assert len(SampleStore(location).sizes()) == 3


def test_the_manifest_is_missing_if_a_file_could_not_be_stored(
    recorded: Path, tmp_path: Path
) -> None:
    """The error names the file, and the folder and host that keep the samples."""
    location = str(tmp_path / "shared")
    make_location(location)
    (tmp_path / "shared/received/gw0-000001.parquet").mkdir(parents=True)
    with pytest.raises(NoData) as caught:
        store_samples("worker gw0", recorded, location, never)
    assert f"worker gw0 could not write {location}/received/gw0-000001.parquet: " in str(
        caught.value
    )
    assert f"kept in {recorded} on {socket.gethostname()}: check --load-samples" in str(
        caught.value
    )
    assert "gw0.manifest.json" not in SampleStore(location).sizes()


def test_a_host_without_the_shared_disk_writes_nothing(recorded: Path, tmp_path: Path) -> None:
    """It must not make a folder of its own there."""
    with pytest.raises(NoData, match="this host does not have it: mount the shared disk here"):
        store_samples("worker gw0", recorded, str(tmp_path / "not/mounted"), never)
    assert not (tmp_path / "not").exists()


def test_nothing_more_is_written_when_the_run_is_given_up(recorded: Path, tmp_path: Path) -> None:
    make_location(str(tmp_path / "shared"))
    with pytest.raises(NoData, match="the run was given up"):
        store_samples("worker gw0", recorded, str(tmp_path / "shared"), lambda: True)
    assert "gw0.manifest.json" not in SampleStore(str(tmp_path / "shared")).sizes()


def test_a_folder_that_cannot_be_made_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NoData, match=r"file/session cannot be made: .*check --load-samples"):
        make_location(str(tmp_path / "file/session"))


def test_a_location_that_does_not_exist_has_no_files(tmp_path: Path) -> None:
    store = SampleStore(str(tmp_path / "away"))
    assert store.sizes() == {}
    with pytest.raises(FileNotFoundError):
        store.read("gw0.manifest.json")


def test_paths_are_no_patterns_and_no_uris(tmp_path: Path) -> None:
    """The folder of a test may have any name."""
    folder = tmp_path / "a[b]{c}*é ?://d"
    folder.mkdir(parents=True)
    (folder / "x").write_bytes(b"12")
    assert SampleStore(str(folder)).sizes() == {"x": 2}
    assert is_uri("s3://b") and not is_uri(str(folder))
    assert SampleStore(f"file://{tmp_path}").sizes() == {f"{folder.relative_to(tmp_path)}/x": 2}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000/"}, {"endpoint_override": "127.0.0.1:9000", "scheme": "http", "region": "us-east-1"}),
        ({"AWS_ENDPOINT_URL": "store.example", "AWS_DEFAULT_REGION": "eu"}, {"endpoint_override": "store.example", "scheme": "https", "region": "eu"}),
        ({"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "https://b", "AWS_REGION": "r"}, {"endpoint_override": "b", "scheme": "https", "region": "r"}),
        ({"AWS_REGION": "eu-central-1"}, {"region": "eu-central-1"}),
        ({}, {"region": "of bucket"}),
    ],
)  # fmt: skip
def test_endpoint_and_region_of_s3_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: dict[str, str]
) -> None:
    """Amazon is asked for the region of a bucket only if nothing else names it."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pyarrow.fs, "S3FileSystem", lambda **arguments: arguments)
    monkeypatch.setattr(pyarrow.fs, "resolve_s3_region", lambda bucket: f"of {bucket}")
    made: Any = s3_file_system("s3://bucket/prefix")
    assert {name: value for name, value in made.items() if not name.endswith("timeout")} == expected


def test_paths_of_other_stores_are_as_their_file_system_takes_them() -> None:
    """Arrow leaves a slash in front of an Azure container, which its own file system rejects.

    Nothing is connected here.
    """
    assert file_system("abfs://account.dfs.core.windows.net/container/p")[1] == "container/p"
    assert file_system("gs://bucket/p")[1] == "bucket/p"
