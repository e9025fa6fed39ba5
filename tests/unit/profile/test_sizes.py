"""Size distributions from files and metrics."""

from __future__ import annotations

import json
import threading
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.payloads import MAX_BUCKETS, Bucket, build_pool, parse_range
from pytest_loadtest.message.sizing import Range
from pytest_loadtest.metrics import histogram
from pytest_loadtest.profile import sizes
from pytest_loadtest.profile.sizes import read_sizes
from pytest_loadtest.report.hdr import encode_histogram

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read(folder: Path, name: str, text: str) -> dict[str, int]:
    (folder / name).write_text(text, encoding="utf-8")
    return read_sizes(name, folder)


def refused(folder: Path, name: str, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, name, text)
    return str(caught.value)


def mean_of(distribution: dict[str, int]) -> float:
    """The mean size that is sent: of each range its middle."""
    middles = {key: sum(parse_range(key)) // 2 for key in distribution}
    return sum(middles[key] * weight for key, weight in distribution.items()) / sum(
        distribution.values()
    )


# --- CSV


@pytest.mark.parametrize(
    "text",
    [
        "size,count\n100,3\n4000,1\n",
        "100,3\n4000,1\n",
        "﻿Size;Weight\n4000;1\n100;3\n",
        "# exported\ntopic\tsize\tcount\nx\t100\t2\ny\t100\t1\n\nz\t4000\t1\n",
        "low,high,weight\n100,101,0.75\n4000,4001,0.25\n",
        "100B,101,75\n4000,4001,25\n500,600,0\n",
    ],
)
def test_a_csv_file_has_sizes_or_ranges(text: str, tmp_path: Path) -> None:
    """With or without names, in any order, with other columns; equal sizes add up."""
    found = read(tmp_path, "sizes.csv", text)
    assert list(found) == ["100-101", "4000-4001"]
    assert found["100-101"] == 3 * found["4000-4001"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,count\n100,3\n12q,1\n", "sizes.csv:3: '12q' is not a size: write bytes"),
        ("100,3\n200,many\n", "sizes.csv:2: 'many' is not a weight: write a number"),
        ("100,-3\n", "sizes.csv:1: -3 is not a weight: write 0 or more"),
        (
            "bytes,number\n100,3\n",
            "sizes.csv:1: columns bytes, number: write size,count or low,high,weight",
        ),
        ("size,count\n100\n", "sizes.csv:2: columns size: write size,count"),
        ("1,2,3,4\n", "sizes.csv:1: 4 columns without names"),
        ("100,50,1\n", "sizes.csv:1: 100-50 is empty: write a larger high end"),
        ("0,100,1\n50,200,1\n", "sizes.csv:2: 50-200 overlaps 0-100 "),
        ("size,count\n", "sizes.csv: has no size with a weight above 0"),
        ("", "sizes.csv: has no size with a weight above 0"),
    ],
)
def test_a_wrong_csv_file_is_an_error_with_its_line(
    text: str, message: str, tmp_path: Path
) -> None:
    """With value and what to write."""
    assert message in refused(tmp_path, "sizes.csv", text)


# --- JSON


@pytest.mark.parametrize(
    "value",
    [
        {"0-256": 234, "256-1KB": 456},
        [{"low": 0, "high": 256, "weight": 234}, {"low": 256, "high": "1KB", "weight": 456}],
        [{"low": 256, "high": 1024, "count": 4.56}, {"low": 0, "high": 256, "count": 2.34}],
    ],
)
def test_a_json_file_has_ranges_or_entries(value: object, tmp_path: Path) -> None:
    found = read(tmp_path, "sizes.json", json.dumps(value))
    assert list(found) == ["0-256", "256-1024"]
    assert Fraction(*found.values()) == Fraction(234, 456)


