"""Each kind of chart shows exactly its data."""

from __future__ import annotations

import pytest
from builders.report import BANDS, made_chart, made_charts, series

from pytest_loadtest.values.quantities import (
    format_count,
    format_duration,
    format_rate,
    format_size,
)

KINDS = ("stage", "change", "restart", "move", "stall", "blocked", "lost")
PLOTTED = "return loadtest.charts[arguments[0]].plot.data"
PAINTED = "return loadtest.charts[arguments[0]].painted"


@pytest.fixture(scope="module")
def charts():
    return made_charts()


@pytest.fixture(scope="module")
def page(browser, charts):
    browser.open_charts(charts, BANDS)
    return browser


def columns(chart):
    return [
        values
        for one in chart["series"]
        for values in ([one["values"], one["low"]] if "low" in one else [one["values"]])
    ]


def test_lines_curves_and_bars_have_the_numbers_of_their_data(page, charts):
    for name in ("rates", "latency", "reduced", "lost", "curve"):
        assert page.run(PLOTTED, name) == [charts[name]["xs"], *columns(charts[name])]


def test_lines_are_drawn_in_the_colours_of_their_roles(page):
    seen = {
        "rates": ("blue", "orange"),
        "latency": ("green", "blue", "vermilion"),
        "curve": ("blue", "orange"),
        "lost": ("vermilion",),
    }
    for chart, colours in seen.items():
        for colour in colours:
            assert page.pixels(chart, colour, 80, 0, 1000, 400) > 100, (chart, colour)


def test_a_gap_in_the_data_is_a_gap_in_the_line(page, charts):
    assert charts["rates"]["series"][2]["values"][45] is None
    gap = "const {plot} = loadtest.charts.rates; return plot.series[3]._paths.gaps.length"
    assert page.run(gap) == 1


def test_a_heat_map_has_a_colour_where_it_has_a_count(page, charts):
    heat = charts["heat"]
    at = """const {plot} = loadtest.charts.heat, [x0, x1, y0, y1] = arguments;
        const [left, right] = [x0, x1].map((x) => plot.valToPos(x, "x", true)), [bottom, top] = [y0, y1].map((y) => plot.valToPos(y, "y", true));
        return [...window.copied('heat').getImageData((left + right) / 2, (top + bottom) / 2, 1, 1).data]"""
    fullest = max(heat["cells"], key=lambda cell: cell[2])
    x, y = heat["xs"][fullest[0]], fullest[1]
    red, green, blue, _ = page.run(at, x, x + 1, heat["ys"][y], heat["ys"][y + 1])
    assert (red, green, blue) == (253, 231, 55), "the fullest cell has the last colour"
    assert (
        page.run(at, 45, 46, 1e6, 1.1e6)[:3]
        != page.run(at, x, x + 1, heat["ys"][y], heat["ys"][y + 1])[:3]
    ), "nothing came in second 45"


def test_objectives_stand_at_their_bound_with_their_words(page, charts):
    for name in ("rates", "latency", "heat", "curve"):
        drawn = page.run(PAINTED, name)["bounds"]
        assert [one["label"] for one in drawn] == [one["label"] for one in charts[name]["bounds"]]
        for one in drawn:
            outcome = next(
                bound["outcome"]
                for bound in charts[name]["bounds"]
                if bound["label"] == one["label"]
            )
            colour = {"met": "green", "missed": "vermilion"}[outcome]
            assert page.pixels(name, colour, 80, one["y"] - 1, (one["x"] or 1000) - 80, 3) > 20, (
                one["label"]
            )


def test_an_objective_of_a_percentile_is_a_point_of_the_curve(page):
    place = """const {plot} = loadtest.charts.curve; return ["x", "y"].map((axis, i) => plot.valToPos(arguments[i], axis, true))"""
    bound = next(
        one for one in page.run(PAINTED, "curve")["bounds"] if one["label"].startswith("p99 ")
    )
    assert [bound["x"], bound["y"]] == pytest.approx(page.run(place, 100, 10_000_000), abs=1)


def test_bands_are_shaded_over_all_charts_of_time_and_named_once_in_the_legend(page):
    for name in ("rates", "latency", "reduced", "heat", "lost"):
        assert sorted(page.run(PAINTED, name)["bands"]) == sorted(KINDS)
        kinds = page.find(f"figure[data-chart={name}] .kinds").text.splitlines()
        assert kinds[:7] == [
            "stage",
            "generator stalled",
            "change",
            "window full",
            "outage",
            "lost",
            "topics moved",
        ]
        fills = """return [...document.querySelectorAll(`figure[data-chart=${arguments[0]}] .kinds path[class^=fill]`)]
            .map((path) => getComputedStyle(path).fill)"""
        assert len(page.run(fills, name)) == 3 and "rgb(0, 0, 0)" not in page.run(fills, name)
    assert page.run(PAINTED, "curve")["bands"] == []


