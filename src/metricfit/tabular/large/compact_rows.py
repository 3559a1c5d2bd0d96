"""The encoded rows of a large table in few bytes: numbers in single precision, categories and words as codes.

One 0/1 column per category takes four bytes per category and row; a code takes one or two bytes per row. The encoded
columns of some rows are put together when they are needed, and are those of ``TableEncoder.transform`` to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.tabular.encoding.encoder import put_columns
from metricfit.tabular.families.family import Features, Integers

#: Rows that are put together at a time.
PART_ROWS = 2**16
#: Rows that a thread encodes at a time, few enough for its cache.
ROWS_PER_THREAD = 4096


@dataclass(frozen=True)
class NumberBlock:
    """Encoded columns as they are, NaN where an entry is missing.

    Attributes:
        values: The numbers ``(n, k)``.
        places: Where the columns lie among the encoded ones.
        flags: For each column, where the column lies that says whether its entry is missing; -1 if there is none.
    """

    values: NDArray[np.float32]
    places: Integers
    flags: Integers

    def put(self, out: NDArray[np.float32], rows: Any) -> None:
        """Write the columns of these rows."""
        values = np.array(self.values[rows])
        missing = np.isnan(values)
        values[missing] = 0
        put_columns(out, self.places, values)
        flagged = np.flatnonzero(self.flags >= 0)
        put_columns(out, self.flags[flagged], missing[:, flagged])

    def entry_keys(self) -> Iterator[NDArray[np.uint64]]:
        """Return numbers of 64 bits, equal where entries are equal, one array per column."""
        for column in self.values.T:
            yield (column + np.float32(0)).view(np.uint32).astype(np.uint64)  # one zero


@dataclass(frozen=True)
class CodeBlock:
    """Encoded columns that have one row of numbers for each distinct entry.

    Attributes:
        codes: The number of each row's entry.
        numbers: The encoded columns of each distinct entry.
        places: Where the columns lie among the encoded ones.
    """

    codes: NDArray[np.unsignedinteger[Any]]
    numbers: NDArray[np.float32]
    places: Integers

    def put(self, out: NDArray[np.float32], rows: Any) -> None:
        """Write the columns of these rows."""
        put_columns(out, self.places, self.numbers[self.codes[rows]])

    def entry_keys(self) -> Iterator[NDArray[np.uint64]]:
        """Return numbers of 64 bits, equal where entries are equal."""
        yield self.codes.astype(np.uint64)


@dataclass(frozen=True)
class CompactFeatures:
    """The columns of the rows of a large table; it takes the place of ``Features`` there.

    Attributes:
        blocks: The columns.
        width: The number of encoded columns.
        rows: The number of rows.
        table: The table as the user passed it, if it is in memory.
    """

    blocks: Sequence[NumberBlock | CodeBlock]
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
        table = self.table
        if table is not None:
            table = table.iloc[index] if hasattr(table, "iloc") else table[index]
        return Features(self.encode(index), table)

    def parts(self, index: Integers) -> list[Integers]:
        """Return the row numbers in parts that are encoded at a time."""
        return [index[first : first + PART_ROWS] for first in range(0, len(index), PART_ROWS)]

    def hashes(self) -> NDArray[np.uint64]:
        """Return a number for each row; copies of a row have the same."""
        total = np.zeros(self.rows, dtype=np.uint64)
        for block in self.blocks:
            for keys in block.entry_keys():
                total = mix(total ^ keys)
        return total

    def __len__(self) -> int:
        return self.rows


def mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit numbers one to one, by the finaliser of SplitMix64, so that similar ones differ in all bits.

    >>> mix(np.arange(2, dtype=np.uint64)).tolist()
    [16294208416658607535, 10451216379200822465]
    """
    mixed: NDArray[np.uint64] = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
