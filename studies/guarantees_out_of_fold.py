"""What cross-validated scores do to a guarantee: the part of guarantees.py that trains models.

A draw is a small sample of a table. The threshold is certified on out-of-fold scores, each by a model of the other
folds, and judged by other rows (2,000 positives at least), scored in three ways: by the mean of the folds' models (as
``TunedDecisionClassifier`` does), by one model fitted on all rows of the draw (its ``ensemble=False``), or, for
``MetricClassifier``, by itself. Each is tested at the whole of alpha and, with the margin that both estimators keep,
at half of it. Beside it a model of 70 % of the rows, certified on the other 30 % at the whole of alpha.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from metricfit.core.counts import Counts
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.certified import check_guarantee, choose_certified
from metricfit.decide.rules import Goal, Guarantee
from metricfit.metrics import get_metric, parse_requirement
from metricfit.metrics.feasibility import InfeasibleError

CONFIDENCE, FOLDS = 0.9, 5
#: Ends the name of a way that is tested at half of alpha.
MARGIN = ", with the margin"
#: Rows of a draw, rows to judge by, and the metric and the requirement of each case.
TABLES: dict[str, tuple[int, int, list[tuple[str, str]]]] = {
    "adult": (
        600,
        12_000,
        [("precision", "recall >= 0.8"), ("recall", "precision >= 0.6"), ("recall", "fpr <= 0.1")],
    ),
    "diabetes_100k": (
        1_000,
        26_000,
        [("precision", "recall >= 0.7"), ("recall", "precision >= 0.7"), ("recall", "fpr <= 0.05")],
    ),
}


def learners(seed: int) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "boosted trees": HistGradientBoostingClassifier(max_iter=60, random_state=seed),
        "random forest": RandomForestClassifier(50, n_jobs=1, random_state=seed),
    }


def logits_of(model: Any, x: Any) -> Any:
    probability = np.clip(model.predict_proba(x)[:, 1], 1e-4, 1 - 1e-4)
    return np.log(probability / (1 - probability))


def scores_of(learner: Any, x: Any, y: Any, new: Any, seed: int) -> dict[str, tuple[Any, Any, Any]]:
    """Logits and labels to certify on, and logits of the new rows, in each of the three ways."""
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold, train_test_split

    held_out, of_folds = np.empty(len(y)), []
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(x, y):
        model = clone(learner).fit(x[train], y[train])
        held_out[test] = logits_of(model, x[test])
        of_folds.append(logits_of(model, new))
    refitted = logits_of(clone(learner).fit(x, y), new)
    train, rest = train_test_split(np.arange(len(y)), test_size=0.3, random_state=seed)
    apart = clone(learner).fit(x[train], y[train])
    return {
        "out of fold, mean of the folds' models": (held_out, y, np.mean(of_folds, axis=0)),
        "out of fold, fitted again on all rows": (held_out, y, refitted),
        "calibration rows apart": (logits_of(apart, x[rest]), y[rest], logits_of(apart, new)),
    }


def judge(
    z: Any, y: Any, new: Any, labels: Any, metric: str, requirement: str, seed: int, *, out_of_fold: bool = False
) -> list[float] | None:
    """Whether the requirement fails on the new rows, the metric and the rate there; None without a threshold."""
    required, target = parse_requirement(requirement), torch.as_tensor(y)
    try:
        check_guarantee([required], target, CONFIDENCE)
    except InfeasibleError:
        return None
    calibration = fit_calibration(torch.as_tensor(z)[:, None], target, None)
    logits, guarantee = calibration(torch.as_tensor(z)[:, None]).squeeze(1), Guarantee(CONFIDENCE, seed, out_of_fold)
    chosen = choose_certified(logits, target, None, Goal(get_metric(metric), [required], guarantee=guarantee))
    if not chosen.feasible:
        return None
    decided = (calibration(torch.as_tensor(new)[:, None]).squeeze(1) >= chosen.threshold).long()
    counts = Counts.from_labels(decided, torch.as_tensor(labels))
    fails = not bool(required.holds(counts).all())
    return [float(fails), round(get_metric(metric)(counts).item(), 5), round(required.metric(counts).item(), 5)]


def judge_draw(name: str, data: Path, draw: int, folder: Path) -> None:
    """Judge every estimator on one draw of a table."""
    from metricfit import MetricClassifier
    from metricfit.tabular.encoding.encoder import TableEncoder
    from metricfit_papers.datasets import load

    path = folder / f"out-of-fold-{name}-{draw}.json"
    if path.exists():
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    size, new_size, cases = TABLES[name]
    rows = load(name, data)
    labels = np.asarray(rows.y, dtype=np.int64)
    order = np.random.default_rng((draw, 1_018)).permutation(len(labels))
    drawn, others = order[:size], order[size : size + new_size]
    y, y_new = labels[drawn], labels[others]
    assert y_new.sum() >= 2000
    encoder = TableEncoder()
    x = encoder.fit(rows.X.iloc[drawn])
    new = encoder.transform(rows.X.iloc[others])
    found: dict[str, list[Any]] = {}
    for learner, estimator in learners(draw).items():
        for way, scores in scores_of(estimator, x, y, new, draw).items():
            for margin in ("", MARGIN) if way.startswith("out of fold") else ("",):
                found[f"{learner}: {way}{margin}"] = [
                    judge(*scores, y_new, *case, draw, out_of_fold=bool(margin)) for case in cases
                ]
    model = MetricClassifier("f1", models=["linear", "boosting_small"], members=FOLDS, n_jobs=1, random_state=draw)
    model.fit(rows.X.iloc[drawn], y)
    z = model.held_out_.logits[:, 0]
    z_new = model._logits(rows.X.iloc[others])[:, 0]
    for margin in ("", MARGIN):
        found[f"MetricClassifier{margin}"] = [
            judge(z, model.held_out_.y, z_new, y_new, *case, draw, out_of_fold=bool(margin)) for case in cases
        ]
    path.write_text(json.dumps(found))


def judge_estimators(data: Path, folder: Path, draws: int, jobs: int) -> None:
    """Judge all draws of all tables, and gather them per table."""
    cells = [(name, draw) for draw in range(draws) for name in TABLES]
    Parallel(jobs)(delayed(judge_draw)(name, data, draw, folder) for name, draw in cells)


def gather(folder: Path) -> list[dict[str, Any]]:
    """Summarise the draws that are there, one table after the other."""
    from studies.guarantees import summary

    gathered = []
    for name, (size, _, cases) in TABLES.items():
        drawn = [json.loads(path.read_text()) for path in sorted(folder.glob(f"out-of-fold-{name}-*.json"))]
        ways = {}
        for way in dict.fromkeys(way for draw in drawn for way in draw):
            results = [draw[way] for draw in drawn if way in draw]
            ways[way] = [summary([result[place] for result in results]) for place in range(len(cases))]
        gathered.append({"table": name, "rows": size, "cases": cases, "ways": ways})
    return gathered
