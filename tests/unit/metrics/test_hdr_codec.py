"""HdrHistogram's encoding: the library's own bytes, and its errors."""

from __future__ import annotations

import base64
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.hdr_codec import (
    MAX_DIGITS,
    decode_hdr,
    encode_hdr,
    significant_bits,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

digits = st.integers(1, MAX_DIGITS)
# The largest value that the library can hold is below 2**62.
recorded = st.dictionaries(
    st.one_of(st.integers(0, 5000), st.integers(0, 2**61)),
    st.one_of(st.integers(1, 200), st.integers(1, 2**56)),
    max_size=40,
)


def library(values: Mapping[int, int], digits: int, lowest: int = 1) -> HdrHistogram:
    """Return the library's histogram. :param values: value → count."""
    highest = 2 * max([*values, lowest])
    made = HdrHistogram(lowest, highest, digits)
    for value, count in values.items():
        assert made.record_value(value, count)
    return made


def counts_of(histogram: HdrHistogram) -> dict[int, int]:
    """Return the counts by bucket, ascending."""
    counts = np.frombuffer(histogram.counts, np.uint64)
    index = np.flatnonzero(counts)
    return dict(zip(index.tolist(), counts[index].tolist(), strict=True))


@given(recorded, digits)
def test_the_encoding_is_the_library_s_byte_for_byte(values: dict[int, int], digits: int) -> None:
    made = library(values, digits)
    encoded = encode_hdr(counts_of(made), digits, max(values, default=1))
    assert encoded == made.encode().decode("ascii")


@given(recorded, digits, st.integers(0, 20))
def test_the_library_s_histograms_are_decoded(
    values: dict[int, int], digits: int, unit_bits: int
) -> None:
    """Its smallest bucket may be wider than 1."""
    values = {min(value, 2**40): count for value, count in values.items()}
    made = library(values, digits, 1 << unit_bits)
    decoded = decode_hdr(made.encode().decode("ascii"))
    assert dict(decoded.counts) == counts_of(made)
    for bucket in decoded.counts:
        low = made.get_value_from_index(bucket)
        width = made.get_highest_equivalent_value(low) + 1 - low
        assert decoded.bounds(bucket) == (low, width)


@given(st.dictionaries(st.integers(0, 54_000), st.integers(1, 2**63 - 1), max_size=20))
def test_every_count_is_read_as_it_was_written(counts: dict[int, int]) -> None:
    """Counts above 2**56 have nine bytes."""
    text = encode_hdr(counts, 3, 2**62)
    assert decode_hdr(text).counts == dict(sorted(counts.items()))


@pytest.mark.parametrize(("count", "bits"), [(1, 4), (2, 7), (3, 10), (4, 14), (5, 17)])
def test_digits_have_the_library_s_bits(count: int, bits: int) -> None:
    assert significant_bits(count) == bits
    assert HdrHistogram(1, 100, count).sub_bucket_half_count == 1 << bits


def changed(text: str, at: int, *replaced: int) -> str:
    """Return the histogram with other bytes in its inner part."""
    data = base64.b64decode(text)
    inner = bytearray(zlib.decompress(data[8:]))
    inner[at : at + len(replaced)] = replaced
    compressed = zlib.compress(bytes(inner))
    return outer(compressed)


def outer(compressed: bytes) -> str:
    return base64.b64encode(
        b"\x1c\x84\x93\x14" + len(compressed).to_bytes(4, "big") + compressed
    ).decode("ascii")


GOOD = encode_hdr({0: 1, 70: 3}, 3, 1000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "8 bytes"),
        ("HISTF", "base64"),
        ("é", "ASCII"),
        ("HISTFAAAnonsense", "incorrect header check"),
        (outer(zlib.compress(b"short")), "40 bytes"),
        (outer(zlib.compress(b"short" * 50)[:-5]), "incomplete or truncated"),
        (
            base64.b64encode(base64.b64decode(GOOD).replace(b"\x14", b"\x15", 1)).decode(),
            "1c849315",
        ),
        (changed(GOOD, 3, 0x11), "1c849311"),
        (changed(GOOD, 8, 0, 0, 0, 7), "offset 7"),
        (changed(GOOD, 12, 0, 0, 0, 6), "6 digits"),
        (changed(GOOD, 16, *bytes(8)), "lowest value 0"),
        (changed(GOOD, 40, *[0xFF] * 8), "ends within a number"),
    ],
)
def test_a_damaged_histogram_is_an_error(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode_hdr(text)


def test_the_plugin_does_not_import_the_library() -> None:
    """It needs a C compiler on aarch64, and warns on Python 3.14."""
    code = (
        "import sys; sys.modules['hdrh'] = None;"
        "import pytest_loadtest.report.hdr, pytest_loadtest.profile.sizes"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
