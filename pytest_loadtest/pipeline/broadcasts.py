"""Words of broadcasts: one bit a subscription, 64 subscriptions of one message to a word. numpy only.

With thousands of subscriptions, words of 64 messages would be mostly empty, and what was sent would be said once for each subscription.
Here a message's words follow each other, and what was sent of it is said once, as the lowest bit of its first word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message.broadcast import bits
from pytest_loadtest.pipeline.bitmaps import WORD_BITS, WORD_ENDS, Words, words
from pytest_loadtest.pipeline.kernel import MANY, latency_tables
from pytest_loadtest.pipeline.tables import Groups, Table, count_bits, first_edges, take, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.time_slices import Boundaries
    from pytest_loadtest.pipeline.kernel import Rows

_ALL: Final = np.int64(-1)
_SUMS: Final = ("offered", "copies", "distinct", "received", "received_in_time", "lost", "late", "resent", "duplicates_of_resent", "acked")


def words_of(run: Expected) -> Words:
    """The words that suit the run."""
    return BroadcastWords(run) if run.broadcasts else Words(run)


class BroadcastWords(Words):
    """Messages are numbered over all streams; each has ``width`` words."""

    def __init__(self, run: Expected) -> None:
        self.width = (run.subscriptions - 1 >> WORD_BITS) + 1
        lengths = run.end - run.first
        self._before = np.cumsum(lengths) - lengths
        self._planned = int(lengths.sum())
        super().__init__(run)

    def _all_words(self) -> int:
        return max(self._planned * self.width, super()._all_words())

    def by_subscription(self, deliveries: Rows) -> Table:
        """Deliveries as named words of 64 messages of one subscription, as runs without broadcasts have them; their bits are ``mask``.

        :param deliveries: int64 ``subscription``, ``stream``, ``seq``.
        """
        number = super()._number(deliveries) + deliveries["subscription"] * (self._words << WORD_BITS)
        return self.named(words(number, {}, ("n", "mask")))

    def _with_ends(self, table: Table, rows: Rows) -> Table:
        """Of each word the ``last`` arrival, how ``early`` the first was, and when it was ``due``."""
        if not len(rows["seq"]):
            return table
        groups = Groups({"word": self._delivery(rows) >> WORD_BITS})
        place = np.searchsorted(groups.keys["word"], table["word"])  # a word with second copies has several rows
        ends = {"last": rows["received"], "early": MANY - rows["received"], "due": rows["intended"]}  # 0 is what a table does not have
        return {**table} | {name: groups.maximum(column.astype(np.int64))[place] for name, column in ends.items()}

    def tables(self, table: Table, ranges: int) -> dict[str, Table]:
        """Besides, ``histograms``, ``counts`` and ``spans`` of how long messages took to reach all."""
        found = _Messages(self, table)
        tables = {"deliveries": found.deliveries(), "buckets": found.buckets(), "reached": found.reached(), "edges": found.edges(ranges)}
        tables["repeated"] = self.repeated(table)
        tables |= dict(found.times(tables["repeated"]))
        return tables | ({} if self.run.slice_cut is None else {"pieces": found.pieces(self.run.slice_cut)})

    def place(self, message: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Stream and sequence of numbered messages."""
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
        return 1  # a word is of one message

    def _of_piece(self, number: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        return number

    def _for_all(self, once: Mapping[str, NDArray[np.int64]]) -> Table:
        return once

    def _columns(self) -> tuple[str, ...]:
        return (*super()._columns(), *WORD_ENDS)

    def slot_words(self, bits: int) -> int:
        """See :class:`~pytest_loadtest.pipeline.bitmaps.Words`; whole messages."""
        return self.width * max(super().slot_words(bits) // self.width, 1)

    def completions(self, number: NDArray[np.int64], rows: Rows) -> Iterator[tuple[str, Table]]:
        """How long messages took to reach all of which some subscription got several copies.

        :param number: of each row's delivery, ascending. :param rows: the first copies of all deliveries of some messages.
        """
        starts = np.flatnonzero(np.diff(number // (self.width << WORD_BITS), prepend=-1))
        if not len(starts):
            return
        many = np.diff(starts, append=len(number))
        all_got = many == self.run.subscriptions
        first, last = (how.reduceat(rows["received"], starts)[all_got] for how in (np.minimum, np.maximum))
        yield from _completions(first, last, rows["intended"][starts][all_got], self.run)

    def _together(self, word: NDArray[np.int64]) -> NDArray[np.int64]:
        """All words of the messages that have one of these, because how long a message took is told of all its copies together."""
        message = np.unique(word // self.width)
        return (message[:, None] * self.width + np.arange(self.width)).ravel()


def _completions(first: NDArray[np.int64], last: NDArray[np.int64], due: NDArray[np.int64], run: Expected) -> Iterator[tuple[str, Table]]:
    """The tables of messages that all subscriptions got. :param first: copy. :param last: copy. :param due: the intended time, all ns."""
    found: dict[str, list[Table]] = {}
    for name, table in latency_tables({"completion": last - due, "spread": last - first}, {"intended": due}, run):
        found.setdefault(name, []).append(table)
    for name, parts in found.items():
        yield name, {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}


class _Messages:
    """The messages of one slot, one row each, and ``(messages, width)`` masks of what subscriptions got. :param table: merged."""

    def __init__(self, how: BroadcastWords, table: Table) -> None:
        self._how, run = how, how.run
        message, group = np.divmod(table["word"], how.width)
        self._low = int(message.min())
        self._n = int(message.max()) - self._low + 1
        place = (message - self._low, group)
        self._got, punctual, in_time = (self._masks(table[name], place) for name in ("got", "punctual", "in_time"))
        sent = group == 0
        facts = {name: self._said(table[name], place[0], sent) for name in ("offered", "acked", "resent")}
        self._bucket = np.zeros(self._n, np.int64)
        for i, plane in enumerate(how.planes):
            self._bucket |= self._said(table[plane], place[0], sent).astype(np.int64) << i
        valid = np.full(how.width, _ALL)
        if run.subscriptions & 63:
            valid[-1] = (1 << (run.subscriptions & 63)) - 1
        self._missing = np.where(facts["acked"][:, None], valid & ~self._got, 0)
        self._stream, self._seq = how.place(self._low + np.arange(self._n))
        received, copies = count_bits(self._got).sum(axis=1), self._of_message(np.add, table["copies"], place[0])
        self._counts = {
            "offered": self._of_message(np.add, table["offered_rows"], place[0]), "copies": copies,
            "distinct": facts["offered"].astype(np.int64),
            "received": received, "received_in_time": count_bits(in_time).sum(axis=1),
            "lost": count_bits(self._missing).sum(axis=1), "late": count_bits(self._got & ~punctual).sum(axis=1),
            "resent": facts["resent"].astype(np.int64), "acked": facts["acked"].astype(np.int64),
            "duplicates_of_resent": np.where(facts["resent"], copies - received, 0),
        }  # fmt: skip
        self._early = {name: count_bits(self._masks(table[name], place)).sum(axis=1) for name in run.spans}
        self._ends = {name: self._of_message(np.maximum, table[name], place[0]) for name in WORD_ENDS}

    def _masks(self, column: NDArray[np.int64], place: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.int64]:
        found = np.zeros((self._n, self._how.width), np.int64)
        found[place] = column
        return found

    def _of_message(self, how: np.ufunc, column: NDArray[np.int64], message: NDArray[np.int64]) -> NDArray[np.int64]:
        """The words of each message together."""
        found = np.zeros(self._n, np.int64)
        how.at(found, message, column)
        return found

    def _said(self, column: NDArray[np.int64], message: NDArray[np.int64], sent: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What the lowest bit of a message's first word says of it."""
        found = np.zeros(self._n, np.bool_)
        found[message[sent]] = column[sent] & 1 != 0
        return found

    def deliveries(self) -> Table:
        """By stream, all subscriptions together as if they were the first."""
        groups = Groups({"stream": self._stream})
        return {
            "subscription": np.zeros(len(groups.n), np.int64), "stream": groups.keys["stream"],
            **{name: groups.sum(self._counts[name]) for name in _SUMS},
        }  # fmt: skip

    def reached(self) -> Table:
        """By topic and group of 64 subscriptions, which of them got a message."""
        topic = self._how.run.stream_topics[self._stream]
        order = np.argsort(topic, kind="stable")
        starts = np.flatnonzero(np.diff(topic[order], prepend=-1))
        masks = np.bitwise_or.reduceat(self._got[order], starts, axis=0)
        width = self._how.width
        topics, groups = np.repeat(topic[order][starts], width), np.tile(np.arange(width), len(starts))
        return take({"topic": topics, "group": groups, "mask": masks.ravel()}, masks.ravel() != 0)

    def buckets(self) -> Table:
        """By size bucket."""
        found: dict[str, NDArray[np.int64]] = {"bucket": np.arange(len(self._how.run.buckets))}
        known = self._bucket < len(self._how.run.buckets)
        for name in ("received", "received_in_time", "lost"):
            found[name] = np.zeros(len(self._how.run.buckets), np.int64)
            np.add.at(found[name], self._bucket[known], self._counts[name][known])
        return found

    def pieces(self, cut: Boundaries) -> Table:
        """By the piece that messages were intended in; what nobody got adds nothing, wherever it lies."""
        groups = Groups({"piece": cut.of(self._how.run.seconds(self._ends["due"]))})
        found = {"received": self._counts["received"], **dict.fromkeys(("windows", "tenths"), np.zeros(self._n, np.int64)), **self._early}
        return groups.keys | {name: groups.sum(column) for name, column in found.items()}

    def times(self, repeated: Table) -> Iterator[tuple[str, Table]]:
        """Of each message that all subscriptions got once: until the last copy came, and from the first copy to the last.

        :param repeated: ranges of words; :meth:`BroadcastWords.completions` has what lies in them, for here are copies of all kinds.
        """
        once = self._counts["received"] == self._how.run.subscriptions
        once &= ~within((self._low + np.arange(self._n)) * self._how.width, repeated)
        ends = {name: column[once] for name, column in self._ends.items()}
        yield from _completions(MANY - ends["early"], ends["last"], ends["due"], self._how.run)

    def edges(self, ranges: int) -> Table:
        """Where ranges of lost messages begin and end, as :func:`~pytest_loadtest.pipeline.tables.lost_edges` has them.

        Subscriptions are gone through in order, until there are ranges enough: where everything is lost, the rest is not looked at.
        """
        found = first_edges([self._edges_of(np.zeros(0, np.intp), 0)], ranges)
        topic = self._how.run.stream_topics[self._stream]
        lost = self._missing.any(axis=1)
        for number in np.unique(topic[lost]).tolist():
            messages = np.flatnonzero(lost & (topic == number))
            for group in np.flatnonzero(self._missing[messages].any(axis=0)).tolist():
                found = first_edges([found, self._edges_of(messages, group)], ranges)
                if len(found["word"]) >= 2 * ranges:
                    return found
        return found

    def _edges_of(self, messages: NDArray[np.intp], group: int) -> Table:
        """Of 64 subscriptions."""
        row, bit = bits(self._missing[messages, group])
        message = messages[row]
        deliveries = {"subscription": (group << WORD_BITS) + bit, "stream": self._stream[message], "seq": self._seq[message]}
        table = self._how.by_subscription(deliveries)
        mask = table["mask"]
        return {
            "topic": self._how.run.stream_topics[table["stream"]], **{name: table[name] for name in ("subscription", "stream", "word")},
            "first": mask & ~(mask << 1), "last": mask & ~(mask >> 1 & MANY),
        }  # fmt: skip
