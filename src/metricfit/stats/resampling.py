"""Resamples as multiplicities: how often each sample was drawn, so that nothing is ever copied or sorted again.

A resample is a row of whole numbers, one a sample. Counts at a threshold, and at every threshold of one sorted order,
are sums of it. Samples that nothing tells apart (of one class, on one side of a fixed threshold) are kept as one row of
a table with their number, and the row's multiplicity is drawn at once: a binomial instead of n draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metricfit.errors import InvalidValueError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Seed = int | np.random.Generator

AT_ONCE = 2**16  # multiplicities: a block stays in the cache
WORTH_TABULATING = 8  # drawing a row's multiplicity costs about as much as drawing so many samples


@dataclass(frozen=True)
class Table:
    """Samples of one or two models, equal ones in one row with their number in ``size``."""

    columns: tuple[Floats, ...]
    target: Floats
    weight: Floats | None
    group: Integers | None
    size: Integers

    @classmethod
    def of(cls, columns: tuple[Floats, ...], target: Floats, weight: Floats | None, group: Integers | None) -> Table:
        """Samples with weights or groups are told apart by them and stay as they are."""
        if weight is None and group is None:
            code = target.astype(np.int64)
            for column in columns:
                distinct, rank = np.unique(column, return_inverse=True)
                code = np.unique(code * len(distinct) + rank, return_inverse=True)[1]
            _, rows, size = np.unique(code, return_index=True, return_counts=True)
            if len(rows) * WORTH_TABULATING <= len(target):
                return cls(tuple(column[rows] for column in columns), target[rows], None, None, size.astype(np.int64))
        return cls(columns, target, weight, group, np.ones(len(target), dtype=np.int64))

    @property
    def positive(self) -> Floats:
        """What one draw of a row adds to the positives."""
        return self.target if self.weight is None else self.target * self.weight

    @property
    def negative(self) -> Floats:
        """What one draw of a row adds to the negatives."""
        return 1 - self.target if self.weight is None else (1 - self.target) * self.weight


class Resampler:
    """Draws units (samples, or whole groups) with replacement, as many as there are.

    Stratified, the units that hold a positive are drawn apart from those that hold none: where the unit is a sample,
    every resample has as many positives and negatives as the data.
    """

    def __init__(self, table: Table, *, stratified: bool, seed: Seed) -> None:
        self._unit = None if table.group is None else np.unique(table.group, return_inverse=True)[1]
        holds = table.target > 0 if self._unit is None else np.bincount(self._unit, weights=table.target) > 0
        size = table.size if self._unit is None else np.ones(len(holds), dtype=np.int64)
        strata = (np.flatnonzero(holds), np.flatnonzero(~holds)) if stratified else (np.arange(len(holds)),)
        self._strata = [(stratum, size[stratum]) for stratum in strata if len(stratum)]
        if all(number.sum() == 1 for _, number in self._strata):
            what, remedy = ("sample", "") if self._unit is None else ("group", "; without groups= samples are drawn")
            where = " with a positive, and one without," if len(self._strata) > 1 else ""
            raise InvalidValueError(
                f"one {what}{where} cannot be resampled: every draw would be the data themselves{remedy}"
            )
        self._units, self._rows = len(holds), len(table.target)
        self._rng = np.random.default_rng(seed)

    def draw(self, resamples: int) -> Iterator[Integers]:
        """Multiplicities ``(some, rows)``, block by block, ``resamples`` in all."""
        at_once = max(1, AT_ONCE // self._rows)
        for start in range(0, resamples, at_once):
            yield self._block(min(at_once, resamples - start))

    def _block(self, resamples: int) -> Integers:
        drawn = np.empty((resamples, self._units), dtype=np.int64)
        for stratum, size in self._strata:
            drawn[:, stratum] = self._multinomial(size, resamples)
        return drawn if self._unit is None else drawn.take(self._unit, axis=1)

    def _multinomial(self, size: Integers, resamples: int) -> Integers:
        n = len(size)
        if size.sum() > n:
            return self._rng.multinomial(size.sum(), size / size.sum(), size=resamples)
        which = self._rng.integers(0, n, size=(resamples, n))
        which += n * np.arange(resamples)[:, None]
        return np.bincount(which.ravel(), minlength=n * resamples).reshape(resamples, n)
