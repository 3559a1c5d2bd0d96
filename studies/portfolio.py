"""Which settings are worth their seconds, beside the default's: no portfolio of settings is in ``quality="best"``.

    python -m studies.portfolio fit --data ../shared/data   # fit every setting; finished cells are kept
    python -m studies.portfolio judge                       # judge
    python -m studies.portfolio                             # write the page's tables from the results

Every cell is a draw of about 1,200 training rows of one of the nineteen study tables, more if positives are rare, and
of other rows that judge. The portfolio "best" was chosen on split 0, and the others judge it. It gained nothing, so
``quality="best"`` has CatBoost and XGBoost as families of their own, with their usual settings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from metricfit.metrics import get_metric
from metricfit.stats import compare
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families.boosting import SMALL, Boosting, Trees
from metricfit.tabular.families.choice import DEFAULT
from metricfit.tabular.families.family import Deadline, Features, TrainingRows
from metricfit.tabular.families.forest import ExtraTrees
from metricfit.tabular.families.kernel import Kernel
from metricfit.tabular.families.linear import Linear
from metricfit.tabular.families.other_boosting import OtherBoosting
from metricfit.tabular.families.user_model import UserModel
from metricfit.tabular.out_of_fold import fit_family
from metricfit.tabular.row_folds import stratified_folds
from metricfit_papers.datasets import STUDY, load
from studies.common import fill, table
from studies.tables import Judge

RESULTS = Path(__file__).resolve().parent / "results" / "portfolio.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
MOST_TRAINING, MOST_JUDGING, FEWEST_POSITIVES, FOLDS = 1200, 5000, 15, 5


def candidates() -> dict[str, Callable[[], Any]]:
    """Return all settings by name; the names of the default's families are theirs."""

    def lightgbm(name: str, patience: int = 40, **parameters: Any) -> Callable[[], Any]:
        return lambda: Boosting(name, Trees(parameters, patience))

    drawn = {"bagging_fraction": 0.8, "bagging_freq": 1}
    return {
        "linear": Linear,
        "kernel": Kernel,
        "kernel_wide": lambda: ScaledKernel(0.3, 10.0),
        "kernel_narrow": lambda: ScaledKernel(3.0, 3.0),
        "boosting": Boosting,
        "boosting_small": lambda: Boosting("boosting_small", SMALL),
        "boosting_stumps": lightgbm(
            "boosting_stumps", num_leaves=4, min_child_samples=5, feature_fraction=0.5, **drawn
        ),
        "boosting_seven": lightgbm(
            "boosting_seven", num_leaves=7, min_child_samples=5, feature_fraction=0.6, lambda_l2=1.0, **drawn
        ),
        "boosting_random": lightgbm(
            "boosting_random", num_leaves=15, extra_trees=True, min_child_samples=3, feature_fraction=0.7, lambda_l2=1.0
        ),
        "boosting_strong": lightgbm(
            "boosting_strong", num_leaves=31, min_child_samples=40, feature_fraction=0.8, lambda_l2=10.0, **drawn
        ),
        "boosting_deep": lightgbm(
            "boosting_deep", num_leaves=63, min_child_samples=2, feature_fraction=0.4, lambda_l1=0.5, **drawn
        ),
        "extra_trees": ExtraTrees,
        "extra_trees_all": forest("extra_trees_all", ExtraTreesClassifier(200, max_features=1.0)),
        "extra_trees_few": forest("extra_trees_few", ExtraTreesClassifier(200, max_features="sqrt")),
        "random_forest": forest("random_forest", RandomForestClassifier(200, max_features="sqrt")),
        "random_forest_half": forest("random_forest_half", RandomForestClassifier(200, max_features=0.5)),
        "catboost": lambda: OtherBoosting("catboost"),
        "catboost_shallow": lambda: shallow("catboost", {"depth": 4, "l2_leaf_reg": 5, "rsm": 0.6}),
        "xgboost": lambda: OtherBoosting("xgboost"),
        "xgboost_shallow": lambda: shallow(
            "xgboost", {"max_depth": 3, "subsample": 0.8, "colsample_bytree": 0.6, "min_child_weight": 2}
        ),
    }


