"""Rows of the kind "svm-perf": a linear SVM for a metric, with its C chosen on the validation rows.

Settings: ``metric``, as for SVMPerf; ``C``, a list to choose from.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.job import RowJob, TrialResult
from metricfit_papers.rows.trial_scores import Values, score_views
from metricfit_papers.specs.column_names import RANKINGS
from metricfit_papers.specs.table_spec import TUNED

Scores = NDArray[np.float64]


def train_svm_perf(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    """Train one SVM per trial; trials with the same rows share it, because nothing in it is random."""
    results: dict[int, TrialResult] = {}
    for trial in trials:
        if id(trial.x) not in results:
            results[id(trial.x)] = TrialResult(values_of(job, trial, *_decisions(job, trial)))
    return [results[id(trial.x)] for trial in trials]


def values_of(job: RowJob, trial: Trial, test: Scores, watched: Scores) -> Values:
    """Score an SVM by the sign of its output, or by its output if thresholds are tuned."""
    labels = trial.y[trial.test], trial.y[trial.validation]
    scores = [torch.from_numpy(part) for part in (test, watched)]
    signs = [(part > 0).double() for part in scores]
    rankings = {key for key, metric in job.metrics.items() if metric in RANKINGS}
    by_score, by_sign = (
        score_views((parts[0], labels[0]), (parts[1], labels[1]), job.metrics, job.views, auroc_of=job.protocol.auroc)
        for parts in (scores, signs)
    )
    decided = {view: (by_score if view.startswith(TUNED) else by_sign)[view] for view in job.views}
    if job.protocol.auroc == "labels":
        return decided
    return {view: values | {key: by_score[view][key] for key in rankings} for view, values in decided.items()}


def _decisions(job: RowJob, trial: Trial) -> tuple[Scores, Scores]:
    """Return scores of the test and validation rows, with the C that was the best on the validation rows."""
    best: tuple[float, Any] | None = None
    x, y = trial.x.double().numpy(), trial.y.numpy()
    for C in job.row.settings["C"]:
        model = _fitted(job.row.settings["metric"], float(C), x[trial.train], y[trial.train])
        value = model.score(x[trial.validation], y[trial.validation])
        if best is None or value > best[0]:
            best = value, model
    assert best is not None
    test, watched = (best[1].decision_function(x[rows]) for rows in (trial.test, trial.validation))
    return np.asarray(test, dtype=np.float64), np.asarray(watched, dtype=np.float64)


def _fitted(metric: str, C: float, x: Scores, y: NDArray[np.int64]) -> Any:
    # Imported here, because rows of networks need neither scikit-learn's estimators nor the solver.
    from sklearn.exceptions import ConvergenceWarning

    from metricfit_papers.baselines.svm_perf import SVMPerf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a C too large for its planes loses on the validation rows
        return SVMPerf(metric, C=C).fit(x, y)
