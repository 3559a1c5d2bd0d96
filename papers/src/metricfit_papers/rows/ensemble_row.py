"""Rows of the kind "ensemble": networks of several splits with their logits averaged, after a search of settings.

Sangalli et al. 2021, Sections 4 and 5.2, Appendices B and E. A row's settings:

- ``training``: lists of settings of the training to choose from, such as ``lr`` and ``batch_size``;
- ``grid``: lists of the loss's arguments to choose from; "N/3" is a third of the negatives for each positive;
- ``class_counts``: true for losses that take the numbers of negatives and positives;
- ``constraint``: ``mu``, ``rho`` and ``margin``, lists to choose from, and ``without``, pairs of mu and rho left out.
  A protocol's own ``constraint`` replaces it. With ``fall``, mu grows as in the authors' repository: after a fall of
  the validation AUC by more than this, to at most mu times rho cubed.
  Each base network is then trained on with a RankingConstraint as an AugmentedLagrangian: first mu and rho are chosen,
  at the first margin, then the margin. If the table has a column of DeLong's test against training on, the base
  networks are also trained on without the constraint;
- ``again``: true to train the base networks further with only their loss, which shows what longer training does
  without a constraint.
"""

from __future__ import annotations

import copy
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.constraints import AugmentedLagrangian, RankingConstraint
from metricfit.errors import InvalidValueError
from metricfit.metrics.curves import auroc, fpr_at_tpr
from metricfit.stats import delong_test
from metricfit.train import FitResult
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.job import RowJob, TrialResult, positive_logits
from metricfit_papers.rows.setting_search import search
from metricfit_papers.rows.trial_fitting import compute_logits, fit_trials
from metricfit_papers.specs import column_names, vocabulary
from metricfit_papers.specs.expressions import build_object
from metricfit_papers.specs.table_spec import UNCONSTRAINED, TrainingSpec

SETTINGS = ("training", "grid", "class_counts", "constraint", "again")
CONSTRAINT = ("mu", "rho", "margin", "without", "fall")


@dataclass(frozen=True)
class Candidate:
    """The networks of one setting, one per trial, and the job with which they were trained."""

    job: RowJob
    setting: Mapping[str, Any]
    results: Sequence[FitResult]

    @property
    def value(self) -> float:
        """The mean over the trials of the best validation value."""
        return statistics.fmean(result.best for result in self.results)

    @property
    def epochs(self) -> int:
        """The largest number of epochs of a trial."""
        return max(len(result.history) for result in self.results)


def train_ensemble(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    """Return the numbers of the ensemble of all trials; the view "unconstrained" is about the base networks."""
    assert job.training is not None
    assert job.loss is not None
    if job.training.monitor != "auroc":
        raise InvalidValueError(
            f'a row of kind ensemble is chosen by training.monitor = "auroc", got {job.training.monitor!r}'
        )
    grid = _constraint_grid(job)
    _check(job.row.settings, grid)
    trainings, settings = (list(_grid(job.row.settings.get(key, {}))) for key in ("training", "grid"))
    jobs = [(replace(job, training=replace(job.training, **training)), training) for training in trainings]
    base, training = max(
        ((_base(candidate, trials, setting), training) for candidate, training in jobs for setting in settings),
        key=lambda pair: pair[0].value,
    )
    job = base.job
    chosen: dict[str, Any] = {"training": training} if training else {}
    chosen |= {"base": dict(base.setting), "validation AUC of the base": base.value}
    final, compared = base, dict[str, Candidate]()
    if grid is not None:
        fall = grid.pop("fall", None)
        final = search(partial(_constrained, job, trials, base, fall), lambda each: each.value, **grid)
        chosen |= {"constraint": dict(final.setting), "validation AUC": final.value}
        compared = {column_names.DELONG: base}
        if any(metric.startswith(column_names.DELONG_CONTROL) for metric in job.metrics.values()):
            control = _without_constraint(job, trials, base)
            compared[column_names.DELONG_CONTROL] = control
            chosen |= {"trained on": {"validation AUC": control.value, "test AUC": _test_auc(control, trials)}}
    elif job.row.settings.get("again"):
        final, compared = _without_constraint(job, trials, base), {column_names.DELONG: base}
        chosen |= {"validation AUC": final.value}
    others = {kind: _outputs(candidate, trials) for kind, candidate in compared.items()}
    after = _numbers(job, trials[0], _outputs(final, trials), others)
    before = _numbers(job, trials[0], _outputs(base, trials), {})
    values = {view: before if view == UNCONSTRAINED else after for view in job.views}
    epochs = base.epochs + (0 if final is base else final.epochs)
    seconds = base.results[0].seconds / sum(len(result.history) for result in base.results)
    return [TrialResult(values, epochs, seconds, chosen)]


def _base(job: RowJob, trials: Sequence[Trial], setting: Mapping[str, Any]) -> Candidate:
    return Candidate(job, setting, fit_trials(job, trials, objective=_loss(job, trials, setting)))


def _loss(job: RowJob, trials: Sequence[Trial], setting: Mapping[str, Any]) -> nn.Module:
    assert job.loss is not None
    positives = int(trials[0].y[trials[0].train].sum())
    negatives = len(trials[0].train) - positives
    arguments = {name: in_ratios(value, round(negatives / positives)) for name, value in setting.items()}
    if job.row.settings.get("class_counts"):
        arguments["class_counts"] = (negatives, positives)
    loss: nn.Module = build_object(job.loss, vocabulary.LOSSES, **arguments)
    return loss


def in_ratios(value: Any, ratio: int) -> Any:
    """Return a number unchanged, and text as a multiple of the ratio: "N" is the ratio, "2N/3" two thirds of it.

    >>> in_ratios("2N/3", 9), in_ratios("N", 9), in_ratios(0.5, 9)
    (6.0, 9.0, 0.5)
    """
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d*)N(?:/(\d+))?", value)
    if match is None:
        raise InvalidValueError(f"text in a grid must be like N, N/3 or 2N/3, got {value!r}")
    return int(match[1] or 1) * ratio / int(match[2] or 1)


