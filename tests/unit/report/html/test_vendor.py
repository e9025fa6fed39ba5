"""uPlot is kept as it came from its package, and goes with this one."""

from __future__ import annotations

import hashlib
from importlib.resources import files

VENDOR = files("pytest_loadtest.report.html").joinpath("vendor")


def test_the_files_are_those_that_version_names():
    named = dict(reversed(line.split()) for line in VENDOR.joinpath("VERSION").read_text().splitlines()[2:])
    assert {file.name for file in VENDOR.iterdir()} == {"VERSION", *named}
    assert {name: hashlib.sha256(VENDOR.joinpath(name).read_bytes()).hexdigest() for name in named} == named


def test_version_and_licence_are_told():
    assert VENDOR.joinpath("VERSION").read_text().startswith("uplot 1.6.32, https://www.npmjs.com/package/uplot, MIT")
    assert "v1.6.32" in VENDOR.joinpath("uPlot.iife.min.js").read_text()[:100]
    assert "MIT License" in VENDOR.joinpath("LICENSE").read_text()