class ScaledKernel(Kernel):
    """The kernel with another width and penalty."""

    def __init__(self, narrower: float, penalty: float) -> None:
        super().__init__()
        self.narrower, self.penalty = narrower, penalty

    def prepare(self, rows: TrainingRows) -> ScaledKernel:
        """Choose the width by the variance of the columns, and multiply it."""
        prepared = ScaledKernel(self.narrower, self.penalty)
        prepared.gamma = self.narrower * float(super().prepare(rows).gamma or 1.0)
        return prepared


def shallow(package: str, settings: Mapping[str, Any]) -> OtherBoosting:
    family = OtherBoosting(package)
    family.settings = settings
    return family


def forest(name: str, classifier: Any) -> Callable[[], UserModel]:
    return lambda: UserModel(name, classifier)


METRICS = ("f1", "mcc")
LIGHTGBM = ("boosting", "boosting_small", "boosting_seven", "boosting_stumps", "boosting_random")
#: Settings that are averaged.
OF_GROUPS = {
    "boosted trees": (*LIGHTGBM, "catboost", "catboost_shallow", "xgboost"),
    "LightGBM": LIGHTGBM,
    "CatBoost": ("catboost", "catboost_shallow"),
    "forests": ("extra_trees", "extra_trees_all", "extra_trees_few"),
    "kernels": ("kernel", "kernel_wide", "kernel_narrow"),
}
BEST = ("linear", "kernel", "group boosted trees", "extra_trees")
APART = ("linear", "kernel", "group LightGBM", "extra_trees", "group CatBoost", "xgboost")
#: The families of each portfolio, and what their weights are chosen for.
SETS: dict[str, tuple[tuple[str, ...], str]] = {
    "default": (DEFAULT, "both"),
    "best": (BEST, "both"),
    "best, weights by cross-entropy": (BEST, "cross-entropy"),
    "best, equal weights": (BEST, "equal"),
    "LightGBM alone in its group": (APART[:4], "both"),
    "LightGBM, CatBoost and XGBoost apart": (APART, "both"),
    "with three forests and three kernels": (
        ("linear", "group kernels", "group boosted trees", "group forests"),
        "both",
    ),
    "fast": (("linear", "boosting_small"), "both"),
    "fast, usual trees": (("linear", "boosting"), "both"),
    "every setting by itself": (tuple(candidates()), "both"),
    "every setting by itself, by cross-entropy": (tuple(candidates()), "cross-entropy"),
    **{f"{name} alone": ((name,), "equal") for name in candidates()},
}


def draw_rows(y: Any, split: int, name: str) -> tuple[Any, Any]:
    """Return training rows and judging rows; both have the table's share of positives, as far as rows suffice."""
    generator = np.random.default_rng([split, sum(map(ord, name))])
    share = float(y.mean())
    size = int(min(max(MOST_TRAINING, FEWEST_POSITIVES / share), 3 * MOST_TRAINING, 0.7 * len(y)))
    training, judging = [], []
    for label in (0, 1):
        of_class = generator.permutation(np.flatnonzero(y == label))
        number = round(size * (share if label else 1 - share))
        rest = len(y) - size
        most = round((len(of_class) - number) * min(1.0, MOST_JUDGING / rest))
        training.append(of_class[:number])
        judging.append(of_class[number : number + most])
    return np.sort(np.concatenate(training)), np.sort(np.concatenate(judging))


