"""The first screen: a row for each run, with small lines, a filter and keys; and two runs over each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.kinds import KINDS
from builders.report import made_session, made_soak, of_each_outcome
from builders.results import put

from pytest_loadtest.report.html.page import write_page

ROWS = "return [...document.querySelectorAll('.runs tbody tr')].filter((row) => !row.hidden).map((row) => row.querySelector('a').textContent)"
FOCUS = "return document.activeElement.textContent"
NAMED = {
    name: replace(made, test=f"loadtests/test_all.py::test_{name.replace(' ', '_')}")
    for name, made in of_each_outcome().items()
    if name != "search"
}


@pytest.fixture
def page(browser):
    """The page of one run of each outcome."""
    browser.open(made_session(*NAMED.values()))
    return browser


def test_text_and_outcomes_select_rows(page):
    """All words must be found; they may be in the node id."""
    everything = page.run(ROWS)
    assert len(everything) == 5
    field = page.find(".filter input")
    field.send_keys("test_all no_data")
    assert page.run(ROWS) == ["test_no_data"]
    assert page.find(".filter output").text == "1 of 5 runs"
    from selenium.webdriver import Keys

    field.send_keys(Keys.ESCAPE)
    assert page.run(ROWS) == everything
    button = page.find(".filter button[data-outcome='no data']")
    button.click()
    assert page.run(ROWS) == ["test_met", "test_missed", "test_generator-limited"]
    button.click()
    assert page.run(ROWS) == everything


def test_the_keyboard_goes_to_the_filter_and_from_run_to_run(page):
    from selenium.webdriver import ActionChains, Keys

    press = lambda *keys: ActionChains(page.driver).send_keys(*keys).perform()  # noqa: E731
    press("/")
    assert page.run("return document.activeElement.type") == "search"
    press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    second = page.run(ROWS)[1]
    assert page.run(FOCUS) == second
    press(Keys.ENTER)
    target = page.run("return document.querySelector(location.hash).dataset.name")
    assert target == second


def test_small_lines_end_with_the_phase_and_shade_what_went_wrong(browser):
    soak = made_soak(120)
    browser.open(made_session(soak))
    drawn = browser.run(
        "return [...document.querySelectorAll('.spark')].map((svg) => [...svg.children].map((path) => path.getAttribute('d').split('M').length - 1))"
    )
    assert len(drawn) == 2
    for wrong, lines in drawn:
        assert lines == 1, "no gap"
        assert wrong >= 10, "ten stalls, and an outage"


@pytest.mark.parametrize("count", [12])
def test_a_dozen_runs_fit_on_the_first_screen(browser, count):
    runs = list(NAMED.values())
    many = [replace(runs[n % 4], test=f"test_x.py::test_number_{n}") for n in range(count)]
    browser.open(made_session(*many))
    size = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.cdp("Emulation.setDeviceMetricsOverride", **size)
    try:
        end = "return document.querySelector('.runs').getBoundingClientRect().bottom"
        assert browser.run(end) <= 900
    finally:
        browser.cdp("Emulation.clearDeviceMetricsOverride")


def lines_of(browser, chart):
    return browser.run(
        "return loadtest.charts[arguments[0]].chart.series.map(({label}) => label)", chart
    )


def test_the_lines_of_another_run_lie_over_those_of_a_run(browser):
    """Each keeps its own numbers; a choice of none shows the run alone again."""
    long = replace(made_soak(90, seed=3), test="test_x.py::test_long")
    short = replace(made_soak(60), test="test_x.py::test_short")
    browser.open(made_session(long, short))
    browser.draw()
    before = browser.run("return loadtest.charts['run-2-rates'].plot.data")
    choose = """const select = document.querySelectorAll('.compare select')[1];
        select.value = arguments[0];
        select.dispatchEvent(new Event('change'))"""
    browser.run(choose, "run-1")
    assert lines_of(browser, "run-2-rates")[4:] == [
        f"{name}, test_long" for name in ("offered", "sent", "acked", "received")
    ]
    data = browser.run("return loadtest.charts['run-2-rates'].plot.data")
    first = browser.run("return loadtest.charts['run-1-rates'].plot.data")
    assert data[0] == list(range(90))
    assert [line[:60] for line in data[1:5]] == before[1:]
    assert data[5:] == first[1:]
    assert browser.view("run-2-rates") == [0, 90]
    assert lines_of(browser, "run-1-rates") == ["offered", "sent", "acked", "received"]
    browser.run(choose, "")
    assert browser.run("return loadtest.charts['run-2-rates'].plot.data") == before


def test_the_baseline_lies_over_its_run_if_it_can_still_be_read(browser, tmp_path):
    from builders.documents import as_json, from_json

    folder = put(tmp_path, made_soak(60, seed=3), session="monday")
    now = as_json(made_soak(60))
    histogram = now["measurements"]["latencies"]["endToEnd"]["histogram"]
    facts = {"test": now["test"], "started": None, "outcome": "met", "histogram": histogram}
    now["comparison"] = {
        "baseline": {**facts, "results": str(folder)}, "comparable": True, "forced": False, "differences": [], "blocks": None, "rows": [], "notes": [],
    }  # fmt: skip
    put(tmp_path, from_json(now), session="tuesday")
    for readable in (True, False):
        write_page([tmp_path / "tuesday"], tmp_path / "report.html")
        browser.open((tmp_path / "report.html").read_text(encoding="utf-8"))
        browser.draw()
        assert ("received, the baseline" in lines_of(browser, "run-1-rates")) is readable
        (folder / "results.json").unlink(missing_ok=True)


@pytest.mark.parametrize(("media", "width"), [("print", 718), ("screen", 800), ("screen", 400)])
def test_nothing_is_cut_on_paper_and_on_a_narrow_screen(browser, media, width):
    """Charts are below each other, and no table is wider than the page."""
    kinds = ("windows", "search", "wrong", "soak")
    browser.open(made_session(*(replace(KINDS[kind](), test=kind) for kind in kinds)))
    browser.cdp("Emulation.setEmulatedMedia", media=media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.cdp("Emulation.setDeviceMetricsOverride", **size)
    try:
        assert browser.run("return document.documentElement.scrollWidth") <= width
        lefts = (
            "return [...document.querySelectorAll('article figure')].map((one) => one.offsetLeft)"
        )
        assert len(set(browser.run(lefts))) == 1
        cut = "return [...document.querySelectorAll('.scroll:has(> .objectives)')].filter((one) => one.scrollWidth > one.clientWidth).length"
        assert browser.run(cut) == 0
        stacked = "return getComputedStyle(document.querySelector('.objectives tbody tr')).display"
        assert (browser.run(stacked) == "grid") is (width == 400)
    finally:
        browser.cdp("Emulation.setEmulatedMedia", media="")
        browser.cdp("Emulation.clearDeviceMetricsOverride")
