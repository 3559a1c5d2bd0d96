"""From prepared rows to a fitted ensemble: folds, families, weights and the held-out logits."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from numpy.typing import NDArray

from metricfit.decide.class_requirements import model_requirements
from metricfit.decide.costs import row_costs
from metricfit.decide.held_out import HeldOut, HeldOutPlaces, collect_held_out
from metricfit.metrics.metric import Metric, get_metric
from metricfit.runs.executor import runs_on_cluster
from metricfit.tabular.checks import threads_of
from metricfit.tabular.cross_fit import FEW_PARTS, FEWEST_FOLDS, PARTS, judges_of, judging_parts
from metricfit.tabular.ensemble import Ensemble, Mixture, ModelRow, OutOfFold, build_ensemble, cross_fit, fit_mixture
from metricfit.tabular.estimator_scores import SMALLEST_TRAINING_SHARE, check_training_share
from metricfit.tabular.families import make_families
from metricfit.tabular.families.family import Deadline, Family, Floats, Integers, TrainingRows
from metricfit.tabular.large_rows import CompactFeatures, split_large_table
from metricfit.tabular.out_of_fold import FamilyResult, FitTracker, choose_watcher, fit_families
from metricfit.tabular.row_folds import Splits, choose_folds, is_forward
from metricfit.tabular.training_rows import PreparedRows

log = logging.getLogger("metricfit.tabular")

#: Choosing the decision takes about a fifth as long as choosing the weights.
DECISION = 1.2

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


@dataclass(frozen=True)
class FittedEnsemble:
    """What ``fit`` learned.

    Attributes:
        ensemble: The families with their weights.
        models: One row per family.
        held_out: The ensemble's calibrated out-of-fold logits. Neither models nor calibrations nor weights were chosen
            on the rows that they are about.
        pooled_logits: The same rows as the final ensemble weights and calibrates them, as it does new rows.
        history: One row per member and epoch of the network.
        places: The rows of ``held_out``, and the number of the ensemble in ``judges`` that gives their logits.
        judges: The ensembles: for each fold one of its models, and with few folds several, for parts of its rows.
        training_share: The smallest share of the rows that the models of a fold were trained on.
    """

    ensemble: Ensemble
    models: list[ModelRow]
    held_out: HeldOut
    pooled_logits: Floats
    history: list[dict[str, Any]]
    places: HeldOutPlaces
    judges: tuple[Ensemble, ...]
    training_share: float


def fit_ensemble(model: MetricClassifier, prepared: PreparedRows) -> FittedEnsemble:
    """Fit the families of a classifier on the folds of its rows, and build the ensemble."""
    rows, metric = prepared.rows, get_metric(model.metric)
    requirements = model_requirements(model, has_labels=False)

    def collect(logits: Sequence[Floats]) -> tuple[OutOfFold, HeldOut]:
        return collect_out_of_fold(logits, rows.y, prepared.weight, prepared.groups, metric, prepared.columns)

    families, splits = families_of(model, rows.features.table), splits_of(model, prepared)
    places = _places(splits, prepared)

    first_parts: list[Integers] = []  # copies are known by the logits of the first family

    def value_of(logits: Floats) -> float:
        family, held_out = collect([logits])
        if not first_parts:
            first_parts.append(parts_of(held_out, places.folds))
        judges = cross_fit(family, first_parts[0], metric, model.average, requirements)
        selection = family.selection(metric, model.average, requirements)
        return selection.decided_value(judges.logits_of_family(0, family.logits[0]))

    def seconds_after(first: FamilyResult, families: int) -> float:
        """Time the weights of two families, of which there are more to choose from and parts of the rows to judge."""
        if not seconds_of_two:
            start = time.monotonic()
            twice, held_out = collect([first.logits, first.logits])
            fit_mixture(twice, metric, model.average, requirements)
            parts = len(np.unique(parts_of(held_out, places.folds)))
            seconds_of_two.append((time.monotonic() - start) * (parts + 1) * DECISION)
        return seconds_of_two[0] * families / 2

    seconds_of_two: list[float] = []
    training_share = share_of_training(rows, splits)
    if model.confidence is not None and model.calibration is None:
        check_training_share(training_share)
    watcher = choose_watcher(model.verbose)
    watcher.begin(model)
    deadline, jobs = Deadline.after(model.time_budget, watcher.stop), threads_of(model.n_jobs)
    if isinstance(rows.features, CompactFeatures):
        from metricfit.tabular.families.large_boosting import families_of_large_table  # needs LightGBM

        families, jobs = families_of_large_table(families, rows.features, jobs, deadline), 1
        if runs_on_cluster():
            log.warning("a table of this size is not sent to a cluster: its models are fitted in this process")
    elif runs_on_cluster():
        jobs = joblib.effective_n_jobs(model.n_jobs)  # -1 is one per core of all its machines
    names = [family.name for family in families]
    results, left_out = fit_families(
        families,
        rows,
        splits,
        seed=prepared.seed,
        jobs=jobs,
        deadline=deadline,
        last_fold_only=is_forward(model.cv),
        tracker=FitTracker(watcher, names, len(splits), deadline, value_of, metric.minimize),
        seconds_after=seconds_after,
    )
    out_of_fold, held_out = collect([result.logits for result in results])
    parts = parts_of(held_out, places.folds)
    numbers, pairs = judges_of(places.folds, parts)
    ensemble, mixture, judges, table = build_ensemble(
        results, left_out, out_of_fold, parts, metric, model.average, requirements
    )
    return FittedEnsemble(
        ensemble,
        table,
        replace(held_out, logits=judges.logits(out_of_fold.logits)),
        mixture(out_of_fold.logits),
        _history(results),
        replace(places, folds=numbers),
        tuple(_judge(results, judges.mixtures[part], fold) for fold, part in pairs),
        training_share,
    )


def share_of_training(rows: TrainingRows, splits: Splits) -> float:
    """Return the smallest share of the rows that a fold trains on; of the different rows, if many are copies.

    Copies stay in one fold, which may hold out half of the rows and still train on nearly all different ones.
    """
    share = min(len(np.unique(train)) for train, _ in splits) / len(rows)
    if share < SMALLEST_TRAINING_SHARE and not isinstance(rows.features, CompactFeatures):
        different, of_row = np.unique(rows.x, axis=0, return_inverse=True)
        of_row = of_row.reshape(-1)
        share = min(len(np.unique(of_row[train])) for train, _ in splits) / len(different)
    return share


#: More held-out rows are judged in fewer parts.
MANY_ROWS = 20_000


#: A fold is larger than this times the mean only if it holds many copies of one row.
UNEQUAL = 1.5


def parts_of(held_out: HeldOut, folds: Integers) -> Integers:
    """Return the part of each held-out row that is judged by the weights and calibrations of other parts.

    Parts are folds. If a fifth of the rows are copies of one row, the fold with them is divided too: weights that were
    chosen without them say nothing about the final weights. On a table of mammograms they flagged all of these rows,
    and the estimate of the precision was 0.045, where new rows had 0.12.
    """
    takes_long = held_out.logits.shape[1] > 1 or len(held_out.y) > MANY_ROWS
    sizes = np.bincount(folds)
    if held_out.groups is None and sizes.max() > UNEQUAL * sizes[sizes > 0].mean():
        folds = np.zeros_like(folds)
        return judging_parts(folds, held_out.y)
    together = held_out.with_copies_as_groups().groups if len(np.unique(folds)) < FEWEST_FOLDS else None
    return judging_parts(folds, held_out.y, together, FEW_PARTS if takes_long else PARTS)


def _judge(results: Sequence[FamilyResult], mixture: Mixture, fold: int) -> Ensemble:
    """Return the ensemble of a fold's models."""
    return mixture.ensemble([result.name for result in results], [result.fold_models[fold] for result in results])


