"""Families on the rows of a large table: boosted trees from batches of all rows, the others on a sample."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import lightgbm
import numpy as np
from lightgbm.callback import EarlyStopException
from numpy.typing import NDArray

from metricfit.boosting.library_rows import prior_logits
from metricfit.tabular.families.boosting import Boosting
from metricfit.tabular.families.family import (
    Candidates,
    Deadline,
    Family,
    FittedModel,
    Floats,
    Integers,
    Splits,
    TrainingRows,
)
from metricfit.tabular.families.forest import ExtraTrees
from metricfit.tabular.large_rows import PART_ROWS, CompactFeatures, stratified_sample

log = logging.getLogger("metricfit.tabular")

#: Rows that families other than boosted trees are fitted on, and held-out rows that they choose their settings on.
SAMPLE_ROWS, SAMPLE_OF_HELD_OUT = 250_000, 50_000
#: Rows on which a family is timed that cannot be stopped.
TIMED_ROWS = 1000
#: Rows from which LightGBM learns where to cut columns into bins; its own default.
ROWS_OF_BINS = 200_000
#: Trees that are not grown on random parts of the rows are grown on the rows with the largest gradients and a sample of
#: the others (GOSS): 40 % less time per tree on 200,000 rows, and a cross-entropy of 0.0382 in place of 0.0387.
ROWS_OF_TREES = {"data_sample_strategy": "goss"}
#: The share of the time that is left which a family of boosted trees may take.
SHARE_OF_TIME = 0.5


def families_of_large_table(
    families: Sequence[Family], features: CompactFeatures, jobs: int, deadline: Deadline
) -> list[Family]:
    """Return families that can be fitted on the rows of a large table.

    Args:
        families: The families.
        features: The columns of the table.
        jobs: Number of threads.
        deadline: When training has to end.
    """
    binned = BinnedRows(features, jobs)
    return [
        BoostingInBatches(family, binned, jobs, deadline)
        if isinstance(family, Boosting)
        else SampledFamily(family, jobs)
        for family in families
    ]


class SampledFamily(Family):
    """A family that is fitted on a stratified sample of the training rows.

    Args:
        family: The family.
        jobs: Number of threads.
    """

    may_travel = False

    def __init__(self, family: Family, jobs: int) -> None:
        if isinstance(family, ExtraTrees):
            family.jobs = jobs
        self.family, self.name = family, family.name
        self.can_be_stopped, self.growth = family.can_be_stopped, family.growth

    def check(self, rows: TrainingRows) -> None:
        """Raise an error if the family can never be fitted on such rows."""
        self.family.check(rows)

    def reason_to_skip(self, rows: TrainingRows) -> str | None:
        """Return why the family is left out for a table of this size; None if it is not."""
        return self.family.reason_to_skip(rows)

    def estimate(self, rows: TrainingRows, splits: Splits, *, deadline: Deadline) -> float | None:
        """Return the seconds that fitting the samples will take; None if the family can be stopped."""
        if self.can_be_stopped:
            return None
        order = stratified_sample(np.arange(len(rows)), rows.y, TIMED_ROWS, 0)
        timed, judged = rows.take(order), rows.take(order[: TIMED_ROWS // 4])
        start = time.monotonic()
        self.fit(timed, judged, seed=0, deadline=deadline)
        seconds = time.monotonic() - start
        return float(seconds * (SAMPLE_ROWS / len(timed)) ** self.growth * len(splits))

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Fit the family on these rows."""
        return self.family.prepare(train).fit(train, held_out, seed=seed, deadline=deadline)

    def fit_candidates(
        self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline
    ) -> FittedModel | Candidates:
        """Fit the candidates of the family on these rows."""
        return self.family.prepare(train).fit_candidates(train, held_out, seed=seed, deadline=deadline)

    def fit_folds(
        self, rows: TrainingRows, splits: Splits, *, seed: int, jobs: int, deadline: Deadline
    ) -> Sequence[FittedModel | Candidates]:
        """Fit a model for each fold on a sample of its training rows, one after the other."""
        models = []
        for fold, (train, held_out) in enumerate(splits):
            sample = stratified_sample(train, rows.y, SAMPLE_ROWS, seed + fold)
            judged = stratified_sample(held_out, rows.y, SAMPLE_OF_HELD_OUT, seed + fold)
            self.fitted_rows = len(sample)
            log.info("%s is fitted on %s of %s rows", self.name, f"{len(sample):,}", f"{len(rows):,}")
            parts = rows.take(sample), rows.take(judged)
            models.append(self.fit_candidates(*parts, seed=seed + fold, deadline=deadline))
        return models

    def batches(self, splits: Splits, jobs: int) -> list[Splits]:
        """Return one fold at a time."""
        return [splits[fold : fold + 1] for fold in range(len(splits))]

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Combine the folds' models as the family does."""
        return self.family.combine(models)


