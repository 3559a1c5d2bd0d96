"""Tables of many rows: in memory or in Parquet files, encoded batch by batch, in few bytes, and their folds.

The encoder learns from a sample. Encoded numbers are kept in single precision, categories and words as codes: one 0/1
column per category takes four bytes per category and row, a code one or two bytes per row. The encoded columns of some
rows are put together when they are needed, and equal ``TableEncoder.transform`` to the bit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from metricfit.core.arrays import Integers
from metricfit.data.reading import ParquetTable
from metricfit.errors import InvalidValueError, quote
from metricfit.tabular.encoding.columns import Category, Column, NotANumber, Number, Text, distinct_texts
from metricfit.tabular.encoding.encoder import Scaling, TableEncoder, check_finite, column_scaling, put_columns
from metricfit.tabular.families.family import Features, Splits, TrainingRows, take_rows

log = logging.getLogger("metricfit.tabular")

#: Tables of more rows are large: they are kept in a compact form, and have one held-out part.
LARGE_ROWS = 500_000
#: Rows of a batch.
BATCH_ROWS = 100_000
#: Rows that the encoder learns from.
SAMPLE_ROWS = 100_000
#: Text columns with more distinct entries in the sample are kept as numbers, because most entries occur once.
MOST_WORDS = 50_000
#: Rows with the first occurrence of an entry are added to the sample for columns of at most this many entries.
FEW_WORDS = 1000
#: Rows that are put together at a time.
PART_ROWS = 2**16
#: Rows that a thread encodes at a time, few enough for its cache.
ROWS_PER_THREAD = 4096
#: Rows that families other than boosted trees are fitted on, and held-out rows that they choose their settings on.
FITTED_ROWS, JUDGING_ROWS = 250_000, 50_000
#: Rows that are held out, their largest share, and the rows of the rarest class among them if the share allows it.
HELD_OUT_ROWS, LARGEST_SHARE, HELD_OUT_OF_RAREST = 400_000, 0.2, 2000


def is_large(table: Any) -> bool:
    """Return whether a table is kept in a compact form: a DataFrame, an array or Parquet files of many rows."""
    return isinstance(table, ParquetTable) or (not issparse(table) and len(table) > LARGE_ROWS)


class RowSource:
    """The rows of a large table, in memory or in Parquet files, as batches and samples of them.

    Args:
        table: A DataFrame, an array or Parquet files.
    """

    def __init__(self, table: Any) -> None:
        self.table = table
        #: Whether columns have names, which an array does not have.
        self.has_names = hasattr(table, "columns")

    def __len__(self) -> int:
        return len(self.table)

    def batches(self) -> Iterator[pd.DataFrame]:
        """Return all rows, some at a time."""
        if isinstance(self.table, ParquetTable):
            yield from self.table.batches(BATCH_ROWS)
            return
        for first in range(0, len(self), BATCH_ROWS):
            rows = slice(first, first + BATCH_ROWS)
            yield self.table.iloc[rows].reset_index(drop=True) if self.has_names else pd.DataFrame(self.table[rows])

    def sample(self, rows: int, few_words: int) -> pd.DataFrame:
        """Return random rows, and a row of each entry of text columns that have few different ones."""
        index = random_rows(len(self), rows)
        parts: list[pd.DataFrame] = []
        seen: dict[str, set[Any]] = {}
        first = 0
        for frame in self.batches():
            low, high = np.searchsorted(index, [first, first + len(frame)])
            chosen = index[low:high] - first
            for name in frame.columns:
                column = frame[name]
                if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
                    continue
                known = seen.setdefault(name, set())
                if len(known) <= few_words:
                    chosen = np.union1d(chosen, _new_words(column, known))
            parts.append(frame.iloc[chosen])
            first += len(frame)
        return pd.concat(parts, ignore_index=True)


def random_rows(rows: int, number: int) -> Integers:
    """Return at most this many different row numbers, in order; the same for every call.

    >>> len(random_rows(10, 3))
    3
    """
    if rows <= number:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, number, replace=False, shuffle=False)).astype(np.int64)


def _new_words(column: pd.Series, known: set[Any]) -> Integers:
    """Return the rows where entries occur first that are not known, and add these."""
    places, words = pd.factorize(column)
    rows = np.unique(places, return_index=True)[1]
    entries = [None if places[row] < 0 else words[places[row]] for row in rows]
    new = [entry not in known for entry in entries]
    known.update(entries)
    return np.asarray(rows[np.array(new, dtype=bool)], dtype=np.int64)


@dataclass(frozen=True)
class Block:
    """Encoded columns of some columns of the table.

    Attributes:
        places: Where the columns lie among the encoded ones.
        numbers: The encoded columns: one row per row of the table, or per distinct entry.
        codes: The number of each row's entry, if ``numbers`` has the distinct entries.
    """

    places: Integers
    numbers: NDArray[np.float32]
    codes: NDArray[np.unsignedinteger[Any]] | None = None

    def put(self, out: NDArray[np.float32], rows: Any) -> None:
        """Write the columns of these rows."""
        put_columns(out, self.places, self.numbers[rows if self.codes is None else self.codes[rows]])

    def entry_keys(self) -> Iterator[NDArray[np.uint64]]:
        """Return numbers of 64 bits, equal where entries are equal: one array per column, or one for all codes."""
        if self.codes is not None:
            yield self.codes.astype(np.uint64)
            return
        for column in self.numbers.T:
            yield (column + np.float32(0)).view(np.uint32).astype(np.uint64)  # one zero


@dataclass(frozen=True)
class CompactFeatures:
    """The columns of the rows of a large table; it takes the place of ``Features`` there.

    Attributes:
        blocks: The columns.
        width: The number of encoded columns.
        rows: The number of rows.
        table: The table as the user passed it, if it is in memory.
    """

    blocks: Sequence[Block]
    width: int
    rows: int
    table: Any = None

    @property
    def encoded(self) -> NDArray[np.float32]:
        """The encoded columns of all rows, which take a lot of memory."""
        return self.encode(slice(None))

    def encode(self, rows: Any, threads: int = 1) -> NDArray[np.float32]:
        """Return the encoded columns of these rows.

        Args:
            rows: Row numbers or a slice.
            threads: Number of threads.
        """
        count = len(range(self.rows)[rows]) if isinstance(rows, slice) else len(rows)
        out = np.empty((count, self.width), dtype=np.float32)
        if threads == 1 or isinstance(rows, slice):
            self._put(out, rows)
            return out
        with ThreadPoolExecutor(threads) as pool:
            parts = [slice(first, first + ROWS_PER_THREAD) for first in range(0, count, ROWS_PER_THREAD)]
            list(pool.map(lambda part: self._put(out[part], rows[part]), parts))
        return out

    def _put(self, out: NDArray[np.float32], rows: Any) -> None:
        for block in self.blocks:
            block.put(out, rows)

    def take(self, index: Integers) -> Features:
        """Return these rows, encoded."""
        return Features(self.encode(index), take_rows(self.table, index))

    def parts(self, index: Integers) -> list[Integers]:
        """Return the row numbers in parts that are encoded at a time."""
        return [index[first : first + PART_ROWS] for first in range(0, len(index), PART_ROWS)]

    def hashes(self) -> NDArray[np.uint64]:
        """Return a number for each row, the same for copies; it is of the encoded entries, from a file or a frame."""
        total = np.zeros(self.rows, dtype=np.uint64)
        for block in self.blocks:
            for keys in block.entry_keys():
                total = pd.util.hash_array(total ^ keys)
        return total

    def __len__(self) -> int:
        return self.rows


def encode_large_table(table: Any) -> tuple[TableEncoder, CompactFeatures]:
    """Encode a table of many rows.

    What a column is, its categories, medians and quartiles are learned from a random sample of 100,000 rows, to which
    a row of each category is added.

    Args:
        table: A DataFrame, an array or Parquet files.

    Returns:
        The encoder, and the rows of the table as it encodes them.

    Raises:
        InvalidValueError: A row cannot be encoded; the message names it.
    """
    encoder, source = TableEncoder(), RowSource(table)
    sample = source.sample(SAMPLE_ROWS, FEW_WORDS)
    encoder.fit(sample if source.has_names else sample.to_numpy(dtype=np.float64))
    parts = _column_parts(encoder, sample)
    numbers = [part for part in parts if not part.is_coded]
    values = np.empty((len(source), sum(len(part.places) for part in numbers)), dtype=np.float32)
    codes = {part.at: np.empty(len(source), dtype=np.uint32) for part in parts if part.is_coded}
    first = 0
    for frame in source.batches():
        rows = slice(first, first + len(frame))
        start = 0
        for part in numbers:
            values[rows, start : start + len(part.places)] = part.encoded(frame, first)
            start += len(part.places)
        for part in parts:
            if part.is_coded:
                codes[part.at][rows] = part.codes(frame)
        first = rows.stop
    blocks = [part.block(codes.pop(part.at)) for part in parts if part.is_coded]
    if numbers:
        blocks.append(Block(np.concatenate([part.places for part in numbers]), values))
    in_memory = None if isinstance(table, ParquetTable) else table
    return encoder, CompactFeatures(blocks, encoder.scaling.width, len(source), in_memory)


def _column_parts(encoder: TableEncoder, sample: pd.DataFrame) -> list[_ColumnPart]:
    """Return what encodes each column that has something to learn from."""
    parts, start = [], 0
    for at, column in enumerate(encoder.columns or [Number()] * sample.shape[1]):
        if column is None:
            continue
        end = start + column.transform(sample.iloc[:1, at]).shape[1]
        scaling, places = column_scaling(encoder.scaling, slice(start, end))
        start = end
        few_words = isinstance(column, Text) and sample.iloc[:, at].nunique() <= MOST_WORDS
        if scaling.width:
            parts.append(_ColumnPart(at, column, scaling, places, isinstance(column, Category) or few_words))
    return parts


@dataclass(frozen=True)
class _ColumnPart:
    """Encodes a column: as numbers, or as codes if few of its entries differ."""

    at: int
    column: Column
    scaling: Scaling
    places: Integers
    is_coded: bool
    number: dict[str | None, int] = field(default_factory=dict)

    def encoded(self, frame: pd.DataFrame, first: int) -> NDArray[np.float32]:
        """Return the encoded columns of a batch that begins with this row of the table."""
        entries = frame.iloc[:, self.at]
        try:
            numbers = self.column.transform(entries)
        except NotANumber:
            raise InvalidValueError(self._describe_unreadable(entries, first)) from None
        check_finite([numbers])
        return self.scaling.transform(numbers)

    def codes(self, frame: pd.DataFrame) -> NDArray[np.uint32]:
        """Return the codes of a batch."""
        place, texts = distinct_texts(frame.iloc[:, self.at])
        codes = [self.number.setdefault(text, len(self.number)) for text in texts]
        return np.array(codes, dtype=np.uint32)[place]

    def block(self, codes: NDArray[np.uint32]) -> Block:
        """Return the codes of all rows, in few bytes, with the encoded columns of each."""
        texts = pd.Series(list(self.number), dtype=object)
        small = codes.astype(np.min_scalar_type(max(0, len(texts) - 1)))
        return Block(self.places, self.scaling.transform(self.column.transform(texts)), small)

    def _describe_unreadable(self, entries: pd.Series, first: int) -> str:
        """Say which entry of a column of numbers is no number."""
        for row in range(len(entries)):
            try:
                self.column.transform(entries.iloc[row : row + 1])
            except NotANumber as error:
                return (
                    f"row {first + row + 1} of the table: the column {quote(entries.name)} holds numbers in a sample "
                    f"of the rows, and {error} here. Write all entries as numbers, or leave an entry empty where it is "
                    "not known"
                )
        raise AssertionError("every entry is a number")


def split_large_table(
    features: CompactFeatures, y: Integers, groups: NDArray[Any] | None, number: int | None, seed: int
) -> list[tuple[Integers, Integers]]:
    """Split the rows of a large table, stratified by class.

    Args:
        features: The columns.
        y: Class numbers.
        groups: One group per row, or None; rows of a group stay together, and without groups copies of a row do.
        number: Number of folds; None for one held-out part of at most 400,000 rows.
        seed: Seed of the split.

    Returns:
        For each fold, the rows to train on and the rows that are held out.

    Raises:
        InvalidValueError: The groups do not allow a split in which all parts have every class.
    """
    counts = np.bincount(y)
    hashes = features.hashes() if groups is None else pd.util.hash_array(np.asarray(groups))
    keys = pd.util.hash_array(hashes ^ pd.util.hash_array(np.array([seed], dtype=np.uint64)))
    if number is None:
        wanted = max(HELD_OUT_ROWS / len(y), HELD_OUT_OF_RAREST / counts[counts > 0].min())
        share = min(LARGEST_SHARE, wanted)
        shares = [share, 1 - share]
    else:
        shares = [1 / number] * number
    strata = y if groups is None else np.zeros_like(y)
    part = _parts_by_key(keys, strata, shares)
    held_out = [np.flatnonzero(part == place) for place in range(1 if number is None else number)]
    for rows in held_out:
        of_class = np.bincount(y[rows], minlength=len(counts))
        none_held_out = (of_class == 0) & (counts > 1) & (number is None)
        if (none_held_out | ((of_class == counts) & (counts > 0))).any():
            raise InvalidValueError("the groups cannot be split so that all parts have every class")
    log.info(
        "%s of %s rows are held out%s",
        f"{len(held_out[0]):,}",
        f"{len(y):,}",
        "" if number is None else f" by each of {number} folds",
    )
    return [(np.flatnonzero(part != place), rows) for place, rows in enumerate(held_out)]


def sample_large_table(rows: TrainingRows, splits: Splits, seed: int) -> tuple[TrainingRows, Splits]:
    """Return a stratified sample of the rows of each fold, encoded, and the folds of these rows."""
    drawn = [
        (
            stratified_sample(train, rows.y, FITTED_ROWS, seed + fold),
            stratified_sample(held_out, rows.y, JUDGING_ROWS, seed + fold),
        )
        for fold, (train, held_out) in enumerate(splits)
    ]
    index = np.unique(np.concatenate([part for split in drawn for part in split]))
    found = [(np.searchsorted(index, train), np.searchsorted(index, held_out)) for train, held_out in drawn]
    return rows.take(index), found


def stratified_sample(index: Integers, y: Integers, rows: int, seed: int) -> Integers:
    """Draw at most this many of the rows, in which each class has its share and at least two rows.

    Args:
        index: The rows to draw from.
        y: The class numbers of all rows.
        rows: Number of rows to draw.
        seed: Seed of the sample.

    Returns:
        Row numbers, in order.
    """
    if len(index) <= rows:
        return index
    generator = np.random.default_rng(seed)
    labels = y[index]
    drawn = []
    for label in np.unique(labels):
        of_class = index[labels == label]
        number = min(len(of_class), max(2, round(rows * len(of_class) / len(index))))
        drawn.append(generator.choice(of_class, number, replace=False, shuffle=False))
    return np.sort(np.concatenate(drawn))


def _parts_by_key(keys: NDArray[np.uint64], strata: Integers, shares: list[float]) -> NDArray[np.int8]:
    """Return the part of each row, so that each stratum has its share in each part; equal keys are in one part."""
    part = np.zeros(len(keys), dtype=np.int8)
    ends = np.cumsum(shares)[:-1]
    for stratum in np.unique(strata):
        of_stratum = strata == stratum
        own = keys[of_stratum]
        ranks = np.clip(np.round(ends * len(own)).astype(np.int64), 1, max(1, len(own) - 1))
        cuts = np.partition(own, np.minimum(ranks, len(own) - 1))[np.minimum(ranks, len(own) - 1)]
        # The only row of a class is learned from.
        part[of_stratum] = np.searchsorted(cuts, own, side="right") if len(own) > 1 else len(shares) - 1
    return part
