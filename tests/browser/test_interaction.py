"""Interaction and appearance: mouse, keyboard, light and dark, print, width of the window."""

from __future__ import annotations

import pytest
from builders.report import BANDS, made_charts, made_page


@pytest.fixture(scope="module")
def charts():
    return made_charts()


@pytest.fixture
def page(browser, charts):
    browser.open_charts(charts, BANDS)
    return browser


def test_hovering_tells_the_value_and_what_happened_there(page, charts):
    page.hover("latency", 45.5 / 60)
    page.hover("latency", 46 / 60)
    assert page.run("return loadtest.charts.latency.plot.cursor.idx") == 46
    told = page.told("latency")
    assert "46 s · quiet again" in told
    assert "outage: broker restarted, 3.1 s" in told
    assert f"{charts['latency']['series'][0]['values'][46] / 1e6:.2f} ms" in told
    page.hover("heat", 10.5 / 60, 0.7)
    assert " copies" in page.told("heat")


def test_charts_of_a_run_share_the_cursor(page):
    page.hover("rates", 0.5)
    assert page.run(
        "return ['latency', 'heat', 'lost'].map((name) => loadtest.charts[name].plot.cursor.idx)"
    ) == [30, 30, 30]
    assert " | 30 s · burst" in page.told("latency")
    assert page.run("return loadtest.charts.curve.plot.cursor.left") < 0


def test_dragging_zooms_all_charts_of_the_run_and_a_double_click_shows_all_again(page):
    page.drag("rates", 0.25, 0.5)
    for name in ("rates", "latency", "heat", "lost", "reduced"):
        assert page.view(name) == pytest.approx([15, 30], abs=0.2)
    assert page.view("curve") == pytest.approx([1, 100_000])
    page.double_click("heat")
    for name in ("rates", "latency", "heat", "lost", "reduced"):
        assert page.view(name) == [0, 60]


def test_a_curve_zooms_by_itself(page):
    page.drag("curve", 0.4, 0.8)
    assert page.view("curve") == pytest.approx([100, 10_000], rel=0.03)
    assert page.view("rates") == [0, 60]


def test_the_keyboard_moves_the_cursor_zooms_and_resets(page):
    from selenium.webdriver import Keys

    box = page.find("figure[data-chart=latency] .plot")
    page.run("arguments[0].focus()", box)
    box.send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.told("latency").endswith(" | 2 s · quiet")
    box.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT)
    assert " | 12 s" in page.told("latency")
    box.send_keys(Keys.NULL, "+")
    assert page.view("rates") == pytest.approx([6, 36])
    box.send_keys(Keys.ESCAPE)
    assert page.view("rates") == [0, 60]


def test_a_click_in_the_legend_hides_a_line_with_its_band(page):
    button = page.find("figure[data-chart=reduced] .legend button")
    button.click()
    assert page.run("return loadtest.charts.reduced.plot.series.map((one) => one.show)") == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert page.run("return loadtest.charts.reduced.plot.series.every((one) => one.show)")


def test_light_and_dark_follow_the_system_while_the_page_is_open(page):
    ink = "return getComputedStyle(document.body).color"
    before = page.run(ink)
    assert page.pixels("rates", "blue", 80, 0, 1000, 200) > 100
    light = page.run("return getComputedStyle(document.documentElement).getPropertyValue('--blue')")
    page.cdp(
        "Emulation.setEmulatedMedia",
        media="",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    page.until(
        "return getComputedStyle(document.documentElement).getPropertyValue('--blue') !== arguments[0]",
        light,
    )
    assert page.run(ink) != before
    page.until(
        "const {plot} = loadtest.charts.rates; return plot.series[2].stroke(plot, 2) !== arguments[0]",
        light,
    )
    assert page.pixels("rates", "blue", 80, 0, 1000, 200) > 100


def test_charts_are_drawn_when_they_come_into_sight(browser, charts):
    many = {f"chart-{n}": charts["rates"] for n in range(12)}
    browser.open(made_page(many, []))
    browser.until("return loadtest.charts['chart-0'].plot")
    assert browser.run("return loadtest.charts['chart-11'].plot === null")
    browser.run("document.querySelector('#chart-11').scrollIntoView()")
    browser.until("return loadtest.charts['chart-11'].plot")


def test_all_charts_are_drawn_for_paper_in_light_colours(browser, charts):
    browser.open(made_page({f"chart-{n}": charts["rates"] for n in range(12)}, []))
    browser.cdp(
        "Emulation.setEmulatedMedia",
        media="",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    browser.run(
        "addEventListener('afterprint', () => (window.printed = Object.values(loadtest.charts).map(({plot}) => plot && plot.series[2].stroke(plot, 2))))"
    )
    browser.run(
        "addEventListener('beforeprint', () => (window.ink = loadtest.charts['chart-11'].plot.series[2].stroke()))"
    )
    printed = browser.cdp("Page.printToPDF")
    assert len(printed["data"]) > 20_000
    browser.until("return window.printed")
    assert browser.run("return window.ink") == "#0072b2"
    assert len(browser.run("return window.printed.filter(Boolean)")) == 12


def test_charts_follow_the_width_of_the_window(page):
    width = "return loadtest.charts.rates.plot.width"
    before = page.run(width)
    page.cdp(
        "Emulation.setDeviceMetricsOverride",
        width=420,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    page.until("return loadtest.charts.rates.plot.width < 420")
    assert page.run("return document.documentElement.scrollWidth") <= 420, "nothing sticks out"
    page.cdp("Emulation.clearDeviceMetricsOverride")
    page.until("return loadtest.charts.rates.plot.width === arguments[0]", before)