class BoostingInBatches(Family):
    """Boosted trees on all rows, which LightGBM gets in batches and keeps in one byte per number.

    If the time budget ends, the trees that have been grown are the model.

    Args:
        family: The boosted trees.
        binned: The rows as LightGBM keeps them, shared with other families.
        jobs: Number of threads.
        deadline: When training has to end.
    """

    may_travel = False

    def __init__(self, family: Boosting, binned: BinnedRows, jobs: int, deadline: Deadline) -> None:
        self.family, self.name, self.binned, self.jobs = family, family.name, binned, jobs
        self.deadline = deadline

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Fit the trees on rows in memory."""
        return self.family.fit(train, held_out, seed=seed, deadline=deadline)

    def fit_folds(
        self, rows: TrainingRows, splits: Splits, *, seed: int, jobs: int, deadline: Deadline
    ) -> Sequence[FittedModel | Candidates]:
        """Fit a model for each fold, one after the other, with all threads."""
        models: list[Candidates] = []
        for fold, (train, held_out) in enumerate(splits):
            start = prior_logits(
                rows.y[train], None if rows.weight is None else rows.weight[train], classes=rows.classes
            )
            data, held_out_data = self.binned.datasets(rows, train, held_out, start)
            settings = self.family.settings(len(train), rows.classes, seed + fold) | {"num_threads": self.jobs}
            if "bagging_freq" not in settings:
                settings |= ROWS_OF_TREES
            left = self.deadline.seconds_left / max(1, len(splits) - fold)
            stop = _StopInTime(self.name, Deadline.after(SHARE_OF_TIME * left if np.isfinite(left) else None), deadline)
            models.append(self.family.grow(data, held_out_data, start, settings, stop))
        return models

    def batches(self, splits: Splits, jobs: int) -> list[Splits]:
        """Return one fold at a time."""
        return [splits[fold : fold + 1] for fold in range(len(splits))]

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Put the trees of all folds into one model."""
        return self.family.combine(models)


class BinnedRows:
    """Rows as LightGBM keeps them; those of the last fold are kept for the next family.

    Args:
        features: The columns of the table.
        jobs: Number of threads.
    """

    def __init__(self, features: CompactFeatures, jobs: int) -> None:
        self.features, self.jobs = features, jobs
        self._kept: tuple[Integers, lightgbm.Dataset, lightgbm.Dataset] | None = None

    def datasets(
        self, rows: TrainingRows, train: Integers, held_out: Integers, start: Floats
    ) -> tuple[lightgbm.Dataset, lightgbm.Dataset]:
        """Return the training rows and the held-out rows of a fold."""
        if self._kept is None or self._kept[0] is not train:
            self._kept = None  # freed before the next ones are made
            sample = stratified_sample(train, rows.y, ROWS_OF_BINS, 0)
            bins = lightgbm.Dataset(self.features.encode(sample), params=self._parameters(), free_raw_data=True)
            data = self._dataset(rows, train, start, bins.construct())
            self._kept = train, data, self._dataset(rows, held_out, start, data)
        return self._kept[1:]

    def _dataset(
        self, rows: TrainingRows, index: Integers, start: Floats, reference: lightgbm.Dataset
    ) -> lightgbm.Dataset:
        return lightgbm.Dataset(
            EncodedRows(self.features, index, self.jobs),
            rows.y[index].astype(np.float32),
            weight=None if rows.weight is None else rows.weight[index],
            init_score=np.tile(start, (len(index), 1)).ravel(order="F"),
            reference=reference,
            params=self._parameters(),
            free_raw_data=True,
        ).construct()

    def _parameters(self) -> dict[str, Any]:
        return {"verbose": -1, "num_threads": self.jobs, "feature_pre_filter": False}


class EncodedRows(lightgbm.Sequence):
    """Encoded rows for LightGBM, made in batches."""

    batch_size = PART_ROWS

    def __init__(self, features: CompactFeatures, index: Integers, threads: int) -> None:
        self.features, self.index, self.threads = features, index, threads

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        if isinstance(rows, (int, np.integer)):
            return np.asarray(self.features.encode(self.index[rows : rows + 1])[0])
        return self.features.encode(self.index[rows], self.threads)

    def __len__(self) -> int:
        return len(self.index)


class _StopInTime:
    """A callback of LightGBM that ends training when its time is over, with the best round so far."""

    def __init__(self, name: str, until: Deadline, deadline: Deadline) -> None:
        self.name, self.until, self.deadline = name, until, deadline
        self.best: tuple[float, int, Any] = (np.inf, 0, None)
        self.start = time.monotonic()

    def __call__(self, round_: Any) -> None:
        """Keep the best round, and stop if the time is over."""
        if self.deadline.stopped.is_set():
            self.deadline.check()
        results = round_.evaluation_result_list
        if results[0][2] < self.best[0]:
            self.best = (results[0][2], round_.iteration, results)
        if self.until.seconds_left < 0:
            log.info(
                "%s ends after %d rounds and %.0f s, for time; its cross-entropy was still falling",
                self.name,
                round_.iteration + 1,
                time.monotonic() - self.start,
            )
            raise EarlyStopException(self.best[1], self.best[2])
