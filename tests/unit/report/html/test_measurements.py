"""The chapters on latencies, messages and parts of a run."""

from __future__ import annotations

from builders.documents import changed, document
from builders.measurements import OTHERS_SEND, spread
from builders.results import run, shown

from pytest_loadtest.metrics.expected import Opening

LOOSE = {"endToEndLatency": {"p99": "1s"}}


CONNECTED = Opening(
    alone=True,
    connections=500,
    rate=None,
    took=2_000_000_000,
    busiest="gw0",
    cpu=0.5,
    begun_late=None,
    in_time=None,
)


def test_missing_measurements_are_named() -> None:
    """They are neither zero nor an empty chart."""
    found = shown(
        run(
            document(
                publish=None,
                end_to_end=None,
                counts={"received": 0, "received_in_time": 0, "out_of_order": None},
            )
        )
    )
    rows = {row[0]: row for row in found.rows}
    assert set(rows["publish"][1:]) == {"not measured"}
    assert rows["out of order"][1] == "not applicable"
    assert rows["delivered"][1] == "none"
    assert [line["label"] for line in found.charts["curve"]["series"]] == [
        "send delay",
        "own send delay",
    ]


def test_received_messages_are_not_applicable_without_subscriptions() -> None:
    found = shown(
        run(
            document(
                LOOSE,
                subscriptions=0,
                end_to_end=None,
                counts={"received": 0, "received_in_time": 0},
            )
        )
    )
    rows = {row[0]: row for row in found.rows}
    assert (rows["received"][1], rows["lost"][1], rows["delivered"][1]) == (
        "not applicable",
        "not applicable",
        "nowhere (nothing subscribes)",
    )
    assert "received" not in [line["label"] for line in found.charts["rates"]["series"]]


def test_a_run_that_only_receives_shows_no_count_that_nobody_made() -> None:
    found = shown(run(document(LOOSE, rate=0.0, end_to_end=None, counts=OTHERS_SEND)))
    rows = {row[0]: row for row in found.rows}
    assert rows["received"][1] == "100 000"
    for label in ("due", "lost", "duplicates", "foreign", "corrupt", "corrupt heads"):
        assert rows[label][1] == "not applicable"
    assert "received of what others send" in found.reads
    assert "lost 0" not in found.reads


def test_a_run_with_connections_only_has_no_rates_and_messages() -> None:
    found = shown(
        run(
            document(
                {},
                opening=CONNECTED,
                connect=spread(1, 9),
                subscribe=spread(1, 9),
                publish=None,
                end_to_end=None,
            )
        )
    )
    assert set(found.charts) == {"opening"}
    assert "messages: not applicable: the run had connections and no messages" in found.reads
    assert "500, as fast as possible" in found.reads


def test_lost_and_duplicate_messages_are_shown_by_their_second() -> None:
    """The second is that of the intended time. If it is unknown, the page states it."""
    made = document(counts={"lost": 20, "duplicates": 3})
    assert "when messages were lost or duplicated: not measured" in shown(run(made)).reads
    made = changed(made, "measurements/series/missing", [0, 12, 8, 0, -3, 0, 0, 0, 0, 0])
    found = shown(run(made))
    assert {line["role"]: line["values"] for line in found.charts["lost"]["series"]} == {
        "lost": [0, 12, 8, 0, 0, 0, 0, 0, 0, 0], "duplicates": [0, 0, 0, 0, 3, 0, 0, 0, 0, 0],
    }  # fmt: skip
    assert "missing 20 in 2 seconds; too many 3 in 1 second." in found.reads
    assert ["3", "0", "0", "100", "119"] in found.rows
    assert [band["kind"] for band in found.data["bands"]["run-1"]] == ["lost"]
