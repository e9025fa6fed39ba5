"""Setup for all tests. It is not in the conftest.py of the project, as load tests need no Hypothesis."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No Java process of a test lives long enough for its second compiler to be worth its CPU: without it Pulsar starts with half the CPU.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A slow machine is no failure, and the same tree has the same result twice. More examples: --hypothesis-profile thorough
settings.register_profile(
    "project",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("project"), max_examples=500, derandomize=False
)
settings.load_profile("project")