def _constraint_grid(job: RowJob) -> dict[str, Any] | None:
    """Return the settings of the constraint, of the protocol or else of the row; None for a row without one."""
    own = job.row.settings.get("constraint")
    return None if own is None else dict(job.protocol.constraint or own)


def _constrained(
    job: RowJob, trials: Sequence[Trial], base: Candidate, fall: float | None, mu: float, rho: float, margin: float
) -> Candidate:
    """Train the base networks further with a constraint."""
    growth: dict[str, Any] = {} if fall is None else {"fall": fall, "mu_max": mu * rho**3}
    objective = AugmentedLagrangian(
        _loss(job, trials, base.setting),
        RankingConstraint(margin, size=len(trials[0].train)),
        mu=mu,
        rho=rho,
        **growth,
    )
    return _trained_on(job, trials, base, {"mu": mu, "rho": rho, "margin": margin}, objective)


def _without_constraint(job: RowJob, trials: Sequence[Trial], base: Candidate) -> Candidate:
    """Train the base networks further with their loss alone."""
    return _trained_on(job, trials, base, base.setting, _loss(job, trials, base.setting))


def _trained_on(
    job: RowJob, trials: Sequence[Trial], base: Candidate, setting: Mapping[str, Any], objective: nn.Module
) -> Candidate:
    """Train copies of the base networks further."""
    models = [copy.deepcopy(result.model).cpu().train() for result in base.results]  # where fit_trials expects new ones
    return Candidate(job, setting, fit_trials(job, trials, objective=objective, models=models))


def _outputs(candidate: Candidate, trials: Sequence[Trial]) -> Tensor:
    """Return the logits of each network for all test images, ``(networks, images)``."""
    inputs = trials[0].x[trials[0].every_test_rows]
    return torch.stack([positive_logits(compute_logits(result.model, inputs)).double() for result in candidate.results])


def _test_auc(candidate: Candidate, trials: Sequence[Trial]) -> float:
    """Return the AUC of the ensemble on the test images."""
    few = torch.searchsorted(trials[0].every_test_rows, trials[0].test)
    return auroc(_outputs(candidate, trials).mean(0)[few], trials[0].y[trials[0].test])


def _numbers(job: RowJob, trial: Trial, outputs: Tensor, others: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the value of each column; ``others`` are the outputs that each kind of DeLong's test compares with.

    Tests with nothing to compare with are left out.
    """
    all_rows = trial.every_test_rows
    few = torch.searchsorted(all_rows, trial.test)
    score, labels = outputs.mean(0), trial.y[all_rows]
    values: dict[str, float] = {}
    for column, metric in job.metrics.items():
        rows = slice(None) if metric.endswith(column_names.ON_ALL) else few
        kind = metric.removesuffix(column_names.ON_ALL)
        if kind == "auroc":
            values[column] = auroc(score[rows], labels[rows])
        elif kind in column_names.FPR_AT:
            values[column] = fpr_at_tpr(score[rows], labels[rows], column_names.FPR_AT[kind])
        elif kind == column_names.AUROC_OF_ONE:
            values[column] = statistics.fmean(auroc(member[rows], labels[rows]) for member in outputs)
        elif kind in others:
            values[column] = delong_test(score[rows], others[kind].mean(0)[rows], labels[rows]).p_value
    return values


def _grid(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _check(settings: Mapping[str, Any], constraint: Mapping[str, Any] | None) -> None:
    unknown = [key for key in settings if key not in SETTINGS]
    names = [field.name for field in fields(TrainingSpec)]
    if not set(settings.get("training", {})) <= set(names):
        raise InvalidValueError(
            f"settings.training of an ensemble are lists of {', '.join(names)}, got {settings['training']}"
        )
    if unknown:
        raise InvalidValueError(f"the settings of an ensemble are {', '.join(SETTINGS)}, got {', '.join(unknown)}")
    if constraint is not None and not set(CONSTRAINT[:3]) <= set(constraint) <= set(CONSTRAINT):
        raise InvalidValueError(f"a constraint's settings are lists of {', '.join(CONSTRAINT)}, got {dict(constraint)}")
