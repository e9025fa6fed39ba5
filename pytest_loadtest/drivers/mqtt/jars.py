"""The jars of ActiveMQ Artemis."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_loadtest.brokers.java import Jars

ARTEMIS: Final = Jars("Artemis", "2.42.0", "44 jars, 16 MB", Path(__file__).with_name("artemis-pom.xml"))
