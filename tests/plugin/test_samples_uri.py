"""Samples that are stored in an S3 bucket or a shared folder instead of the run's folder (``--load-samples``)."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest
from s3_server import Bucket, s3_bucket

from .projects import Finished, Project, fresh
from .test_hosts import has_time_namespaces, hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URI = "s3://loadtest/nightly"
TESTS = """\
import pytest

@pytest.mark.load(profile="plain")
def test_plain(load):
    load.assert_slo()
    assert load.samples.sent.count_rows() == load.samples.received.count_rows() == 500
"""


@pytest.fixture
def stored(project: Project) -> Project:
    """A project with one load test of 500 messages."""
    project.profile("plain")
    project.write("test_it.py", TESTS)
    return project


@pytest.fixture
def bucket(stored: Project) -> Iterator[Bucket]:
    """An empty bucket, which the project's processes can reach."""
    with s3_bucket() as made:
        stored.environment |= made.environment
        yield made


def run_folder(project: Project) -> Path:
    """Return the folder of the newest run."""
    return project.runs()[-1]


def prefix(project: Project, folder: Path) -> str:
    """Return the prefix of a run's objects."""
    return f"nightly/{folder.relative_to(project.path / '.loadtest').as_posix()}"


def test_samples_go_to_the_bucket_with_their_manifests(stored: Project, bucket: Bucket) -> None:
    """Two workers: the folder of results has no samples, the bucket has all, and manifests name size and checksum of each file."""
    run = stored.run("-n2", "--load-samples", f"{URI}/")
    assert run.outcomes == {"passed": 1}
    folder = run_folder(stored)
    place = prefix(stored, folder)
    assert json.loads((folder / "run.json").read_text())["samples"] == f"s3://loadtest/{place}"
    assert [
        path.name
        for path in folder.iterdir()
        if "samples" in path.name or path.is_dir() or "manifest" in path.name
    ] == []
    names = [key.removeprefix(f"{place}/") for key in bucket.objects()]
    data = [
        f"{kind}/{worker}-000001.parquet"
        for kind in ("received", "sent")
        for worker in ("gw0", "gw1")
    ]
    assert names == ["gw0.manifest.json", "gw1.manifest.json", *data]
    manifest = json.loads(bucket.read(f"{place}/gw0.manifest.json"))
    for kind in ("sent", "received"):
        for file in manifest[kind]["files"]:
            content = bucket.read(f"{place}/{kind}/{file['name']}")
            assert (file["size"], file["sha256"]) == (
                len(content),
                hashlib.sha256(content).hexdigest(),
            )


def test_without_the_option_the_manifest_is_as_before(stored: Project) -> None:
    """The test's body reads the same samples from the folder; no new key appears in any file."""
    run = stored.run()
    assert run.outcomes == {"passed": 1}
    folder = run_folder(stored)
    assert "samples" not in json.loads((folder / "run.json").read_text())
    assert [
        sorted(file)
        for file in json.loads((folder / "main.manifest.json").read_text())["sent"]["files"]
    ] == [["name", "rows"]]


def test_a_shared_folder_holds_samples_as_a_bucket_does(stored: Project) -> None:
    """The ini key names it relative to the root folder; the option overrides it."""
    (stored.path / "shared").mkdir()
    (stored.path / "other").mkdir()
    stored.write("pytest.ini", (stored.path / "pytest.ini").read_text() + "load_samples = shared\n")
    assert stored.run().outcomes == {"passed": 1}
    folder = run_folder(stored)
    place = stored.path / "shared" / folder.relative_to(stored.path / ".loadtest")
    assert {path.relative_to(place).as_posix() for path in place.rglob("*.*")} == {
        "main.manifest.json", "sent/main-000001.parquet", "received/main-000001.parquet"
    }  # fmt: skip
    assert not list(folder.rglob("*.parquet"))
    assert stored.run("--load-samples", "other").outcomes == {"passed": 1}
    assert len(list((stored.path / "other").rglob("*.parquet"))) == 2


@pytest.mark.skipif(
    not has_time_namespaces(), reason="hosts with clocks of their own need root and time namespaces"
)
def test_workers_on_other_hosts_write_to_the_bucket(stored: Project, bucket: Bucket) -> None:
    """The controller gets none of their files, and nothing stays in the temporary folders of the hosts."""
    hosts(stored, h1=100_000, h2=-10)
    (stored.path / "tmp").mkdir()
    stored.environment["TMPDIR"] = str(stored.path / "tmp")
    run = stored.run("--load-hosts", "hosts.yaml", "-n1", "--load-samples", URI)
    assert run.outcomes == {"passed": 1}
    names = {key.rpartition("/")[2] for key in bucket.objects()}
    assert {"gw0.manifest.json", "h1-1.manifest.json", "h2-1.manifest.json"} <= names
    assert not list(run_folder(stored).rglob("*.parquet")) + list(
        run_folder(stored).rglob("*.manifest.json")
    )
    assert not list((stored.path / "tmp").glob("loadtest-samples-*"))


