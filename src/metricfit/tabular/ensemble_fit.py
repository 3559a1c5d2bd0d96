"""From prepared rows to a fitted ensemble: folds, families, weights and the held-out logits."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.class_weight import compute_class_weight

from metricfit.core.arrays import Floats, Integers
from metricfit.data.reading import ParquetTable
from metricfit.decide.costs import cost_columns, row_costs
from metricfit.decide.held_out import HeldOut, HeldOutPlaces, collect_held_out
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.class_order import declared_order
from metricfit.metrics.curves import as_requirements
from metricfit.metrics.metric import Metric, get_metric
from metricfit.metrics.requirements import Requirement
from metricfit.runs.executor import runs_on_cluster
from metricfit.tabular.checks import (
    FitRows,
    check_parameters,
    checked_groups,
    checked_labels,
    checked_rows,
    checked_table,
    checked_weights,
    takes_row_numbers,
    threads_of,
)
from metricfit.tabular.chosen import Basis
from metricfit.tabular.cross_fit import FEW_PARTS, FEWEST_FOLDS, PARTS, judges_of, judging_parts
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble import Ensemble, Mixture, ModelRow, OutOfFold, build_ensemble, cross_fit, fit_mixture
from metricfit.tabular.estimator_scores import SMALLEST_TRAINING_SHARE, check_training_share
from metricfit.tabular.families.choice import make_families
from metricfit.tabular.families.family import Deadline, Family, Features, TrainingRows
from metricfit.tabular.large_rows import CompactFeatures, encode_large_table, is_large, split_large_table
from metricfit.tabular.out_of_fold import FamilyResult, FitTracker, choose_watcher, fit_families
from metricfit.tabular.positive_class import ClassNames
from metricfit.tabular.row_folds import Splits, choose_folds, is_forward

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


@dataclass(frozen=True)
class PreparedRows:
    """The rows of ``fit``.

    Attributes:
        names: The classes.
        encoder: The encoder that was fitted to the rows.
        rows: The rows with their weights in training, which include the weights of the classes.
        weight: The sample weights alone, or None.
        groups: The group of each row, or None.
        seed: Seed of everything random.
        columns: Columns of the table with the costs of each row, if the metric takes costs from columns.
        numbers: The number of each row in the table that was passed; rows of weight 0 are left out.
        total: The number of rows of that table.
    """

    names: ClassNames
    encoder: TableEncoder
    rows: TrainingRows
    weight: Floats | None
    groups: NDArray[Any] | None
    seed: int
    columns: Mapping[str, Floats]
    numbers: Integers
    total: int


def prepare_rows(
    model: MetricClassifier,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    encoded: tuple[TableEncoder, NDArray[np.float32]] | None = None,
    apart: FitRows | None = None,
) -> PreparedRows:
    """Check what was passed to ``fit``, and encode the table.

    Args:
        model: The classifier.
        X: The table.
        y: The labels.
        sample_weight: One weight per row, or None.
        groups: One group per row, or None.
        encoded: An encoder that was fitted to all these rows, and the rows as numbers; None to fit one.
        apart: Rows that are kept apart to choose the decision on, or None.

    Returns:
        The rows as numbers, with weights, groups and the seed.
    """
    check_parameters(model)
    metric = get_metric(model.metric)
    as_requirements(model.subject_to)  # what cannot be read is reported before the table is looked at
    table = checked_table(model, X, reset=True)
    given = checked_rows(table, checked_labels(model, y), sample_weight, groups, model.cv)
    table, labels, weight, group = given.X, given.y, given.weight, given.groups
    features: Features | CompactFeatures
    names = model._names_of(labels, declared_order(y), None if apart is None else np.concatenate([labels, apart.y]))
    if apart is not None:
        _check_classes(model.calibration, names.classes, apart.y)
    columns = cost_columns(metric, table)
    model._check_decision(names, given if apart is None else apart, columns)
    encoder = TableEncoder()
    if encoded is not None:
        encoder, features = encoded[0], Features(encoded[1], table)
    elif is_large(table):
        encoder, features = encode_large_table(table)
    else:
        features = Features(encoder.fit(table), table)
    in_training = _training_weights(labels, names.classes, model.class_weight, weight)
    if in_training is not None:  # penalties and limits of the families are for weights of 1 on average
        in_training = in_training / in_training.mean()
    rows = TrainingRows(features, names.numbers_of(labels), in_training, len(names.classes))
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    return PreparedRows(names, encoder, rows, weight, group, seed, columns, given.numbers, given.total)


def _training_weights(
    labels: NDArray[Any], classes: NDArray[Any], class_weight: Any, weight: NDArray[np.float64] | None
) -> Floats | None:
    """Multiply row weights by class weights, so that members also stop early by the loss that they are trained on."""
    if class_weight is not None:
        _check_class_weight(class_weight, classes)
        class_weights = compute_class_weight(class_weight, classes=classes, y=labels)
        row_weights = class_weights[np.searchsorted(classes, labels)]
        weight = row_weights if weight is None else row_weights * weight
    return weight


def _check_class_weight(class_weight: Any, classes: NDArray[Any]) -> None:
    """Refuse what is neither "balanced" nor a weight above 0 for labels that there are."""
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown:
            raise InvalidValueError(f"class_weight names {quote(unknown[0])}, which is none of {classes.tolist()}")
        for label, weight in class_weight.items():
            if not isinstance(weight, Real) or isinstance(weight, bool) or not 0 < float(weight) < np.inf:
                raise InvalidValueError(f"class_weight: weights are above 0, but {quote(label)} has {quote(weight)}")
    elif not isinstance(class_weight, str) or class_weight != "balanced":
        raise InvalidValueError(
            f"class_weight is 'balanced', a weight for each label such as {{{classes.tolist()[0]!r}: 2.0}}, or None; "
            f"got {quote(class_weight)}"
        )


#: Makes the draw differ from others with the same seed.
DRAW = 2_718


def _check_classes(share: float | None, classes: NDArray[Any], labels: NDArray[Any]) -> None:
    """Refuse calibration rows of other classes than the training rows."""
    unknown, missing = np.setdiff1d(labels, classes), np.setdiff1d(classes, labels)
    if len(unknown) or len(missing):
        label, part = (unknown.tolist()[0], "training") if len(unknown) else (missing.tolist()[0], "calibration")
        raise InvalidValueError(
            f"calibration={share:g} leaves no {part} row of class {quote(label)}: drop the class, or keep "
            "another share of the rows apart"
        )


def basis_apart(
    names: ClassNames, seed: int, apart: FitRows, logits: Floats, metric: Metric, ensemble: Ensemble
) -> Basis:
    """Return the calibration rows with the logits of the fitted ensemble."""
    numbers, columns = names.numbers_of(apart.y), cost_columns(metric, apart.X)
    held_out = collect_held_out(logits, numbers, apart.weight, apart.groups, columns)
    places = HeldOutPlaces(apart.numbers, np.zeros(len(numbers), dtype=np.int64), apart.total)
    return Basis(names, held_out, seed, places=places, scorers=(ensemble,))


def keep_apart(
    model: MetricClassifier, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[tuple[Any, Any, Any, Any], FitRows | None]:
    """Divide the rows of ``fit`` into training rows and calibration rows.

    These are drawn at random, and not stratified, so that they are independent draws of the population. Of rows in
    groups whole groups are drawn, and of rows in the order of time the last ones are kept apart.

    Args:
        model: The classifier.
        X: The table.
        y: The labels.
        sample_weight: One weight per row, or None.
        groups: One group per row, or None.

    Returns:
        The table, the labels, the weights and the groups of the training rows, which are all rows without
        ``calibration``, and the calibration rows.

    Raises:
        InvalidValueError: The rows cannot be divided.
    """
    share = model.calibration
    if share is None:
        return (X, y, sample_weight, groups), None
    if isinstance(X, ParquetTable):
        raise InvalidValueError(
            "calibration= divides tables in memory: read the files into a DataFrame, or keep rows apart in other files "
            "and leave calibration out"
        )
    if takes_row_numbers(model.cv) and not is_forward(model.cv):
        raise InvalidValueError("calibration= keeps rows apart, and cv= counts all rows: give a number of folds")
    labels = checked_labels(model, y)
    check_consistent_length(X, labels)
    weight, group = checked_weights(sample_weight, labels), checked_groups(groups, labels)
    there = np.arange(len(labels)) if weight is None else np.flatnonzero(weight)
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    groups_there = None if group is None else group[there]
    apart = draw_apart(there, groups_there, share, forward=is_forward(model.cv), seed=seed)
    rows = FitRows(X, y, weight, group, np.arange(len(labels)), len(labels))
    training = rows.take(np.setdiff1d(there, apart))
    return (training.X, training.y, training.weight, training.groups), replace(rows.take(apart), y=labels[apart])


def draw_apart(
    rows: NDArray[np.int64], groups: NDArray[Any] | None, share: float, *, forward: bool, seed: int
) -> NDArray[np.int64]:
    """Draw a share of the rows, or of the groups; of rows in the order of time, return the last ones.

    Raises:
        InvalidValueError: No row would be kept apart, or all of them.
    """
    if forward:
        apart = rows[len(rows) - max(1, round(share * len(rows))) :]
    else:
        unit = np.arange(len(rows)) if groups is None else pd.factorize(groups)[0]
        units = int(unit.max()) + 1
        drawn = np.random.default_rng((seed, DRAW)).permutation(units)[: round(share * units)]
        apart = rows[np.isin(unit, drawn)]
    if not 0 < len(apart) < len(rows):
        raise InvalidValueError(f"calibration={share:g} of {len(rows)} rows leaves no rows in one of the parts")
    return apart


log = logging.getLogger("metricfit.tabular")

#: Choosing the decision takes about a fifth as long as choosing the weights.
DECISION = 1.2


@dataclass(frozen=True)
class FittedEnsemble:
    """What ``fit`` learned.

    Attributes:
        ensemble: The families with their weights.
        models: One row per family.
        basis: The ensemble's calibrated out-of-fold logits. Neither models nor calibrations nor weights were chosen
            on the rows that they are about. Its scorers are ensembles: for each fold one of its models, and with few
            folds several, for parts of its rows.
        history: One row per member and epoch of the network.
    """

    ensemble: Ensemble
    models: list[ModelRow]
    basis: Basis
    history: list[dict[str, Any]]


def fit_ensemble(model: MetricClassifier, prepared: PreparedRows) -> FittedEnsemble:
    """Fit the families of a classifier on the folds of its rows, and build the ensemble."""
    rows, metric = prepared.rows, get_metric(model.metric)
    requirements = prepared.names.requirements(model.subject_to)

    def collect(logits: Sequence[Floats]) -> tuple[OutOfFold, HeldOut]:
        return collect_out_of_fold(logits, rows.y, prepared.weight, prepared.groups, metric, prepared.columns)

    families, splits = families_of(model, requirements, rows.features.table), splits_of(model, prepared)
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
    basis = Basis(
        prepared.names,
        replace(held_out, logits=judges.logits(out_of_fold.logits)),
        prepared.seed,
        training_share,
        pooled=mixture(out_of_fold.logits),
        places=replace(places, folds=numbers),
        scorers=tuple(_judge(results, judges.mixtures[part], fold) for fold, part in pairs),
    )
    return FittedEnsemble(ensemble, table, basis, _history(results))


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


def families_of(model: MetricClassifier, requirements: Sequence[Requirement], table: Any = None) -> list[Family]:
    """Return the families of a classifier for a table, the cheap ones first."""
    return make_families(
        model.models,
        metric=get_metric(model.metric),
        average=model.average,
        requirements=requirements,
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
