"""The ensemble of families: calibrated logits, weighted, and calibrated once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from metricfit.core.arrays import Array, Floats, Integers, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.calibration import Calibration, fit_calibration
from metricfit.decide.choose import choose_class_decision
from metricfit.decide.costs import RowCosts, best_margin
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.offsets import best_offsets
from metricfit.decide.rules import Goal
from metricfit.errors import InvalidValueError, ModelFileError
from metricfit.metrics.curves import best_or_nearest
from metricfit.metrics.feasibility import ChosenThreshold
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import sweep
from metricfit.tabular.cross_fit import rows_that_choose
from metricfit.tabular.families.arithmetic import log_losses
from metricfit.tabular.families.family import Features, FittedModel, MeanOfFolds
from metricfit.tabular.out_of_fold import FamilyResult, LeftOut

#: Steps of the greedy selection; a family's weight is the share of steps in which it was chosen.
STEPS = 20
STEPS_OF_SEVERAL_CLASSES = 10
#: Rows on which offsets of several classes are searched while weights are chosen.
ROWS_OF_SEVERAL_CLASSES = 3000

#: Scores of mixtures ``(k, n, c)``, each of which is numbers that are compared in this order; higher is better.
Scores = Callable[[Floats], Sequence[tuple[float, ...]]]


@dataclass(frozen=True)
class Selection:
    """What the weights of families are chosen for.

    Attributes:
        y: Class numbers of the held-out rows.
        weight: Their weights, or None.
        metric: The metric.
        average: Its average over several classes.
        requirements: Requirements on the decisions, for two classes.
        costs: The costs of each row, if the metric takes costs from columns.
    """

    y: Integers
    weight: Floats | None
    metric: Metric
    average: ScalarAverage
    requirements: Sequence[Requirement] = ()
    costs: RowCosts | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", to_numpy(self.y, np.int64))
        if self.weight is not None:
            object.__setattr__(self, "weight", to_numpy(self.weight, np.float64))

    def value(self, logits: Array) -> float:
        """Return the metric at the best decision of these logits; among thresholds, only feasible ones count.

        If no threshold meets the requirements, this is the value at the one with the smallest violation.
        """
        z = to_numpy(logits, np.float64)
        if self.costs is not None:
            return best_margin(self.costs.margins(z)[:, 0], self.y, self.weight, self.costs).value
        if z.shape[1] == 1:
            return best_or_nearest(sweep(z[:, 0], self.y, self.weight), self.metric, self.requirements).value
        found = best_offsets(z, self.y, self.metric, average=self.average, weight=self.weight, rounds=1, starts=1)
        return found.value

    def decided_value(self, logits: Array) -> float:
        """Return the metric of the decisions that the classifier itself would make about these logits.

        It is ``value``, except for metrics of the whole confusion matrix, which decide by expected costs; offsets alone
        would show families far below an ensemble of them. While weights are chosen, offsets are quick and suffice.
        """
        if not self.metric.needs_matrix or self.requirements or logits.shape[1] == 1:
            return self.value(logits)
        held_out = collect_held_out(to_numpy(logits, np.float64), self.y, self.weight, None)
        return choose_class_decision(held_out, Goal(self.metric, average=self.average)).evidence.value

    def log_loss(self, logits: Array) -> float:
        """Return the mean cross-entropy of calibrated logits."""
        return float(self._log_losses(to_numpy(logits, np.float64)[None])[0])

    def weights(self, logits: Sequence[Array]) -> Floats:
        """Choose the weight of each family; they sum to 1.

        Half of the weights are chosen greedily for the metric and half greedily for the cross-entropy. The metric alone
        would fit the choice to the rows if positives are few: many mixtures then have nearly the same value, and the
        cross-entropy tells which of them order the rows best.

        Args:
            logits: For each family, its calibrated out-of-fold logits.

        Returns:
            One weight per family.
        """
        if len(logits) == 1:
            return np.ones(1)
        z = np.stack([to_numpy(values, np.float64) for values in logits])
        return (self.weights_for_metric(z) + self.weights_for_log_loss(z)) / 2

    def weights_for_metric(self, logits: Floats) -> Floats:
        """Choose weights greedily for the metric; the logits of all families are ``(families, n, c)``."""
        if logits.shape[2] == 1:
            return greedy(logits, self._scores, STEPS)
        part = self._part(ROWS_OF_SEVERAL_CLASSES)
        return greedy(logits[:, part], self._take(part)._scores, STEPS_OF_SEVERAL_CLASSES)

    def weights_for_log_loss(self, logits: Floats) -> Floats:
        """Choose weights greedily for the cross-entropy."""
        return greedy(logits, lambda mixtures: [(-loss,) for loss in self._log_losses(mixtures).tolist()], STEPS)

    def score(self, logits: Floats) -> tuple[float, float]:
        """Return how good a mixture is at its best decision.

        Args:
            logits: The logits of the mixture.

        Returns:
            The largest violation of a requirement there, negated and 0 if all are met, and the value, negated if lower
            is better. So a mixture that violates the requirements less is better, whatever its value is.
        """
        if logits.shape[1] > 1 or self.costs is not None:
            value, violation = self.value(logits), 0.0
        else:
            chosen = best_or_nearest(sweep(logits[:, 0], self.y, self.weight), self.metric, self.requirements)
            value, violation = chosen.value, 0.0 if chosen.feasible else self._violation(chosen)
        return -violation, -value if self.metric.minimize else value

    def _scores(self, mixtures: Floats) -> list[tuple[float, float]]:
        """Return the score of each mixture ``(k, n, c)``; all at once for two classes without requirements."""
        if mixtures.shape[2] > 1 or self.requirements or self.costs is not None:
            return [self.score(logits) for logits in mixtures]
        values = _best_of_all_thresholds(mixtures[..., 0], self.y, self.weight, self.metric)
        return [(0.0, value) for value in values.tolist()]

    def _log_losses(self, mixtures: Floats) -> Floats:
        """Return the mean cross-entropy of each mixture ``(k, n, c)``."""
        return np.asarray(np.average(log_losses(mixtures, self.y), axis=1, weights=self.weight))

    def _violation(self, chosen: ChosenThreshold) -> float:
        """Return the largest violation at a threshold."""
        values: dict[str, Array] = {text: np.asarray(result.value) for text, result in chosen.requirements.items()}
        return max(float(requirement.excess(values[str(requirement)])) for requirement in self.requirements)

    def _part(self, rows: int) -> Integers | slice:
        """Return at most this many rows, drawn at random."""
        if len(self.y) <= rows:
            return slice(None)
        return np.sort(np.random.default_rng(0).choice(len(self.y), rows, replace=False, shuffle=False))

    def _take(self, part: Integers | slice) -> Selection:
        weight = None if self.weight is None else self.weight[part]
        return Selection(self.y[part], weight, self.metric, self.average, self.requirements)


def _best_of_all_thresholds(scores: Floats, y: Integers, weight: Floats | None, metric: Metric) -> Floats:
    """Return for each row of scores ``(k, n)`` the best value over all thresholds, negated if lower is better.

    It is what ``best_or_nearest`` finds on a sweep, without the checks and for several scores at once: the greedy
    selection needs it thousands of times.
    """
    order = np.argsort(-scores, axis=1)
    falling = np.take_along_axis(scores, order, 1)
    row_weight = 1.0 if weight is None else weight[order]
    first = ((0, 0), (1, 0))
    tp, fp = (np.pad((row_weight * (y[order] == label)).cumsum(1), first) for label in (1, 0))
    cells: tuple[Array, ...] = (tp, fp, tp[:, -1:] - tp, fp[:, -1:] - fp)
    values = np.asarray(metric(Counts(*(cell[..., None] for cell in cells))))[..., 0]
    better = -values if metric.minimize else values
    between_ties = np.pad(falling[:, 1:] == falling[:, :-1], ((0, 0), (1, 1)))
    return np.asarray(np.where(between_ties, -np.inf, better).max(1))


def greedy(logits: Floats, scores: Scores, steps: int) -> Floats:
    """Build a mixture step by step, each time with the family that gives the mean of logits the best score.

    Args:
        logits: The logits of each family, ``(families, n, c)``.
        scores: Returns the score of each of several mixtures; higher is better, and its first number counts most.
        steps: The number of steps. A family can be chosen in several steps.

    Returns:
        The share of steps in which each family was chosen.

    Example:
        >>> good, bad = [[1.0]], [[-1.0]]
        >>> greedy(np.array([good, bad]), lambda mixtures: [(float(mixture[0, 0]),) for mixture in mixtures], steps=4)
        array([1., 0.])
    """
    chosen, total = np.zeros(len(logits)), np.zeros_like(logits[0])
    for step in range(1, steps + 1):
        found = list(scores((total + logits) / step))
        best = found.index(max(found))
        chosen[best] += 1
        total = total + logits[best]
    return chosen / steps


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

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise InvalidValueError(f"weight must be a finite number above 0, got {self.weight}")


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

    def check(self, features: Features, outputs: int) -> None:
        """Refuse an ensemble from a folder that gives no finite logits; models of the user may refuse these rows.

        Raises:
            ModelFileError: It has no members, or a part is for another number of logits.
        """
        if not self.members:
            raise ModelFileError("ensemble.members is empty")
        for calibration in (self.calibration, *(member.calibration for member in self.members)):
            if np.shape(calibration.bias) != (outputs,) or np.ndim(calibration.temperature):
                raise ModelFileError(f"a calibration must have {outputs} finite numbers as its bias")
        for member in self.members:
            models = member.model.models if isinstance(member.model, MeanOfFolds) else [member.model]
            if not any(getattr(model, "takes_table", False) for model in models):
                logits = member.model.logits(features)
                if logits.shape != (len(features), outputs) or not np.isfinite(logits).all():
                    raise ModelFileError(f"{member.name}: the model gives no finite logits")

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
