"""Makes the class archive that lets Spark start in a third of the time; see :mod:`pytest_loadtest.pipeline.java_process`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline import java_process
from pytest_loadtest.pipeline.session import SparkHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

WRITE_SECONDS = 300  # the archive is written when its JVM ends, which takes 20 s on two slow cores


def there() -> bool | None:
    """Whether it is made; None where there is no Java to make it with."""
    archive = java_process.path()
    return None if archive is None else archive.is_file()


def make(tell: Callable[[str], None]) -> None:
    """Make it; takes half a minute. Without it Spark starts too, so what goes wrong is told and no more."""
    archive = java_process.path()
    if archive is None:
        return
    tell("making Spark's class archive (160 MB, half a minute, once)")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent) as folder:
        aside = Path(folder) / archive.name
        host = SparkHost(Path(folder), {java_process.OPTIONS: f"-XX:ArchiveClassesAtExit={aside}", "spark.master": "local[1]"})
        try:
            host.warm()
            _second_scan(host.session())
        except UsageError as error:
            tell(str(error))
        finally:
            host.stop(WRITE_SECONDS)
        if not aside.is_file():
            tell("Java wrote no class archive: Spark will start without one, some ten seconds later")
            return
        aside.rename(archive)
    for other in java_process.replaced_by(archive):
        other.unlink()


def _second_scan(session: SparkSession) -> None:
    """What an aggregation needs besides: its classes belong into the archive too."""
    from pytest_loadtest.pipeline import transforms

    with transforms.for_workers():
        transforms.deliveries(session.range(1), [[]], [], [], 1).toArrow()
