"""The Java that runs Pulsar and Artemis."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pytest_loadtest.brokers.base import UnavailableError

OLDEST = 17
REMEDY = "apt-get install openjdk-17-jre-headless, or python -m pytest_loadtest doctor --fix"


@dataclass(frozen=True, slots=True)
class Java:
    """A java binary and its major version."""

    path: str
    major: int


def find() -> Java | None:
    """``$JAVA_HOME/bin/java``, else ``java`` on the PATH; None when there is none that runs."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home) / "bin" / "java")) if home else None
    path = path or shutil.which("java")
    if path is None:
        return None
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    major = parse_major(answer.stderr + answer.stdout)
    return None if major is None else Java(path, major)


def parse_major(text: str) -> int | None:
    """``openjdk version "17.0.15"`` → 17, ``java version "1.8.0_392"`` → 8; None when it does not say."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def require(broker: str) -> Java:
    """The Java of this machine.

    :param broker: what is to run on it.
    :raises UnavailableError: none, or older than both brokers need.
    """
    java = find()
    if java is None:
        raise UnavailableError(f"{broker} needs Java, and there is none (JAVA_HOME, PATH)", REMEDY)
    if java.major < OLDEST:
        raise UnavailableError(f"{java.path} is Java {java.major}, {broker} needs {OLDEST} or later", REMEDY)
    return java