def fit_cell(data: Path, folder: Path, name: str, split: int) -> None:
    """Write the logits of every setting on one draw."""
    path = folder / f"{name}-{split}.npz"
    if path.exists():
        return
    rows = load(name, data)
    y = np.asarray(rows.y, dtype=np.int64)
    train, new = draw_rows(y, split, name)
    encoder = TableEncoder()
    encoded = TrainingRows(Features(encoder.fit(rows.X.iloc[train])), y[train], None, 2)
    judged = Features(encoder.transform(rows.X.iloc[new]))
    splits = stratified_folds(encoded, FOLDS, None, split)
    parts = np.zeros(len(train), dtype=np.int64)
    for fold, (_, held_out) in enumerate(splits):
        parts[held_out] = fold
    arrays = {"y": y[train], "folds": parts, "y_new": y[new]}
    seconds = {}
    for setting, make in candidates().items():
        start = time.process_time()
        fitted: Any = fit_family(make(), encoded, splits, seed=split, jobs=1, deadline=Deadline())
        seconds[setting] = time.process_time() - start
        arrays[f"{setting} out of fold"] = fitted.logits[:, 0]
        arrays[f"{setting} new"] = fitted.model.logits(judged)[:, 0]
    arrays["seconds"] = np.array([seconds[setting] for setting in candidates()])
    np.savez_compressed(path, **arrays)
    print(name, split, len(train), int(y[train].sum()), {k: round(v, 1) for k, v in seconds.items()}, flush=True)


def judge_of(arrays: Mapping[str, Any], metric: str) -> Judge:
    """Return what judges families and groups on one cell, by one metric."""
    logits = {"y": arrays["y"], "y_test": arrays["y_new"]}
    for name in [key.removesuffix(" new") for key in arrays if key.endswith(" new")]:
        logits[f"{name}|held_out"], logits[f"{name}|test"] = arrays[f"{name} out of fold"], arrays[f"{name} new"]
    for group, members in OF_GROUPS.items():
        for part in ("held_out", "test"):
            logits[f"group {group}|{part}"] = np.mean([logits[f"{name}|{part}"] for name in members], axis=0)
    return Judge(logits, get_metric(metric))


def judge(path: Path) -> dict[str, dict[str, float]]:
    """Return the value of each portfolio on one draw, by metric."""
    arrays = dict(np.load(path))
    values: dict[str, dict[str, float]] = {}
    for metric in METRICS:
        judged = judge_of(arrays, metric)
        values[metric] = {name: judged.value(members, weights, "plugin") for name, (members, weights) in SETS.items()}
    seconds = dict(zip(candidates(), arrays["seconds"].round(2).tolist(), strict=True))
    return {**values, "seconds": seconds}


def results_table(results: Mapping[str, Any], splits: Sequence[int]) -> str:
    """Each portfolio's mean over tables on these splits, and how it compares with the default."""
    tables: dict[str, list[Any]] = {}
    for cell, values in results.items():
        name, _, split = cell.rpartition("-")
        if int(split) in splits:
            tables.setdefault(name, []).append(values)
    rows = []
    for portfolio in SETS:
        shown: list[Any] = [portfolio]
        for metric in METRICS:
            own, usual = (
                [statistics.fmean(each[metric][one] for each in cells) for cells in tables.values()]
                for one in (portfolio, "default")
            )
            shown.append(f"{statistics.fmean(own):.4f}")
            if portfolio != "default":
                sign = -1 if get_metric(metric).minimize else 1
                test = compare([sign * each for each in own], [sign * each for each in usual])
                shown[-1] += f" ({test.wins}-{test.losses}, p = {test.p_value:.2g})"
        rows.append(shown)
    return table(["families", *METRICS], rows)


def write_page() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    chosen_on, judged_on = (results_table(results, splits) for splits in ([0], range(1, 100)))
    parts = {"portfolio, chosen on": chosen_on, "portfolio": judged_on}
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["fit", "judge"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/portfolio"))
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2, 3])
    options = parser.parse_args(arguments)
    if options.what == "fit":
        options.folder.mkdir(parents=True, exist_ok=True)
        for split in options.splits:
            for name in STUDY:
                fit_cell(options.data, options.folder, name, split)
    elif options.what == "judge":
        results = {path.stem: judge(path) for path in sorted(options.folder.glob("*.npz"))}
        RESULTS.write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    else:
        write_page()


if __name__ == "__main__":
    main()
