"""From prepared rows to a fitted ensemble: folds, families, weights and the held-out logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from metricfit.decide.decisions import HeldOut, Refit, collect_held_out
from metricfit.metrics.curves import as_requirements
from metricfit.metrics.metric import get_metric
from metricfit.tabular.ensemble import Ensemble, ModelRow, OutOfFold, build_ensemble
from metricfit.tabular.families import make_families
from metricfit.tabular.families.family import Deadline
from metricfit.tabular.out_of_fold import FamilyResult, Progress, fit_families
from metricfit.tabular.parameters import threads_of
from metricfit.tabular.row_folds import FORWARD, choose_folds
from metricfit.tabular.training_rows import PreparedRows

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


@dataclass(frozen=True)
class FittedEnsemble:
    """What ``fit`` learned.

    Attributes:
        ensemble: The families with their weights.
        models: One row per family.
        held_out: The ensemble's calibrated out-of-fold logits.
        refit: Chooses weights and calibrations again, with other weights of the rows.
        history: One row per member and epoch of the network.
    """

    ensemble: Ensemble
    models: list[ModelRow]
    held_out: HeldOut
    refit: Refit
    history: list[dict[str, Any]]


def fit_ensemble(model: MetricClassifier, prepared: PreparedRows) -> FittedEnsemble:
    """Fit the families of a classifier on the folds of its rows, and build the ensemble."""
    rows, metric, requirements = prepared.rows, get_metric(model.metric), as_requirements(model.subject_to)
    families = make_families(
        model.models,
        metric=metric,
        average=model.average,
        requirements=requirements,
        device=torch.device(model.device or ("cuda" if torch.cuda.is_available() else "cpu")),
    )
    splits = choose_folds(rows, model.members, model.cv, prepared.groups, rows.features.table, prepared.seed)
    results, left_out = fit_families(
        families,
        rows,
        splits,
        seed=prepared.seed,
        jobs=threads_of(model.n_jobs),
        deadline=Deadline.after(model.time_budget),
        last_fold_only=isinstance(model.cv, str) and model.cv == FORWARD,
        watch=_print_progress if model.verbose else lambda _: None,
    )
    y = torch.from_numpy(rows.y)
    weight = None if prepared.weight is None else torch.from_numpy(prepared.weight)
    held_out = [collect_held_out(torch.from_numpy(result.logits), y, weight, prepared.groups) for result in results]
    first = held_out[0]
    out_of_fold = OutOfFold(tuple(family.logits for family in held_out), first.y, first.weight)
    ensemble, mixture, table = build_ensemble(results, left_out, out_of_fold, metric, model.average, requirements)
    return FittedEnsemble(
        ensemble,
        table,
        HeldOut(mixture(out_of_fold.logits), first.y, first.weight, first.groups, first.shares),
        out_of_fold.refit(metric, model.average, requirements),
        _history(results),
    )


def _history(results: list[FamilyResult]) -> list[dict[str, Any]]:
    """Return the history of the network, if there is one."""
    return [row for result in results for row in getattr(result.model, "history", [])]


def _print_progress(progress: Progress) -> None:
    if progress.finished:
        print(f"{progress.number}/{progress.families} {progress.family}: {progress.seconds:.1f} s", flush=True)