def test_a_missing_bucket_is_no_data_and_the_samples_are_kept(
    stored: Project, bucket: Bucket
) -> None:
    """The error names the object and the folder, which has the whole samples."""
    run = stored.run("--load-samples", "s3://nowhere/nightly")
    assert run.outcomes == {"error": 1}
    words = (
        "worker main could not write s3://nowhere/nightly/",
        "sent/main-000001.parquet",
        "NO_SUCH_BUCKET",
    )
    assert [word for word in words if word not in run.out] == []
    (kept,) = run_folder(stored).glob("samples-main")
    assert f"kept in {kept}" in run.out
    assert {path.relative_to(kept).as_posix() for path in kept.rglob("*.*")} == {
        "main.manifest.json", "sent/main-000001.parquet", "received/main-000001.parquet"
    }  # fmt: skip


BREAK = """\
import pyarrow.fs, pytest
from pytest_loadtest.engine import sample_store

CHANGES = {changes}
store = sample_store.store_samples

def broken(who, here, location, stopped):
    store(who, here, location, stopped)
    files, root = sample_store.file_system(location)
    (change,) = [change for name, change in CHANGES.items() if f"test_{{name}}" in root]
    exec(change, {{"files": files, "root": root}})

def pytest_configure():
    from pytest_loadtest.fleet import sample_transfer
    sample_transfer.store_samples = broken
"""
BROKEN_TEST = """
@pytest.mark.load(profile="plain")
def test_{name}(load):
    load.assert_slo()
"""
OBJECT = "root + '/received/main-000001.parquet'"
CHANGES = {
    "truncated": f"content = files.open_input_stream({OBJECT}).read()[:-9]; stream = files.open_output_stream({OBJECT}); stream.write(content); stream.close()",
    "missing": f"files.delete_file({OBJECT})",
    "manifest": "files.delete_file(root + '/main.manifest.json')",
    "foreign": f"files.copy_file({OBJECT}, root + '/sent/other-000001.parquet')",
    "stranger": "files.copy_file(root + '/main.manifest.json', root + '/gw9.manifest.json')",
}  # fmt: skip
"""What is changed in the bucket after the samples of a test were stored, by the test's name."""


class Session(NamedTuple):
    """A project whose only session has ended."""

    project: Project
    run: Finished


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return a session with one load test for each change."""
    with s3_bucket() as bucket, fresh(tmp_path_factory.mktemp("broken")) as project:
        project.environment |= bucket.environment
        project.profile("plain")
        project.write("conftest.py", BREAK.format(changes=CHANGES))
        tests = [BROKEN_TEST.format(name=name) for name in CHANGES]
        project.write("test_it.py", "import pytest\n" + "\n".join(tests))
        run = project.run("--load-samples", URI)
    return Session(project, run)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("truncated", ["received/main-000001.parquet (worker main) has", "bytes, its manifest says"]),
        ("missing", ["received/main-000001.parquet is missing; the manifest of worker main names it"]),
        ("manifest", ["main.manifest.json is missing"]),
        ("foreign", ["sent/other-000001.parquet is in no worker's manifest"]),
        ("stranger", ["gw9.manifest.json: its worker is not one of the run's"]),
    ],
    ids=list(CHANGES),
)  # fmt: skip
def test_an_object_that_is_not_what_was_written_is_no_data(
    broken: Session, change: str, words: list[str]
) -> None:
    """Each is named with its URI."""
    project, run = broken
    assert run.outcomes == {"error": len(CHANGES)}
    error = run.case(f"test_{change}").find("error")
    assert error is not None
    text = f"{error.get('message')}{error.text}"
    (folder,) = [folder for folder in project.runs() if f"test_{change}" in str(folder)]
    expected = [f"s3://loadtest/{prefix(project, folder)}/", *words]
    assert [word for word in expected if word not in text] == []


@pytest.mark.parametrize(
    "uri",
    [
        "s3://key:hush@loadtest/x",
        "s3://loadtest/x?secret_key=hush",
        "s3://hush@loadtest",
        "s3://loadtest/#hush",
        "abfs://c@hush/x",
    ],
)
@pytest.mark.parametrize("ini", [False, True])
def test_a_uri_with_credentials_is_a_usage_error_that_does_not_show_them(
    stored: Project, uri: str, ini: bool
) -> None:
    if ini:
        stored.write(
            "pytest.ini", (stored.path / "pytest.ini").read_text() + f"load_samples = {uri}\n"
        )
    run = stored.run(*([] if ini else ["--load-samples", uri]))
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search(
        r"(--load-samples|load_samples \(ini\)) (s3|abfs)://\*\*\*: a URI of samples must not have",
        run.out,
    )
    assert "hush" not in run.out


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("ftp://host/x", "write s3://BUCKET/PREFIX"),
        ("missing", "missing is not a folder"),
        ("s3:/b", "write s3://"),
    ],
)
def test_an_unknown_store_or_a_missing_folder_is_a_usage_error(
    stored: Project, location: str, words: str
) -> None:
    run = stored.run("--load-samples", location)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert words in run.out
