"""From batches of rows to compact rows: the encoder learns from a sample, then encodes one batch after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError, quote
from metricfit.tabular.encoding.columns import Category, Column, NotANumber, Number, Text, distinct_texts
from metricfit.tabular.encoding.encoder import ColumnScaling, TableEncoder
from metricfit.tabular.families.family import Integers
from metricfit.tabular.large.compact_rows import CodeBlock, CompactFeatures, NumberBlock
from metricfit.tabular.large.row_sources import RowSource

#: Rows that the encoder learns from.
SAMPLE_ROWS = 100_000
#: Text columns with more distinct entries in the sample are kept as numbers, because most entries occur once.
MOST_WORDS = 50_000
#: Rows with the first occurrence of an entry are added to the sample for columns of at most this many entries.
FEW_WORDS = 1000


def encode_large_table(source: RowSource, table: Any = None) -> tuple[TableEncoder, CompactFeatures]:
    """Encode a table of many rows.

    What a column is, its categories, medians and quartiles are learned from a random sample of 100,000 rows, to which
    a row of each category is added.

    Args:
        source: The rows.
        table: The table as the user passed it, if it is in memory.

    Returns:
        The encoder, and the rows of the table as it encodes them.

    Raises:
        InvalidValueError: A row cannot be encoded; the message names it.
    """
    encoder = TableEncoder()
    sample = source.sample(SAMPLE_ROWS, FEW_WORDS)
    encoder.fit(sample if source.has_names else sample.to_numpy(dtype=np.float64))
    numbers, codes = _builders_of(encoder, sample, len(source))
    values = np.empty((len(source), sum(builder.width for builder in numbers)), dtype=np.float32)
    first = 0
    for frame in source.batches():
        rows = slice(first, first + len(frame))
        try:
            start = 0
            for builder in numbers:
                values[rows, start : start + builder.width] = builder.encoded(frame)
                start += builder.width
            for words in codes:
                words.add(frame, rows)
        except NotANumber:
            raise InvalidValueError(_describe_unreadable(numbers, frame, first)) from None
        first = rows.stop
    blocks: list[NumberBlock | CodeBlock] = [words.block() for words in codes]
    if numbers:
        places = np.concatenate([builder.places for builder in numbers])
        blocks.append(NumberBlock(values, places, np.concatenate([builder.flags for builder in numbers])))
    return encoder, CompactFeatures(blocks, encoder.scaling.width, len(source), table)


def _describe_unreadable(builders: Sequence[_NumberBuilder], frame: pd.DataFrame, first: int) -> str:
    """Say which entry of a column of numbers is no number."""
    for builder in builders:
        column = frame.iloc[:, builder.at]
        for row in range(len(column)):
            try:
                builder.column.transform(column.iloc[row : row + 1])
            except NotANumber as error:
                return (
                    f"row {first + row + 1} of the table: the column {quote(column.name)} holds numbers in a sample of "
                    f"the rows, and {error} here. Write all entries as numbers, or leave an entry empty where it is "
                    "not known"
                )
    raise AssertionError("every entry is a number")


def _builders_of(
    encoder: TableEncoder, sample: pd.DataFrame, rows: int
) -> tuple[list[_NumberBuilder], list[_CodeBuilder]]:
    """Return what encodes each column of numbers and each column of words that has something to learn from."""
    columns: Sequence[Column | None] = encoder.columns or [Number()] * sample.shape[1]
    numbers: list[_NumberBuilder] = []
    codes: list[_CodeBuilder] = []
    start = 0
    for at, column in enumerate(columns):
        if column is None:
            continue
        end = start + column.transform(sample.iloc[:1, at]).shape[1]
        scale = ColumnScaling(encoder.scaling, slice(start, end))
        start = end
        if not scale.scaling.width:
            continue
        if isinstance(column, Category) or (isinstance(column, Text) and sample.iloc[:, at].nunique() <= MOST_WORDS):
            codes.append(_CodeBuilder(at, column, scale, rows))
        else:
            numbers.append(_NumberBuilder(at, column, scale))
    return numbers, codes


class _NumberBuilder:
    """Encodes a column of numbers, of dates, or of text with many distinct entries."""

    def __init__(self, at: int, column: Column, scale: ColumnScaling) -> None:
        self.at, self.column, self.scale = at, column, scale
        #: A column that has one value or none is worth its flags alone.
        self.only_flags = not scale.kept.any()
        self.places = scale.flag_places if self.only_flags else scale.places
        self.flags: Integers = np.full(len(self.places), -1) if self.only_flags else scale.flags
        self.width = len(self.places)

    def encoded(self, frame: pd.DataFrame) -> NDArray[np.float32]:
        """Return the encoded columns, NaN where an entry is missing."""
        raw = self.column.transform(frame.iloc[:, self.at])
        if np.isinf(raw).any():
            raise InvalidValueError("Input X contains infinity; replace infinite values, by NaN if they are unknown")
        missing = np.isnan(raw)
        if self.only_flags:
            return missing[:, self.scale.scaling.told].astype(np.float32)
        values = self.scale.scaling.transform(raw)[:, : self.width]
        values[missing[:, self.scale.kept]] = np.nan
        return values


class _CodeBuilder:
    """Collects the codes of a column of categories or words."""

    def __init__(self, at: int, column: Column, scale: ColumnScaling, rows: int) -> None:
        self.at, self.column, self.scale = at, column, scale
        self.number: dict[str | None, int] = {}
        self.codes: NDArray[Any] = np.empty(rows, dtype=np.uint16)

    def add(self, frame: pd.DataFrame, rows: slice) -> None:
        place, texts = distinct_texts(frame.iloc[:, self.at])
        codes = np.array([self.number.setdefault(text, len(self.number)) for text in texts], dtype=np.uint32)
        if len(self.number) > np.iinfo(self.codes.dtype).max:
            self.codes = self.codes.astype(np.uint32)
        self.codes[rows] = codes[place]

    def block(self) -> CodeBlock:
        texts = pd.Series(list(self.number), dtype=object)
        scaled = self.scale.scaling.transform(self.column.transform(texts))
        places = np.concatenate([self.scale.places, self.scale.flag_places])
        small = len(self.number) <= np.iinfo(np.uint8).max
        return CodeBlock(self.codes.astype(np.uint8) if small else self.codes, scaled, places)