def test_a_single_size_is_a_range_of_one_byte(tmp_path: Path) -> None:
    assert read(
        tmp_path, "sizes.json", '[{"size": 128, "count": 7}, {"size": 100, "count": 1}]'
    ) == {"100-101": 1, "128-129": 7}
    assert read(tmp_path, "sizes.json", '{"128": 7}') == {"128-129": 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"0-256": 1,\n"1KB-2KB"}', "sizes.json:2: not valid JSON"),
        ('{"0-2x": 1}', "sizes.json: '0-2x': '2x' is not a size"),
        ('{"0-256": true}', "sizes.json: '0-256': True is not a weight: write a number"),
        ('[{"size": 1}]', "sizes.json: entry 1: columns size: write size,count"),
        ("[1, 2]", 'sizes.json: write {"0-256": 234}, or a list'),
        ("7", 'sizes.json: write {"0-256": 234}, or a list'),
        ('{"0-256": NaN}', "sizes.json: '0-256': nan is not a weight: write a number"),
    ],
)
def test_a_wrong_json_file_is_an_error_with_its_entry(
    text: str, message: str, tmp_path: Path
) -> None:
    """With value and what to write."""
    assert message in refused(tmp_path, "sizes.json", text)


# --- HdrHistogram log


def hlog(*payloads: str, tags: tuple[str, ...] = ()) -> str:
    lines = [
        "#[Histogram log format version 1.3]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    prefixes = [f"Tag={tag}," for tag in tags] or [""] * len(payloads)
    return (
        "\n".join(
            [
                *lines,
                *(
                    f"{tag}0.000,1.000,1.000,{payload}"
                    for tag, payload in zip(prefixes, payloads, strict=True)
                ),
            ]
        )
        + "\n"
    )


def test_the_intervals_of_an_hdr_log_add_up(tmp_path: Path) -> None:
    """Values have three digits."""
    first = histogram.histogram(np.array([100] * 3 + [70_000] * 2))
    second = histogram.histogram(np.array([100]))
    assert first
    assert second
    found = read(tmp_path, "sizes.hlog", hlog(encode_histogram(first), encode_histogram(second)))
    (small, large) = map(parse_range, found)
    assert (small, list(found.values())) == ((100, 101), [4, 2])
    assert large[0] == pytest.approx(70_000, rel=1e-3)


def test_an_hdr_log_may_have_any_precision(tmp_path: Path) -> None:
    coarse = HdrHistogram(1, 1 << 24, 1)
    for size in (20, 5_000_000):
        coarse.record_value(size, 10)
    found = read(tmp_path, "sizes.hlog", hlog(coarse.encode().decode("ascii")))
    assert [parse_range(key)[0] for key in found] == pytest.approx([20, 5_000_000], rel=0.05)
    assert set(found.values()) == {10}


def test_a_wrong_hdr_log_is_an_error_with_its_line(tmp_path: Path) -> None:
    """Histograms of several tags are not added up."""
    assert "sizes.hlog:3: 'HISTFAAAnonsense' is not an HDR histogram" in refused(
        tmp_path, "sizes.hlog", hlog("HISTFAAAnonsense")
    )
    one = histogram.histogram(np.array([100]))
    assert one
    message = refused(
        tmp_path,
        "sizes.hlog",
        hlog(encode_histogram(one), encode_histogram(one), tags=("publish", "end-to-end")),
    )
    assert "histograms of several tags (end-to-end, publish)" in message


# --- files


def test_an_unreadable_source_of_sizes_is_an_error(tmp_path: Path) -> None:
    """A missing file, another suffix, bytes that are not text."""
    with pytest.raises(
        UsageError, match=r"sizes, relative to the profile, .*gone.csv cannot be read: No such file"
    ):
        read_sizes("gone.csv", tmp_path)
    with pytest.raises(
        UsageError,
        match=r"'sizes.xlsx' is not a source of sizes: write a .csv, .json or .hlog file, or http",
    ):
        read_sizes("sizes.xlsx", tmp_path)
    (tmp_path / "sizes.csv").write_bytes(b"size,count\n\xff,1\n")
    with pytest.raises(UsageError, match="byte 0xff at 11 is not UTF-8"):
        read_sizes("sizes.csv", tmp_path)


# --- metrics

METRICS = """\
# HELP message_size_bytes Sizes.
# TYPE message_size_bytes histogram
message_size_bytes_bucket{topic="a",le="128"} 10
message_size_bytes_bucket{topic="a",le="1024.0"} 30 1700000000000
message_size_bytes_bucket{topic="a",le="+Inf"} 31
message_size_bytes_sum{topic="a"} 12345
message_size_bytes_count{topic="a"} 31
message_size_bytes_bucket{topic="b \\"}\\" ",le="128"} 0
message_size_bytes_bucket{topic="b \\"}\\" ",le="1024.0"} 5
message_size_bytes_bucket{topic="b \\"}\\" ",le="+Inf"} 5
latency_seconds_bucket{le="0.5"} 1
latency_seconds_bucket{le="10"} 2
latency_seconds_bucket{le="+Inf"} 2
falling_bucket{le="128"} 3
falling_bucket{le="1e3"} 2
odd_bucket{le="128"} NaN
odder_bucket{le="much"} 1
mixed_bucket{topic="a",le="128"} 3
mixed_bucket{topic="b",le="256"} 3
idle_bucket{le="128"} 0
idle_bucket{le="+Inf"} 0
fractions_bucket{le="0.5"} 1
fractions_bucket{le="0.9"} 2
fractions_bucket{le="99.5"} 3
fractions_bucket{le="+Inf"} 4
"""


OPEN_METRICS = """\
# TYPE message_size_bytes histogram
# UNIT message_size_bytes bytes
message_size_bytes_bucket{topic="a",le="128.0"} 10
message_size_bytes_bucket{topic="a",le="1024.0"} 30
message_size_bytes_bucket{topic="a",le="+Inf"} 31 # {trace_id="x"} 5000 1700000000.1
message_size_bytes_sum{topic="a"} 12345
message_size_bytes_count{topic="a"} 31
# EOF
"""
PAGES = {
    "/metrics": ("text/plain; version=0.0.4", METRICS),
    "/open": ("application/openmetrics-text; version=1.0.0; charset=utf-8", OPEN_METRICS),
    "/cut": (
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        OPEN_METRICS.removesuffix("# EOF\n"),
    ),
    "/page": ("text/html", "<!doctype html><title>Not metrics</title>"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Serves the texts above, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, text = PAGES.get(self.path, ("text/plain", ""))
            self.send_response(200 if text else 404)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("message_size_bytes", {"0-129": 10, "129-1025": 25, "1025-2048": 1}),
        ('message_size_bytes{topic="a"}', {"0-129": 10, "129-1025": 20, "1025-2048": 1}),
        ('message_size_bytes_bucket{topic="b \\"}\\" "}', {"129-1025": 5}),
        ("message_size_bytes%7Btopic=%22a%22%7D", {"0-129": 10, "129-1025": 20, "1025-2048": 1}),
        ("fractions", {"0-100": 3, "100-198": 1}),
    ],
)
def test_the_counts_of_a_metric_become_ranges(
    fragment: str, expected: dict[str, int], server: str, tmp_path: Path
) -> None:
    """Series add up, labels select; the last range is as long as all others together."""
    assert read_sizes(f"{server}/metrics#{fragment}", tmp_path) == expected


def test_openmetrics_with_exemplars_and_units_are_read(server: str, tmp_path: Path) -> None:
    """The older format has neither."""
    assert read_sizes(f"{server}/open#message_size_bytes", tmp_path) == {
        "0-129": 10,
        "129-1025": 20,
        "1025-2048": 1,
    }


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("/metrics", "write the metric after the address"),
        ("/metrics#a b", "write the metric after the address"),
        ("/metrics#x{le}", "write the metric after the address"),
        ("/other#x", "404 Not Found; is the path right?"),
        (
            "/metrics#message_sizes_bytes",
            "there is no histogram 'message_sizes_bytes' (did you mean message_size_bytes?)",
        ),
        (
            '/metrics#message_size_bytes{topic="c"}',
            "there is no histogram 'message_size_bytes' with topic=\"c\"",
        ),
        (
            "/metrics#latency_seconds",
            "its last bound is 10: this is not a histogram of message sizes in bytes",
        ),
        (
            "/metrics#falling",
            'le="1000" counts 2, the bound below 3: the counts are not cumulative',
        ),
        ("/metrics#odd", "nan is not a number"),
        ("/metrics#odder", "'much' is not a number"),
        (
            "/cut#message_size_bytes",
            "the answer is not in OpenMetrics: Missing # EOF at end; is the path right?",
        ),
        ("/page#x", "the answer is not in the Prometheus text format: "),
        (
            "/metrics#mixed",
            "the 2 series of 'mixed' have different bounds: choose one by its labels",
        ),
        ("/metrics#idle", "no size with a weight above 0"),
    ],
)
def test_a_wrong_metric_is_an_error_with_its_address(
    reference: str, message: str, server: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        read_sizes(server + reference, tmp_path)
    assert message in str(caught.value)
    assert server in str(caught.value)


def test_an_address_without_server_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"GET http://127.0.0.1:1/metrics: .*is the address right and the server up",
    ):
        read_sizes("http://127.0.0.1:1/metrics#x", tmp_path)


