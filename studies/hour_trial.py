"""Awkward tables, as a newcomer meets them: ``metricfit fit`` beside LightGBM with TunedThresholdClassifierCV.

    python -m studies.hour_trial --data ../shared/data            # all tables; finished ones are kept
    python -m studies.hour_trial --data ../shared/data --table drift
    python -m studies.hour_trial                                  # write the page's table from the results

metricfit gets the files as they are. The rival gets tables that are read already: dates as numbers, words as
categories, rows without a label left out, words of free text counted. Seconds are processor seconds of whole commands.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score, fbeta_score, make_scorer, matthews_corrcoef, precision_score, recall_score
from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline

from studies.awkward_tables import TABLES, AwkwardTable
from studies.common import fill, table

RESULTS = Path(__file__).resolve().parent / "results" / "hour_trial.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
PRECISION = 0.9
Labels = np.ndarray[Any, Any]


def recall_at_precision(y: Labels, called: Labels) -> float:
    """Recall where the precision is reached, and otherwise below 0, so that more precision is better."""
    precision = precision_score(y, called, zero_division=0)
    return float(recall_score(y, called) if precision >= PRECISION else precision - 1)


#: What scikit-learn calls each metric; higher is better.
SCORES: dict[str, Callable[[Labels, Labels], float]] = {
    "f1": f1_score,
    "2*tp/(2*tp + fp + fn)": f1_score,
    "fbeta(beta=2)": lambda y, called: fbeta_score(y, called, beta=2),
    "mcc": matthews_corrcoef,
    "gmean": lambda y, called: np.sqrt(recall_score(y, called) * recall_score(~y, ~called)),
    "cost(fp=1, fn=10)": lambda y, called: -(np.sum(called & ~y) + 10 * np.sum(~called & y)) / len(y),
    "recall": recall_at_precision,
}


def predict_by_rival(trial: AwkwardTable, folder: Path) -> None:
    """Fit LightGBM with a tuned threshold on the tables of a folder, and write what it calls the held-out rows."""
    train, test = (pd.read_parquet(folder / f"{part}.parquet") for part in ("train", "test"))
    y = train.pop(trial.target)
    test = test.drop(columns=trial.target)
    for name in train.columns:
        if pd.api.types.is_datetime64_any_dtype(train[name]):
            train[name], test[name] = train[name].astype("int64"), test[name].astype("int64")
        elif name != "message" and not pd.api.types.is_numeric_dtype(train[name]):
            kind = pd.CategoricalDtype(sorted(train[name].dropna().unique()))
            train[name], test[name] = train[name].astype(kind), test[name].astype(kind)
    model: Any = LGBMClassifier(n_jobs=1, random_state=0, verbose=-1)
    if "message" in train.columns:
        words = (TfidfVectorizer(min_df=3), "message")
        others = ("passthrough", [name for name in train.columns if name not in ("message", "channel")])
        model = make_pipeline(make_column_transformer(words, others, sparse_threshold=0), model)
    if trial.positive is not None:
        y = y == trial.positive
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        model = TunedThresholdClassifierCV(model, scoring=make_scorer(SCORES[trial.metric]), cv=folds)
    called = model.fit(train, y).predict(test)
    pd.DataFrame({"called": called}).to_parquet(folder / "rival.parquet")


def run_command(*words: object) -> float:
    """Run a command and return its seconds on the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(trial: AwkwardTable, data: Path) -> dict[str, Any]:
    """Fit both on a table, and judge them on its held-out rows."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        train, test = trial.make(data)
        files = [trial.write(part, folder / f"{name}-file") for name, part in (("train", train), ("test", test))]
        for name, part in (("train", train), ("test", test)):
            clean = part.dropna(subset=trial.target).drop(columns=list(trial.unused))
            clean.reset_index(drop=True).to_parquet(folder / f"{name}.parquet")
        asked = ("--target", trial.target, "--metric", trial.metric, *trial.options, "--jobs", 1, "--quiet")
        metricfit = ("-m", "metricfit.cli.app")
        seconds = run_command(*metricfit, "fit", files[0], *asked, "--out", folder / "model")
        run_command(*metricfit, "predict", folder / "model", files[1], "--out", folder / "ours.parquet")
        rival_seconds = run_command("-m", "studies.hour_trial", "--table", trial.name, "--rival", folder)
        labelled = test[trial.target].notna().to_numpy()
        truth = test[trial.target].to_numpy()[labelled]
        ours = pd.read_parquet(folder / "ours.parquet")["predicted"].to_numpy()[labelled]
        rival = pd.read_parquet(folder / "rival.parquet")["called"].to_numpy()
    if trial.positive is None:
        return judge(truth, ours, rival, lambda y, called: f1_score(y, called, average="macro")) | {
            "seconds": seconds,
            "rival_seconds": rival_seconds,
            "rows": len(train),
        }
    y, ours, rival = truth == trial.positive, ours == trial.positive, rival.astype(bool)
    found = judge(y, ours, rival, SCORES[trial.metric])
    rates = {
        name: [float(recall_score(y, called)), float(precision_score(y, called, zero_division=0))]
        for name, called in (("ours", ours), ("rival", rival))
    }
    return found | {"seconds": seconds, "rival_seconds": rival_seconds, "rows": len(train), "recall_precision": rates}


def judge(
    y: Labels, ours: Labels, rival: Labels, score: Callable[[Labels, Labels], float], draws: int = 400
) -> dict[str, Any]:
    """Return both scores, and the 95 % interval of their difference from resampled held-out rows."""
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, len(y), len(y)) for _ in range(draws)]
    differences = [score(y[rows], ours[rows]) - score(y[rows], rival[rows]) for rows in drawn]
    low, high = np.percentile(differences, [2.5, 97.5])
    return {
        "ours": float(score(y, ours)),
        "rival": float(score(y, rival)),
        "interval": [float(low), float(high)],
        "held_out": len(y),
    }


def write_page(results: dict[str, Any]) -> None:
    rows = []
    for trial in TABLES:
        if trial.name not in results:
            continue
        found = results[trial.name]
        sign = -1 if trial.metric.startswith("cost") else 1
        ours, rival = f"{sign * found['ours']:.3f}", f"{sign * found['rival']:.3f}"
        low, high = found["interval"]
        difference = f"{found['ours'] - found['rival']:+.3f} ({low:+.3f} to {high:+.3f})"
        if trial.metric == "recall":
            rates = found["recall_precision"]
            ours, rival = (f"{rates[who][0]:.3f} at {rates[who][1]:.2f}" for who in ("ours", "rival"))
            difference = f"{rates['ours'][0] - rates['rival'][0]:+.3f} in recall"
        judged = {
            "2*tp/(2*tp + fp + fn)": "own formula of F1",
            "fbeta(beta=2)": "F2",
            "recall": "recall at precision 0.9",
        }
        metric = "macro F1" if trial.positive is None else judged.get(trial.metric, trial.metric)
        won = "**" if low > 0 or (trial.metric == "recall" and found["ours"] > found["rival"]) else ""
        cells = [trial.words, f"{found['rows']:,}", metric, f"{won}{ours}{won}", rival, difference]
        rows.append([*cells, f"{found['seconds']:.0f}", f"{found['rival_seconds']:.0f}"])
    head = ["table", "rows", "judged by", "metricfit", "LightGBM, tuned threshold", "better by (95 %)", "s", "its s"]
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"trial": table(head, rows)}), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the datasets of metricfit_papers.datasets.load")
    parser.add_argument("--table", choices=[trial.name for trial in TABLES], help="only this one")
    parser.add_argument("--rival", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    chosen = [trial for trial in TABLES if given.table in (None, trial.name)]
    if given.rival is not None:
        predict_by_rival(chosen[0], given.rival)
        return
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for trial in chosen if given.data is not None else ():
        if given.table is None and trial.name in results:
            continue
        results[trial.name] = measure(trial, given.data)
        print(trial.name, results[trial.name], flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page(results)


if __name__ == "__main__":
    main()