def families_of(model: MetricClassifier, table: Any = None) -> list[Family]:
    """Return the families of a classifier for a table, the cheap ones first."""
    return make_families(
        model.models,
        metric=get_metric(model.metric),
        average=model.average,
        requirements=model_requirements(model, has_labels=False),
        device=model.device,
        table=table,
        quality=model.quality,
    )


def splits_of(model: MetricClassifier, prepared: PreparedRows) -> Splits:
    """Return the folds of a classifier, the same for all its families."""
    rows = prepared.rows
    if isinstance(rows.features, CompactFeatures) and (model.cv is None or isinstance(model.cv, Integral)):
        number = model.members if model.cv is None else int(model.cv)
        return split_large_table(rows.features, rows.y, prepared.groups, number, prepared.seed)
    return choose_folds(rows, model.members, model.cv, prepared.groups, rows.features.table, prepared.seed)


def collect_out_of_fold(
    logits: Sequence[Floats],
    y: Integers,
    weight: Floats | None,
    groups: NDArray[Any] | None,
    metric: Metric,
    columns: Mapping[str, Floats],
) -> tuple[OutOfFold, HeldOut]:
    """Collect the rows that were held out by some model.

    Args:
        logits: For each family, the out-of-fold logits of all rows, NaN for rows that no model held out.
        y: Class numbers.
        weight: One weight per row, or None.
        groups: The group of each row, or None.
        metric: The metric.
        columns: The columns that it takes costs from, by name.

    Returns:
        The held-out rows with the logits of all families, and the same rows with the logits of the first family.
    """
    first = collect_held_out(logits[0], y, weight, groups, columns)
    costs = row_costs(metric, first.columns, len(first.y)) if metric.columns else None
    held_out = np.stack([values[~np.isnan(values).any(1)] for values in logits])
    return OutOfFold(held_out, first.y, first.weight, costs), first


def folds_of_rows(splits: Splits, rows: int) -> Integers:
    """Return the fold that holds out each row, -1 for none."""
    folds = np.full(rows, -1)
    for fold, (_, part) in enumerate(splits):
        folds[part] = fold
    return folds


def _places(splits: Splits, prepared: PreparedRows) -> HeldOutPlaces:
    """Return which rows of the user's table were held out, and by which fold."""
    folds = folds_of_rows(splits, len(prepared.rows))
    held_out_rows = folds >= 0
    return HeldOutPlaces(prepared.numbers[held_out_rows], folds[held_out_rows], prepared.total)


def _history(results: list[FamilyResult]) -> list[dict[str, Any]]:
    """Return the history of the network, if there is one."""
    return [row for result in results for row in getattr(result.model, "history", [])]
