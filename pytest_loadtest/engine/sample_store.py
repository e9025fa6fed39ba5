"""The place of a run's sample files and manifests: its folder, or with ``--load-samples`` a folder
of an object store or of a shared disk.

A location is a path or a URI that :mod:`pyarrow.fs` reads. Credentials come from the environment of
the process, as the libraries of each store read them, and are never part of a location. Spark's
workers get :class:`SampleStore` as code, so they do not need this package.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import KINDS, MANIFEST_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow.parquet as pq
    from pyarrow.fs import FileSystem

# Bytes that are read, hashed and written at once. The S3 client collects parts of 10 MB itself.
PART = 1 << 22
# Stores that have folders, which must exist before a file is written; object stores have only
# names.
WITH_FOLDERS = ("local", "hdfs")
# Seconds to connect, and to wait for an answer: Arrow's own limits, 1 and 3, are too short for a
# store under load. It tries three times.
CONNECT_TIMEOUT = 10
REQUEST_TIMEOUT = 60


def is_uri(location: str) -> bool:
    """Return true for a URI, false for a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", location) is not None


def file_system(location: str) -> tuple[FileSystem, str]:
    """Return the file system of a location, and the path in it.

    :raises OSError: it cannot be reached, or lacks credentials.
    :raises ValueError: the URI is not valid.
    """
    from pyarrow import fs

    if not is_uri(location):
        return fs.LocalFileSystem(), location
    if location.startswith("s3://"):
        return s3_file_system(location), location.removeprefix("s3://")
    found, path = fs.FileSystem.from_uri(location)
    if found.type_name == "abfs":
        # Arrow keeps the slash in front of an Azure container, and then rejects it.
        path = path.lstrip("/")
    return found, path


def s3_file_system(location: str) -> FileSystem:
    """Return the S3 file system that the environment describes.

    Its endpoint is passed explicitly, because Arrow reads ``AWS_ENDPOINT_URL`` only in later
    releases than the oldest supported one.
    """
    from pyarrow import fs

    environment = os.environ
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT,
        "request_timeout": REQUEST_TIMEOUT,
    }
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        arguments |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    if not region and endpoint:
        # Another store than Amazon's has no service that knows the region of a bucket, and mostly
        # ignores it.
        region = "us-east-1"
    elif not region:
        region = fs.resolve_s3_region(location.split("/")[2])
    return fs.S3FileSystem(region=region, **arguments)


class SampleStore:
    """The files of one phase of a run: the manifests, and below each kind of sample its Parquet
    files.

    :param location: a path, or a URI.
    :raises OSError, ValueError: see :func:`file_system`.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self.files, self.root = file_system(location)

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every file, by its path below the location; empty if the
        location does not exist.
        """
        from pyarrow import fs

        selector = fs.FileSelector(self.root, allow_not_found=True, recursive=True)
        # Some stores return paths with a slash in front that the given one does not have.
        root = self.root.strip("/")
        sizes: dict[str, int] = {}
        for info in self.files.get_file_info(selector):
            if info.type == fs.FileType.File:
                sizes[info.path.strip("/")[len(root) + 1 :]] = info.size
        return sizes

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        :raises FileNotFoundError: it does not exist.
        :raises OSError: it cannot be read.
        """
        with self.files.open_input_stream(f"{self.root}/{name}") as stream:
            content: bytes = stream.read()
        return content

    def open_parquet(self, name: str) -> pq.ParquetFile:
        """Open a sample file.

        :raises OSError, pyarrow.ArrowException: it cannot be read, or is damaged.
        """
        import pyarrow.parquet as pq

        # In an object store each read is a request: columns are fetched together and in parallel.
        # On a disk this would only cost memory.
        return pq.ParquetFile(
            f"{self.root}/{name}",
            filesystem=self.files,
            pre_buffer=self.files.type_name not in WITH_FOLDERS,
        )


def make_location(location: str) -> None:
    """Make the folder of a phase on a shared disk; an object store needs none.

    The controller does this before load begins.

    Workers make no such folder: on a host that has not mounted the shared disk they must fail, not
    write to a disk of their own.

    :raises NoData: it cannot be made.
    """
    try:
        store = SampleStore(location)
        if store.files.type_name in WITH_FOLDERS:
            store.files.create_dir(store.root, recursive=True)
    except (OSError, ValueError) as error:
        raise NoData(
            f"the folder of samples {location} cannot be made: {error}: check --load-samples"
        ) from error


def store_samples(who: str, here: Path, location: str, stopped: Callable[[], bool]) -> None:
    """Write a worker's sample files to a location, and its manifest when all of them are complete
    there.

    :param here: the folder in which the worker recorded them; it is not changed.
    :param stopped: returns true if the run was given up.
    :raises NoData: a file cannot be written; names it, and the folder that keeps the samples.
    """
    (manifest,) = here.glob(f"*{MANIFEST_SUFFIX}")
    document = json.loads(manifest.read_text(encoding="utf-8"))
    name = location
    try:
        store = SampleStore(location)
        _make_folders(store, [kind for kind in KINDS if document[kind]["files"]])
        for kind in KINDS:
            for entry in document[kind]["files"]:
                file = f"{kind}/{entry['name']}"
                name = f"{location}/{file}"
                entry.update(_copy(here / file, store, file, stopped))
        name = f"{location}/{manifest.name}"
        with store.files.open_output_stream(f"{store.root}/{manifest.name}") as stream:
            stream.write(json.dumps(document, indent=1).encode())
    except (OSError, ValueError) as error:  # ValueError: Arrow's own errors
        raise NoData(
            f"{who} could not write {name}: {error}\n"
            f"  its samples are kept in {here} on {socket.gethostname()}:"
            " check --load-samples and the credentials in the environment there"
        ) from error


def _make_folders(store: SampleStore, kinds: list[str]) -> None:
    """Make the folders of the kinds.

    :raises FileNotFoundError: the folder of the run does not exist on this host.
    """
    from pyarrow import fs

    if store.files.type_name not in WITH_FOLDERS:
        return
    if store.files.get_file_info(store.root).type != fs.FileType.Directory:
        raise FileNotFoundError(
            "the controller made this folder, and this host does not have it:"
            " mount the shared disk here"
        )
    for kind in kinds:
        store.files.create_dir(f"{store.root}/{kind}", recursive=False)


def _copy(file: Path, store: SampleStore, name: str, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Copy a file to the store; return what the manifest says of it: its size and its checksum."""
    size = 0
    checksum = hashlib.sha256()
    with (
        file.open("rb") as source,
        store.files.open_output_stream(f"{store.root}/{name}") as target,
    ):
        while part := source.read(PART):
            if stopped():
                raise OSError("the run was given up")
            checksum.update(part)
            target.write(part)
            size += len(part)
    return {"size": size, "sha256": checksum.hexdigest()}
