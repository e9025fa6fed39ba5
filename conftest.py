"""For the project's own tests only; load tests need nothing from here."""

from __future__ import annotations

import contextlib

pytest_plugins = ["pytester"]

with contextlib.suppress(ImportError):  # load tests run without it
    from hypothesis import HealthCheck, settings

    # A slow machine is no failure, and the same tree gives the same answer twice.
    settings.register_profile("project", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("project")
