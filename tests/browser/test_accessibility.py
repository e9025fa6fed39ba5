"""The page has no violation of axe-core's rules: contrast, names, roles, keyboard.

axe-core comes from the npm registry, once, into a cache; without npm or a network the test is skipped.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest
from builders.kinds import KINDS
from builders.report import made_session

VERSION = "4.10.3"
WAIT = 240
"""Seconds that the check may take; an idle machine needs about ten."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pytest-loadtest", "tests")
CHECK = """const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ["violations"]}).then(({violations, passes}) => done({
      passes: passes.length,
      violations: violations.map(({id, nodes}) => `${id}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary} (${nodes.length})`),
    }))"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core."""
    file = CACHE / f"axe-core-{VERSION}.tgz"
    if not file.exists():
        npm = which("npm")
        if npm is None:
            pytest.skip("no npm here, which fetches axe-core")
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", f"axe-core@{VERSION}", "--pack-destination", str(CACHE)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            pytest.skip(f"axe-core cannot be fetched: {done.stderr[-300:]}")
    with tarfile.open(file) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


NAMES = ("compared", "wrong", "search", "full-windows", "broken")


@pytest.mark.parametrize(
    ("width", "scheme"), [(1400, "light"), pytest.param(400, "dark", marks=pytest.mark.slow)]
)
def test_axe_finds_no_violation(browser, axe, width, scheme):
    """A session with one run of each outcome; its charts are drawn, and what is folded is shown, but the tables of numbers."""
    runs = [replace(KINDS[name](), test=f"test_it.py::test_{name}") for name in NAMES]
    browser.open(made_session(*runs))
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.cdp("Emulation.setEmulatedMedia", media="", features=features)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.cdp("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.draw()
        browser.run(
            "for (const fold of document.querySelectorAll('details:not(.numbers)')) fold.open = true"
        )
        browser.run(axe)
        browser.driver.set_script_timeout(WAIT)
        found = browser.driver.execute_async_script(CHECK)
    finally:
        browser.cdp("Emulation.clearDeviceMetricsOverride")
    assert found["violations"] == []
    assert found["passes"] > 15