# --- ranges


@given(
    counts=st.dictionaries(
        st.integers(16, 5_000_000), st.integers(1, 10**6), min_size=1, max_size=600
    )
)
def test_many_sizes_become_at_most_256_ranges(counts: dict[int, int]) -> None:
    """Ascending, without overlap, with every size in one and the same total."""
    found = sizes.distribution(
        [Range(size, size + 1, Fraction(counts[size])) for size in sorted(counts)]
    )
    ends = [end for key in found for end in parse_range(key)]
    assert len(found) <= MAX_BUCKETS
    assert ends == sorted(ends)
    assert sum(found.values()) == sum(counts.values())
    for key, weight in found.items():
        low, high = parse_range(key)
        assert weight == sum(count for size, count in counts.items() if low <= size < high)
    if len(counts) <= MAX_BUCKETS:
        assert len(found) == len(counts)


def test_joining_sizes_keeps_the_mean() -> None:
    """20 000 sizes as 256 ranges change it by less than 1 %: the few large messages keep their sizes."""
    drawn = np.random.default_rng(1).lognormal(7, 2, 50_000).astype(np.int64) + 16
    values, counts = np.unique(drawn, return_counts=True)
    found = sizes.distribution(
        [Range(int(v), int(v) + 1, Fraction(int(c))) for v, c in zip(values, counts, strict=True)]
    )
    assert MAX_BUCKETS // 2 < len(found) <= MAX_BUCKETS
    assert mean_of(found) == pytest.approx(drawn.mean(), rel=0.01)


