"""Words of broadcasts: one bit for each subscription, 64 subscriptions of one message to a word (decision 016). numpy only.

With thousands of subscriptions, words of 64 messages would be mostly empty, and the data of the
sent message would be repeated for each subscription. Here the words of a message are consecutive,
and its sent data is the lowest bit of its first word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message.broadcast import bits
from pytest_loadtest.metrics.own_delays import of_copies
from pytest_loadtest.pipeline.bitmaps import WORD_BITS, WORD_ENDS, Words, words
from pytest_loadtest.pipeline.kernel import MANY, latency_tables, own_part_tables
from pytest_loadtest.pipeline.tables import Groups, Table, count_bits, first_edges, take, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.time_slices import Boundaries
    from pytest_loadtest.pipeline.kernel import Rows

_ALL: Final = np.int64(-1)
_SUMS: Final = (
    "offered",
    "copies",
    "distinct",
    "received",
    "received_in_time",
    "lost",
    "late",
    "resent",
    "duplicates_of_resent",
    "acked",
)


def words_of(run: Expected) -> Words:
    """Return the kind of words for the run."""
    return BroadcastWords(run) if run.broadcasts else Words(run)


class BroadcastWords(Words):
    """Words of 64 subscriptions; messages are numbered over all streams, and each has ``width`` words."""

    def __init__(self, run: Expected) -> None:
        self.width = (run.subscriptions - 1 >> WORD_BITS) + 1
        lengths = run.end - run.first
        self._before = np.cumsum(lengths) - lengths
        self._planned = int(lengths.sum())
        super().__init__(run)

    def _all_words(self) -> int:
        return max(self._planned * self.width, super()._all_words())

    def by_subscription(self, deliveries: Rows) -> Table:
        """Return deliveries as named words of 64 messages of one subscription, as in other runs, with their bits in ``mask``.

        :param deliveries: int64 ``subscription``, ``stream``, ``seq``.
        """
        number = super()._number(deliveries) + deliveries["subscription"] * (
            self._words << WORD_BITS
        )
        return self.named(words(number, {}, ("n", "mask")))

    def _with_ends(self, table: Table, rows: Rows) -> Table:
        """Add the ``last`` arrival of each word, that without our own delays, the ``early`` value of the first, and the ``due`` time."""
        if not len(rows["seq"]):
            return table
        groups = Groups({"word": self._delivery(rows) >> WORD_BITS})
        # A word with second copies has several rows, each with the same ends.
        place = np.searchsorted(groups.keys["word"], table["word"])
        # A missing column is 0 and ends are merged by their maximum, so the first arrival is stored
        # as a value that grows with earliness.
        ends = {"last": rows["received"], "early": MANY - rows["received"], "due": rows["intended"]}
        ends["last_without_own"] = rows["received"] - of_copies(rows, self.run)
        return {**table} | {
            name: groups.maximum(column.astype(np.int64))[place] for name, column in ends.items()
        }

    def tables(self, table: Table, ranges: int) -> dict[str, Table]:
        """Return the tables of one slot, including ``histograms``, ``counts`` and ``spans`` of completion and spread."""
        messages = _Messages(self, table)
        tables = {
            "deliveries": messages.deliveries(),
            "buckets": messages.buckets(),
            "reached": messages.reached(),
        }
        tables["edges"] = messages.edges(ranges)
        tables["repeated"] = self.repeated(table)
        tables |= dict(messages.times(tables["repeated"]))
        return tables | (
            {} if self.run.slice_cut is None else {"pieces": messages.pieces(self.run.slice_cut)}
        )

    def place(self, message: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return stream and sequence of numbered messages."""
        stream = np.searchsorted(self._before, message, side="right") - 1
        return stream, message - self._before[stream] + self.run.first[stream]

    def _number(self, rows: Rows) -> NDArray[np.int64]:
        message = self._before[rows["stream"]] + rows["seq"] - self.run.first[rows["stream"]]
        number: NDArray[np.int64] = message * (self.width << WORD_BITS)
        return number

    def _delivery(self, rows: Rows) -> NDArray[np.int64]:
        number: NDArray[np.int64] = self._number(rows) + rows["subscription"]
        return number

    def _split(self) -> int:
        return 1  # a word has one message, which lies in one piece

    def _of_piece(self, number: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        return number

    def _for_all(self, once: Mapping[str, NDArray[np.int64]]) -> Table:
        return once

    def _columns(self) -> tuple[str, ...]:
        return (*super()._columns(), *WORD_ENDS)

    def slot_words(self, bits: int) -> int:
        """Return the number of words of a slot, which has whole messages."""
        return self.width * max(super().slot_words(bits) // self.width, 1)

    def completions(self, number: NDArray[np.int64], rows: Rows) -> Iterator[tuple[str, Table]]:
        """Yield the tables of completion and spread for messages with second copies.

        :param number: of each row's delivery, ascending.
        :param rows: the first copies of all deliveries of these messages.
        """
        starts = np.flatnonzero(np.diff(number // (self.width << WORD_BITS), prepend=-1))
        if not len(starts):
            return
        many = np.diff(starts, append=len(number))
        all_got = many == self.run.subscriptions
        earlier = rows["received"] - of_copies(rows, self.run)
        ends = {
            "first": np.minimum.reduceat(rows["received"], starts)[all_got],
            "last": np.maximum.reduceat(rows["received"], starts)[all_got],
            "last_without_own": np.maximum.reduceat(earlier, starts)[all_got],
            "due": rows["intended"][starts][all_got],
        }
        yield from _completions(ends, self.run)

    def _together(self, word: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return all words of the messages with one of these: completion is computed from all copies of a message together."""
        message = np.unique(word // self.width)
        return (message[:, None] * self.width + np.arange(self.width)).ravel()


def _completions(ends: Table, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of messages that all subscriptions received.

    :param ends: ``first`` and ``last``, arrivals of the earliest and the latest first copy;
        ``last_without_own``, the latest of all copies without the generator's own delays; ``due``,
        the intended time; all ns.
    """
    rows = {"second": run.seconds(ends["due"])}
    kinds = {"completion": ends["last"] - ends["due"], "spread": ends["last"] - ends["first"]}
    collected: dict[str, list[Table]] = {}
    earlier = ends["last"] - ends["last_without_own"]
    for name, table in (
        *latency_tables(kinds, rows, run),
        *(
            pair
            for kind, values in kinds.items()
            for pair in own_part_tables(kind, values, np.minimum(earlier, values), rows, run)
        ),
    ):
        collected.setdefault(name, []).append(table)
    for name, parts in collected.items():
        yield (
            name,
            {column: np.concatenate([part[column] for part in parts]) for column in parts[0]},
        )


class _Messages:
    """The messages of one slot, one row each, and ``(messages, width)`` masks of subscriptions.

    :param table: merged words.
    """

    def __init__(self, how: BroadcastWords, table: Table) -> None:
        self._how, run = how, how.run
        message, group = np.divmod(table["word"], how.width)
        self._low = int(message.min())
        self._n = int(message.max()) - self._low + 1
        place = (message - self._low, group)
        # Dense arrays: the words of a slot are of consecutive messages.
        self._got, punctual, in_time = (
            self._masks(table[name], place) for name in ("got", "punctual", "in_time")
        )
        sent = group == 0
        facts = {
            name: self._sent_bit(table[name], place[0], sent)
            for name in ("offered", "acked", "resent")
        }
        self._bucket = np.zeros(self._n, np.int64)
        for i, plane in enumerate(how.planes):
            self._bucket |= self._sent_bit(table[plane], place[0], sent).astype(np.int64) << i
        # The last word of a message has fewer than 64 subscriptions,
        # unless their number is a multiple of 64.
        valid = np.full(how.width, _ALL)
        if run.subscriptions & 63:
            valid[-1] = (1 << (run.subscriptions & 63)) - 1
        self._missing = np.where(facts["acked"][:, None], valid & ~self._got, 0)
        self._stream, self._seq = how.place(self._low + np.arange(self._n))
        received, copies = (
            count_bits(self._got).sum(axis=1),
            self._of_message(np.add, table["copies"], place[0]),
        )
        self._counts = {
            "offered": self._of_message(np.add, table["offered_rows"], place[0]), "copies": copies,
            "distinct": facts["offered"].astype(np.int64),
            "received": received, "received_in_time": count_bits(in_time).sum(axis=1),
            "lost": count_bits(self._missing).sum(axis=1), "late": count_bits(self._got & ~punctual).sum(axis=1),
            "resent": facts["resent"].astype(np.int64), "acked": facts["acked"].astype(np.int64),
            "duplicates_of_resent": np.where(facts["resent"], copies - received, 0),
        }  # fmt: skip
        self._early = {
            name: count_bits(self._masks(table[name], place)).sum(axis=1) for name in run.spans
        }
        self._ends = {
            name: self._of_message(np.maximum, table[name], place[0]) for name in WORD_ENDS
        }

    def _masks(
        self, column: NDArray[np.int64], place: tuple[NDArray[np.int64], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        masks = np.zeros((self._n, self._how.width), np.int64)
        masks[place] = column
        return masks

    def _of_message(
        self, how: np.ufunc, column: NDArray[np.int64], message: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Combine the words of each message."""
        combined = np.zeros(self._n, np.int64)
        how.at(combined, message, column)
        return combined

    def _sent_bit(
        self, column: NDArray[np.int64], message: NDArray[np.int64], sent: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return the lowest bit of each message's first word, which has the data of the sent message."""
        mask = np.zeros(self._n, np.bool_)
        mask[message[sent]] = column[sent] & 1 != 0
        return mask

    def deliveries(self) -> Table:
        """Count by stream, with the sums over all subscriptions in the row of the first."""
        groups = Groups({"stream": self._stream})
        return {
            "subscription": np.zeros(len(groups.n), np.int64), "stream": groups.keys["stream"],
            **{name: groups.sum(self._counts[name]) for name in _SUMS},
        }  # fmt: skip

    def reached(self) -> Table:
        """Return masks of the subscriptions that received a message, by topic and group of 64 subscriptions."""
        topic = self._how.run.stream_topics[self._stream]
        order = np.argsort(topic, kind="stable")
        starts = np.flatnonzero(np.diff(topic[order], prepend=-1))
        masks = np.bitwise_or.reduceat(self._got[order], starts, axis=0)
        width = self._how.width
        topics, groups = (
            np.repeat(topic[order][starts], width),
            np.tile(np.arange(width), len(starts)),
        )
        return take({"topic": topics, "group": groups, "mask": masks.ravel()}, masks.ravel() != 0)

    def buckets(self) -> Table:
        """Count by size bucket."""
        columns: dict[str, NDArray[np.int64]] = {"bucket": np.arange(len(self._how.run.buckets))}
        valid = self._bucket < len(self._how.run.buckets)
        for name in ("received", "received_in_time", "lost"):
            columns[name] = np.zeros(len(self._how.run.buckets), np.int64)
            np.add.at(columns[name], self._bucket[valid], self._counts[name][valid])
        return columns

    def pieces(self, cut: Boundaries) -> Table:
        """Count by the piece in which messages were intended."""
        # A message without copies has no due time here; it adds nothing to any piece.
        groups = Groups({"piece": cut.of(self._how.run.seconds(self._ends["due"]))})
        counts = {
            "received": self._counts["received"],
            **dict.fromkeys(("windows", "tenths"), np.zeros(self._n, np.int64)),
            **self._early,
        }
        return groups.keys | {name: groups.sum(column) for name, column in counts.items()}

    def times(self, repeated: Table) -> Iterator[tuple[str, Table]]:
        """Yield the tables of completion and spread of each message that every subscription received once.

        :param repeated: ranges of words that are left to :meth:`BroadcastWords.completions`,
            because ends here are of all copies.
        """
        once = self._counts["received"] == self._how.run.subscriptions
        once &= ~within((self._low + np.arange(self._n)) * self._how.width, repeated)
        ends = {name: column[once] for name, column in self._ends.items()}
        yield from _completions(ends | {"first": MANY - ends["early"]}, self._how.run)

    def edges(self, ranges: int) -> Table:
        """Return the edges of lost messages, see :func:`~pytest_loadtest.pipeline.tables.lost_edges`.

        It stops at the subscription with which there are enough ranges, so a run that lost
        everything does not list all of it.
        """
        # Empty edges with the columns of the others.
        edges = first_edges([self._edges_of(np.zeros(0, np.intp), 0)], ranges)
        topic = self._how.run.stream_topics[self._stream]
        lost = self._missing.any(axis=1)
        for number in np.unique(topic[lost]).tolist():
            messages = np.flatnonzero(lost & (topic == number))
            for group in np.flatnonzero(self._missing[messages].any(axis=0)).tolist():
                edges = first_edges([edges, self._edges_of(messages, group)], ranges)
                if len(edges["word"]) >= 2 * ranges:
                    return edges
        return edges

    def _edges_of(self, messages: NDArray[np.intp], group: int) -> Table:
        """Return the edges of 64 subscriptions."""
        row, bit = bits(self._missing[messages, group])
        message = messages[row]
        deliveries = {
            "subscription": (group << WORD_BITS) + bit,
            "stream": self._stream[message],
            "seq": self._seq[message],
        }
        table = self._how.by_subscription(deliveries)
        mask = table["mask"]
        return {
            "topic": self._how.run.stream_topics[table["stream"]], **{name: table[name] for name in ("subscription", "stream", "word")},
            "first": mask & ~(mask << 1), "last": mask & ~(mask >> 1 & MANY),
        }  # fmt: skip