def test_steps_of_a_search_are_marks(page, charts):
    assert page.run(PAINTED, "search")["marks"] == len(charts["search"]["marks"])
    assert page.run(PLOTTED, "search")[0] == sorted(mark["x"] for mark in charts["search"]["marks"])


def test_the_table_of_numbers_is_made_on_demand_and_has_them_all(page, charts):
    for name in ("latency", "reduced", "lost", "curve"):
        details = page.find(f"figure[data-chart={name}] .numbers")
        assert not details.find_elements("css selector", "table")
        page.run("arguments[0].open = true", details)
        page.until("return arguments[0].querySelector('table')", details)
        rows = page.run(
            "return [...arguments[0].querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.dataset.value))",
            details,
        )
        chart = charts[name]
        orders = [
            values
            for one in chart["series"]
            for values in ([one["low"], one["values"]] if "low" in one else [one["values"]])
        ]
        told = [[None if value == "" else float(value) for value in row] for row in rows]
        assert told == [list(row) for row in zip(chart["xs"], *orders, strict=True)]
        assert (
            details.find_element("css selector", "caption").get_attribute("textContent")
            == chart["title"]
        )


def test_each_chart_has_a_name_for_those_who_cannot_see_it(page, charts):
    names = page.run(
        "return [...document.querySelectorAll('figure .plot')].map((plot) => [plot.getAttribute('role'), plot.getAttribute('aria-label'), plot.tabIndex])"
    )
    assert names == [
        ["img", f"{chart['title']}. {chart['summary']}", 0] for chart in charts.values()
    ]


def test_charts_of_one_point_of_nothing_and_of_zeros_are_drawn(browser):
    seconds, count = (
        {"label": "time", "unit": "s", "scale": "linear"},
        {"label": "n", "unit": "count", "scale": "linear"},
    )
    nanoseconds = {"label": "t", "unit": "ns", "scale": "log"}
    odd = {
        "one": made_chart("lines", "One", seconds, count, xs=[0], series=[series("a", "a", [5])]),
        "none": made_chart("lines", "None", seconds, nanoseconds, xs=[0, 1], series=[series("a", "a", [float("nan")] * 2)]),
        "zeros": made_chart("lines", "Zeros", seconds, nanoseconds, xs=[0, 1, 2], series=[series("a", "a", [0, 0, 0])]),
        "bars": made_chart("bars", "Bars", count, count, run=None, xs=[1, 2, 3], series=[series("a", "a", [1, 2, 3]), series("b", "b", [3, 2, 1])]),
        "cell": made_chart("heat", "Cell", seconds, nanoseconds, xs=[0], step=10, ys=[1000, 2000], cells=[[0, 0, 1]]),
        "windows": made_chart("lines", "Windows", seconds, count, run="run-2", xs=[0, 10], series=[series("a", "a", [5, 6])], marks=[{"x": 10, "y": 6, "label": "missed", "outcome": "missed"}]),
        "mark": made_chart("lines", "Mark", count, count, run=None, marks=[{"x": 1, "y": None, "label": "1", "outcome": "no data"}]),
    }  # fmt: skip
    browser.open_charts(odd)
    assert browser.view("windows") == [0, 10]
    assert browser.run(PAINTED, "windows")["marks"] == 1


@pytest.mark.parametrize(
    ("unit", "values", "word"),
    [
        (
            "ns",
            [0, 1, 999, 1_000, 1_234_567, 99_950_000, 59e9, 119e9, 120e9, 7_199e9, 9_000e9],
            format_duration,
        ),
        ("msg/s", [0, 1, 0.5, 999, 9_999, 10_000, 123_456, 2_500_000, 1e9], format_rate),
        ("B", [0, 1023, 1024, 26_214_400, 2**41], format_size),
        ("count", [0, 12, 1_234, 9_999, 10_000, 7_654_321], format_count),
    ],
)
def test_numbers_are_worded_as_everywhere_else(page, unit, values, word):
    told = page.run(
        "return arguments[0].map((value) => worded(value, {unit: arguments[1]}).trim())",
        values,
        unit,
    )
    assert told == [word(value) for value in values]