@pytest.mark.parametrize(
    ("csv", "expected"),
    [
        ("3,1\n7,2\n", {"3-17": 3}),
        ("3,1\n16,2\n17,4\n", {"3-17": 3, "17-18": 4}),
        ("0,8,1\n8,32,1\n32,64,1\n", {"0-32": 2, "32-64": 1}),
        ("0,16,1\n32,64,1\n", {"0-17": 1, "32-64": 1}),
        ("0,20,1\n", {"0-20": 1}),
    ],
)
def test_sizes_too_small_to_send_are_joined_with_the_next(
    csv: str, expected: dict[str, int], tmp_path: Path
) -> None:
    found = read(tmp_path, "sizes.csv", csv)
    assert found == expected
    ranges = [(key, *parse_range(key), weight) for key, weight in found.items()]
    buckets = [
        Bucket(name=name, low=low, high=high, weight=weight) for name, low, high, weight in ranges
    ]
    build_pool(
        buckets=buckets,
        message_size=None,
        randomized=False,
        random_ratio=0,
        file_content=None,
        seed=0,
        checksum=False,
        max_size=None,
    )


@given(
    weights=st.lists(
        st.fractions(min_value=Fraction(1, 10**12), max_value=10**6), min_size=1, max_size=50
    )
)
def test_weights_become_integers_in_proportion(weights: list[Fraction]) -> None:
    """To a billionth of the total if they cannot be exact; each is at least 1."""
    found, total = sizes.integer_weights(weights), sum(weights)
    assert min(found) >= 1
    for weight, given_weight in zip(found, weights, strict=True):
        assert weight / sum(found) == pytest.approx(float(given_weight / total), abs=1e-7)


def test_shares_of_two_digits_stay_exact() -> None:
    assert sizes.integer_weights([Fraction("0.25"), Fraction("0.5"), Fraction("99.25")]) == [
        1,
        2,
        397,
    ]
