"""One browser for all tests of the page: Debian's chromium, headless. Where it cannot be had, they are skipped."""

from __future__ import annotations

import os
from shutil import which

import pytest
from browsing import Browser

OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-device-scale-factor=1", "--window-size=1200,900",
)  # fmt: skip


@pytest.fixture(scope="session")
def chromium():
    """The chromium process; its driver comes with the package, and nothing is downloaded."""
    programs = [which("chromium"), which("chromedriver")]
    if None in programs:
        pytest.skip(
            "no chromium with its driver here; on Debian: apt-get install chromium chromium-driver"
        )
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    os.environ["SE_OFFLINE"] = "true"
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def browser(chromium, tmp_path_factory):
    """One browser for all tests; each test opens its own page."""
    return Browser(chromium, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(autouse=True)
def silent(browser):
    """Fail each test whose page wrote to the console or made a request."""
    yield
    assert browser.console() == []
    assert (
        browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
        == []
    )
