"""An S3 server in a thread of this process, with one bucket."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.fs import S3FileSystem

BUCKET = "loadtest"


@dataclass
class Bucket:
    """The bucket. :param files: its objects, as ``loadtest/key``. :param environment: what a process needs to reach it."""

    files: S3FileSystem
    environment: dict[str, str]

    def objects(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects below a prefix."""
        from pyarrow import fs

        selected = fs.FileSelector(
            f"{BUCKET}/{prefix}".rstrip("/"), recursive=True, allow_not_found=True
        )
        return sorted(
            info.path.removeprefix(f"{BUCKET}/")
            for info in self.files.get_file_info(selected)
            if info.type == fs.FileType.File
        )

    def read(self, key: str) -> bytes:
        """Return the content of an object."""
        with self.files.open_input_stream(f"{BUCKET}/{key}") as stream:
            content: bytes = stream.read()
        return content

    def write(self, key: str, content: bytes) -> None:
        """Write an object."""
        with self.files.open_output_stream(f"{BUCKET}/{key}") as stream:
            stream.write(content)


@contextmanager
def s3_bucket() -> Iterator[Bucket]:
    """Start the server with an empty bucket; skip the test without moto and flask."""
    moto = pytest.importorskip(
        "moto.server", reason="moto[s3] and flask, an S3 server, are not installed"
    )
    from pyarrow import fs

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        files = fs.S3FileSystem(
            access_key="key", secret_key="hush", endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1",
            allow_bucket_creation=True,
        )  # fmt: skip
        files.create_dir(BUCKET)
        yield Bucket(files, {
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "us-east-1",
        })  # fmt: skip
    finally:
        server.stop()
