"""For all tests. Load tests are none of them, and need not wait for Hypothesis."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No Java process of a test lives long enough for its second compiler to pay: Pulsar starts with half the CPU without it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A slow machine is no failure, and the same tree gives the same answer twice. More of it: --hypothesis-profile thorough
settings.register_profile("project", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("project"), max_examples=500, derandomize=False)
settings.load_profile("project")
