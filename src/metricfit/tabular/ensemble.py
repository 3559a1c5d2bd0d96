"""The ensemble of families: calibrated logits, weighted, and calibrated once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from metricfit.core.types import ScalarAverage
from metricfit.decide.calibration import Calibration, fit_calibration
from metricfit.decide.costs import RowCosts
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.cross_fit import rows_that_choose
from metricfit.tabular.families.family import Features, FittedModel, Floats, Integers
from metricfit.tabular.out_of_fold import FamilyResult, LeftOut
from metricfit.tabular.selection import Selection

#: Families with less weight are dropped: they cost time and memory and hardly change a decision.
SMALLEST_WEIGHT = 0.05


@dataclass(frozen=True)
class ModelRow:
    """What became of one family.

    Attributes:
        name: The name of the family.
        weight: Its weight in the ensemble; 0 if it is not part of it.
        value: The metric of its out-of-fold logits at their best decision; None if it was not fitted.
        log_loss: The cross-entropy of its calibrated out-of-fold logits; None if it was not fitted.
        seconds: The time that fitting took; None if it was not fitted.
        left_out: Why it was not fitted; None if it was.
        fitted_rows: The rows that it was fitted on, if these are a sample of a large table; None for all rows.
        table_rows: The rows of that table.
    """

    name: str
    weight: float = 0.0
    value: float | None = None
    log_loss: float | None = None
    seconds: float | None = None
    left_out: str | None = None
    fitted_rows: int | None = None
    table_rows: int | None = None

    @property
    def sample(self) -> str | None:
        """What the family was fitted on, in words, if it was a sample.

        >>> ModelRow("linear", fitted_rows=250_000, table_rows=10_000_000).sample
        'fitted on 250,000 of 10,000,000 rows'
        """
        if self.fitted_rows is None or self.table_rows is None:
            return None
        return f"fitted on {self.fitted_rows:,} of {self.table_rows:,} rows"


@dataclass(frozen=True)
class EnsembleMember:
    """A family in the ensemble: its model, how its logits are calibrated, and its weight."""

    name: str
    model: FittedModel
    calibration: Calibration
    weight: float


@dataclass(frozen=True)
class Ensemble:
    """Families whose calibrated logits are averaged with weights.

    Attributes:
        members: The families with a weight above 0.
        calibration: The calibration of the weighted mean.
    """

    members: tuple[EnsembleMember, ...]
    calibration: Calibration

    def logits(self, features: Features) -> Floats:
        """Return calibrated logits ``(n, 1)`` or ``(n, c)``."""
        parts = [member.weight * member.calibration(member.model.logits(features)) for member in self.members]
        return self.calibration(np.sum(parts, axis=0))

    @property
    def folds(self) -> int:
        """The number of folds whose models are still known; 1 if all families keep the mean of the folds alone."""
        return max(member.model.folds for member in self.members)

    def logits_of_folds(self, features: Features, folds: Integers) -> Floats:
        """Return calibrated logits, of each row by the models of one fold.

        They are distributed as the logits of held-out rows are. The mean over folds is not: its noise is smaller.
        A family that keeps the mean of the folds' coefficients alone takes part with that.

        Args:
            features: The rows.
            folds: For each row the number of the fold.
        """
        return logits_by_fold(self.of_folds(int(folds.max(initial=0)) + 1), features, folds)

    def of_folds(self, folds: int) -> tuple[Ensemble, ...]:
        """Return the ensemble of each fold, with what the combined models know of the fold."""

        def of_fold(member: EnsembleMember, fold: int) -> EnsembleMember:
            return replace(member, model=member.model.of_fold(fold) if fold < member.model.folds else member.model)

        return tuple(
            replace(self, members=tuple(of_fold(member, fold) for member in self.members)) for fold in range(folds)
        )


def logits_by_fold(ensembles: Sequence[Ensemble], features: Features, folds: Integers) -> Floats:
    """Return calibrated logits, of each row by the ensemble of its fold."""
    logits = np.empty((len(features), len(ensembles[0].calibration.bias)))
    for fold in np.unique(folds).tolist():
        rows = np.flatnonzero(folds == fold)
        logits[rows] = ensembles[fold].logits(features.take(rows))
    return logits


@dataclass(frozen=True)
class OutOfFold:
    """The rows that some model held out, with each family's logits there.

    Attributes:
        logits: The raw out-of-fold logits of each family, ``(families, n, c)``.
        y: Class numbers.
        weight: Weights, or None.
        costs: The costs of each row, if the metric takes costs from columns.
    """

    logits: Floats
    y: Integers
    weight: Floats | None
    costs: RowCosts | None = None

    def take(self, index: Integers) -> OutOfFold:
        """Return these rows."""
        weight = None if self.weight is None else self.weight[index]
        costs = None if self.costs is None else self.costs.take(index)
        return OutOfFold(self.logits[:, index], self.y[index], weight, costs)

    def selection(self, metric: Metric, average: ScalarAverage, requirements: Sequence[Requirement]) -> Selection:
        """Return what chooses weights on these rows, and values logits there."""
        return Selection(self.y, self.weight, metric, average, requirements, self.costs)


@dataclass(frozen=True)
class Mixture:
    """How the raw logits of families become calibrated logits of the ensemble.

    Attributes:
        calibrations: The calibration of each family.
        weights: The weight of each family.
        calibration: The calibration of the weighted mean.
    """

    calibrations: tuple[Calibration, ...]
    weights: tuple[float, ...]
    calibration: Calibration

    def __call__(self, logits: Floats) -> Floats:
        """Mix the raw logits of all families."""
        return self.calibration(weighted_sum(self.calibrations, self.weights, logits))

    def ensemble(self, names: Sequence[str], models: Sequence[FittedModel]) -> Ensemble:
        """Return the ensemble of the families that have a weight."""
        parts = zip(names, models, self.calibrations, self.weights, strict=True)
        return Ensemble(tuple(EnsembleMember(*part) for part in parts if part[3] > 0), self.calibration)


def weighted_sum(calibrations: Sequence[Calibration], weights: Sequence[float], logits: Floats) -> Floats:
    """Return the weighted sum of calibrated logits."""
    parts = zip(calibrations, weights, logits, strict=True)
    return np.sum([weight * calibration(values) for calibration, weight, values in parts if weight > 0], axis=0)


def fit_mixture(
    rows: OutOfFold, metric: Metric, average: ScalarAverage, requirements: Sequence[Requirement]
) -> Mixture:
    """Calibrate each family, choose their weights, and calibrate the mixture."""
    calibrations = tuple(fit_calibration(logits, rows.y, rows.weight) for logits in rows.logits)
    calibrated = [calibration(logits) for calibration, logits in zip(calibrations, rows.logits, strict=True)]
    chosen = rows.selection(metric, average, requirements).weights(calibrated)
    chosen = chosen * (chosen >= SMALLEST_WEIGHT)
    weights = tuple((chosen / chosen.sum()).tolist())
    combined = weighted_sum(calibrations, weights, rows.logits)
    return Mixture(calibrations, weights, fit_calibration(combined, rows.y, rows.weight))


@dataclass(frozen=True)
class CrossFit:
    """Mixtures that judge held-out rows, each fitted to the rows of other parts (``tabular.cross_fit``).

    Attributes:
        parts: The part of each held-out row.
        mixtures: The mixture of each part.
    """

    parts: Integers
    mixtures: tuple[Mixture, ...]

    def logits(self, logits: Floats) -> Floats:
        """Mix the raw logits of all families, of the held-out rows."""
        mixed = np.empty_like(logits[0])
        for rows, mixture in self._rows():
            mixed[rows] = mixture(logits[:, rows])
        return mixed

    def logits_of_family(self, family: int, logits: Floats) -> Floats:
        """Calibrate the raw logits of one family, of the held-out rows."""
        calibrated = np.empty_like(logits)
        for rows, mixture in self._rows():
            calibrated[rows] = mixture.calibrations[family](logits[rows])
        return calibrated

    def _rows(self) -> Iterator[tuple[Integers, Mixture]]:
        for part, mixture in enumerate(self.mixtures):
            yield np.flatnonzero(self.parts == part), mixture


def cross_fit(
    rows: OutOfFold,
    parts: Integers,
    metric: Metric,
    average: ScalarAverage,
    requirements: Sequence[Requirement],
) -> CrossFit:
    """Fit the mixture of each part of the held-out rows to the other parts; the other arguments are those above."""
    masks = rows_that_choose(parts, rows.y)
    chosen_on = [rows.take(np.flatnonzero(mask)) for mask in masks]
    return CrossFit(parts, tuple(fit_mixture(others, metric, average, requirements) for others in chosen_on))


def build_ensemble(
    results: Sequence[FamilyResult],
    left_out: Sequence[LeftOut],
    rows: OutOfFold,
    parts: Integers,
    metric: Metric,
    average: ScalarAverage,
    requirements: Sequence[Requirement],
) -> tuple[Ensemble, Mixture, CrossFit, list[ModelRow]]:
    """Build the ensemble of the families that were fitted.

    Args:
        results: The fitted families.
        left_out: The other families.
        rows: The held-out rows with the logits of the fitted families.
        parts: The part of each of these rows.
        metric: The metric that weights are chosen for.
        average: Its average over several classes.
        requirements: Requirements on the decisions.

    Returns:
        The ensemble without the families that got no weight, and how it mixes logits, fitted to all held-out rows; the
        mixtures that judge these rows; and a row for each family, in the order of their weights.
    """
    mixture = fit_mixture(rows, metric, average, requirements)
    judges = cross_fit(rows, parts, metric, average, requirements)
    selection = rows.selection(metric, average, requirements)
    table = []
    for family, (result, weight, logits) in enumerate(zip(results, mixture.weights, rows.logits, strict=True)):
        calibrated = judges.logits_of_family(family, logits)
        value, log_loss = selection.decided_value(calibrated), selection.log_loss(calibrated)
        sample = (None, None) if result.fitted_rows is None else (result.fitted_rows, len(result.logits))
        table.append(ModelRow(result.name, weight, value, log_loss, result.seconds, None, *sample))
    table.sort(key=lambda row: -row.weight)
    table += [ModelRow(family.name, left_out=family.reason) for family in left_out]
    ensemble = mixture.ensemble([result.name for result in results], [result.model for result in results])
    return ensemble, mixture, judges, table
