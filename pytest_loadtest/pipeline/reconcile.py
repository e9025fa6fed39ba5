"""Compare the sample files of a run with the manifests of its workers.

The rule: a file that is missing, short, of another run, or listed nowhere is an error, never fewer
samples. They are in the run's folder or where ``--load-samples`` stored them.
:mod:`pytest_loadtest.pipeline.read` calls it in the controller's thread before anything is counted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_loadtest.engine.sample_files import NONCE, arrow_schema
from pytest_loadtest.engine.sample_store import SampleStore, is_uri
from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import KINDS, MANIFEST_SUFFIX
from pytest_loadtest.pipeline.run_file import what_is_wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

# Footers of an object store that are read at a time. Each is two or three requests, and a long run
# of many workers has thousands of files.
READERS = 16


class Listed(NamedTuple):
    """A file as its worker's manifest lists it.

    :param size: in bytes; None in manifests of samples that were not stored elsewhere.
    :param nonce: of the run.
    """

    kind: str
    name: str
    rows: int
    size: int | None
    worker: str
    nonce: int

    @property
    def path(self) -> str:
        """The path below the place of the run's samples."""
        return f"{self.kind}/{self.name}"


def open_store(location: str) -> tuple[SampleStore, dict[str, int]]:
    """Return the place of a run's samples, and the size of each file there.

    :raises NoData: it cannot be read.
    """
    try:
        store = SampleStore(location)
        return store, store.sizes()
    except (OSError, ValueError) as error:
        raise NoData(f"the samples in {location} cannot be read: {error}") from error


def reconcile(
    store: SampleStore, sizes: Mapping[str, int], manifests: Mapping[str, Any]
) -> dict[str, int]:
    """Compare files with manifests, and the rows in files with both.

    Return the rows of each file, by its path.

    :param sizes: of the files that exist.
    :param manifests: by worker.
    :raises NoData: they differ; names the file or manifest.
    """
    listed = []
    for kind in KINDS:
        for worker, manifest in manifests.items():
            listed += _listed(store, kind, worker, manifest)
    for file in listed:
        _check_size(store, file, sizes.get(file.path))
    # Threads only where reading is waiting: on a disk they would cost more than they save.
    if is_uri(store.location):
        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(lambda file: _check_rows(store, file), listed))
    else:
        for file in listed:
            _check_rows(store, file)
    # A file that no manifest lists would never be read.
    folders = tuple(KINDS)
    there = {
        path
        for path in sizes
        if path.count("/") == 1 and path.endswith(".parquet") and path.split("/")[0] in folders
    }
    if strays := there - {file.path for file in listed}:
        raise NoData(f"{store.location}/{min(strays)} is in no worker's manifest")
    return {file.path: file.rows for file in listed}


def _listed(store: SampleStore, kind: str, worker: str, manifest: Any) -> list[Listed]:
    """Return the files of a kind in a manifest."""
    place = f"{store.location}/{worker}{MANIFEST_SUFFIX}"
    files = []
    try:
        nonce = int(manifest["nonce"])
        for file in manifest[kind]["files"]:
            size = int(file["size"]) if "size" in file else None
            name = str(file["name"])
            files.append(Listed(kind, name, int(file["rows"]), size, worker, nonce))
        total = int(manifest[kind]["rows"])
    except (KeyError, TypeError, ValueError) as error:
        raise NoData(f"{place}: {kind}: {what_is_wrong(error)}") from error
    rows = sum(file.rows for file in files)
    if total != rows:
        raise NoData(f"{place}: {kind} has {total} rows, its files have {rows}")
    return files


def _check_size(store: SampleStore, file: Listed, size: int | None) -> None:
    place = f"{store.location}/{file.path}"
    if size is None:
        raise NoData(f"{place} is missing; the manifest of worker {file.worker} names it")
    if file.size is not None and size != file.size:
        raise NoData(
            f"{place} (worker {file.worker}) has {size} bytes, its manifest says {file.size}:"
            " it is cut off, or another file"
        )


def _check_rows(store: SampleStore, file: Listed) -> None:
    import pyarrow as pa

    place = f"{store.location}/{file.path} (worker {file.worker})"
    try:
        with store.open_parquet(file.path) as parquet:
            rows = parquet.metadata.num_rows
            schema = parquet.schema_arrow
    except (pa.ArrowException, OSError) as error:
        # In an object store it may be the network or the
        # credentials: Arrow's message has the cause.
        damage = "is cut off or damaged"
        if is_uri(store.location) and isinstance(error, OSError):
            damage = "cannot be read"
        raise NoData(f"{place} {damage}: {error}") from error
    # Older releases recorded no receive lag.
    expected = arrow_schema(file.kind)
    if not schema.equals(expected) and not (
        "lag" in expected.names and schema.equals(expected.remove(expected.get_field_index("lag")))
    ):
        raise NoData(f"{place} does not have the columns of {file.kind} samples")
    # A file of an earlier run of the same test has the same streams and sequences, so that only
    # this tells them apart. Older releases did not write it.
    nonce = (schema.metadata or {}).get(NONCE, b"").decode()
    if nonce not in ("", str(file.nonce)):
        raise NoData(f"{place} belongs to another run")
    if rows != file.rows:
        raise NoData(f"{place} has {rows} rows, its manifest says {file.rows}")
