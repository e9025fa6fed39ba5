"""What makes Spark's Java process start in a third of the time: a class archive, made once per Java and pyspark.

Most of a start is Java loading and checking Spark's classes. ``-XX:SharedArchiveFile`` takes them as they were in memory when the archive
was made. Java itself looks whether the archive fits, and loads classes the long way where it does not, so a stale one costs time only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.brokers.java import cache_root

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = "spark.driver.extraJavaOptions"
QUICK = "-XX:TieredStopAtLevel=1"  # the JVM hands samples to Python workers and computes little: its second compiler never pays


def path() -> Path | None:
    """Where the archive of the Java and the pyspark found here lies once it is made; None where there is no Java."""
    java = _java()
    if java is None:
        return None
    stat = java.stat()
    build = _digest(f"{java} {stat.st_size} {stat.st_mtime_ns}")
    return cache_root() / f"spark-{_digest(str(spark_home()))}-{version('pyspark')}-{build}.jsa"


def spark_home() -> Path:
    """Where Spark's scripts and jars are, found without importing pyspark, which takes as long as Java needs to begin."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "it is among the requirements"
    assert spec.origin is not None
    return Path(os.environ.get("SPARK_HOME") or Path(spec.origin).parent)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _java() -> Path | None:
    """The java that Spark's scripts take."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    return Path(found).resolve() if found else None


def with_archive(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings with Java options for a quick start; the user's own options stand last, where Java lets them win."""
    archive = path()
    ours = [QUICK, *([f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive is not None and archive.is_file() else [])]
    return {**conf, OPTIONS: " ".join([*ours, conf.get(OPTIONS, "")]).strip()}


def replaced_by(archive: Path) -> list[Path]:
    """Those of other versions of Java, or of a pyspark that lay where this one does."""
    home = archive.name.split("-")[1]
    return [other for other in archive.parent.glob(f"spark-{home}-*.jsa") if other != archive]
