"""Positions are CRC-32, names can be made for any of them, and every position is in exactly one bundle."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.pulsar.bundle_split import LAST, Bundle, Ring, position, suffix

POSITIONS = st.integers(0, LAST)
RINGS = st.sets(st.integers(1, LAST - 1), max_size=20).map(lambda inner: Ring((0, *sorted(inner), LAST)))


def test_a_position_is_the_crc_of_the_full_name() -> None:
    """The check value of CRC-32: that of the digits 1 to 9."""
    assert position("123456789") == 0xCBF43926
    assert position("persistent://öffentlich/ns/t") == zlib.crc32("persistent://öffentlich/ns/t".encode())


@given(prefix=st.text(max_size=60), wanted=POSITIONS)
def test_a_name_for_every_position(prefix: str, wanted: int) -> None:
    """Twelve octal digits behind any prefix, always the same."""
    found = suffix(prefix, wanted)
    assert position(prefix + found) == wanted
    assert len(found) == 12 and set(found) <= set("01234567")
    assert suffix(prefix, wanted) == found


@pytest.mark.parametrize("wanted", [-1, LAST + 1])
def test_no_name_for_what_is_no_position(wanted: int) -> None:
    """Below 0, or of 33 bits."""
    with pytest.raises(ValueError, match=rf"{wanted} is no position: 0 to 4294967295"):
        suffix("t", wanted)


@given(ring=RINGS, where=POSITIONS)
def test_a_position_is_in_one_bundle(ring: Ring, where: int) -> None:
    """That which the ring names."""
    assert [bundle for bundle in ring.bundles if where in bundle] == [ring.bundle(where)]


def test_a_boundary_belongs_to_the_upper_bundle() -> None:
    """And the last position to the last one."""
    ring = Ring((0, 0x40, LAST))
    assert ring.bundle(0x3F) == Bundle(0, 0x40)
    assert ring.bundle(0x40) == ring.bundle(LAST) == Bundle(0x40, LAST)
    assert "0x40" not in ring.bundle(0x40)


@given(ring=RINGS, at=st.lists(st.integers(1, LAST - 1), max_size=5))
def test_a_cut_adds_boundaries(ring: Ring, at: list[int]) -> None:
    """Those that are there already change nothing."""
    cut = ring.cut(at)
    assert set(cut.boundaries) == set(ring.boundaries) | set(at)
    assert cut.cut(at) == cut
    assert sorted(cut.boundaries) == list(cut.boundaries)


def test_a_bundle_is_written_as_the_rest_has_it() -> None:
    """Eight digits of each end."""
    assert str(Bundle(0x6A, LAST)) == "0x0000006a_0xffffffff"
