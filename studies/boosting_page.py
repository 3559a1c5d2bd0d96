"""The tables of docs/evidence/tables.md, from results/boosting.json. boosting.py measures, and calls this."""

from __future__ import annotations

import statistics
from typing import Any

from metricfit.stats import compare
from studies.common import DOCS, fill, table

PAGE = DOCS / "evidence" / "tables.md"
NAMES = {"lightgbm": "LightGBM", "xgboost": "XGBoost"}
WAYS = {
    "log-loss": "log-loss",
    "scale_pos_weight": "`scale_pos_weight`",
    "focal": "focal loss",
    "objective": "**`objective(metric)`**",
}
RULES = {"own loss": "its loss", "metric": "the metric"}
HALF, TUNED = 0, 1
REFERENCE = "objective|own loss"


def means(results: dict[str, Any], metric: str, key: str, decision: int) -> dict[str, float]:
    """The mean over splits for each table."""
    return {
        name: statistics.fmean(cell["values"][metric][key][decision] for cell in cells.values())
        for name, cells in results.items()
    }


def mean(results: dict[str, Any], metric: str, key: str, decision: int) -> str:
    return f"{statistics.fmean(means(results, metric, key, decision).values()):.3f}"


def against(results: dict[str, Any], metric: str, one: str, other: str, decision: int) -> str:
    """The mean difference over tables, wins and losses, and Wilcoxon's p."""
    mine, theirs = means(results, metric, one, decision), means(results, metric, other, decision)
    result = compare(list(mine.values()), list(theirs.values()), samples=1)  # the draws are not shown
    difference = statistics.fmean(mine[name] - theirs[name] for name in mine)
    return f"{difference:+.3f}; {result.wins}-{result.losses}, p = {result.p_value:.2g}"


def methods_table(results: dict[str, Any], metric: str) -> str:
    """Every way of training and of stopping, at 0.5 and tuned, and our objective against it."""
    rows = []
    for way, label in WAYS.items():
        for rule, stopped in RULES.items():
            key = f"{way}|{rule}"
            row: list[object] = [label, stopped]
            for decision in (HALF, TUNED):
                same = key == REFERENCE
                row.append(mean(results, metric, key, decision))
                row.append("" if same else against(results, metric, REFERENCE, key, decision))
            rows.append(row)
    return table(["trained on", "stopped on", "at 0.5", "objective against it", "tuned", "objective against it"], rows)


def stopping_table(results: dict[str, Any]) -> str:
    """Stopping on the metric against stopping on the loss that is trained, with the rounds of each."""
    rows = []
    for library, cells in results.items():
        for metric in ("f1", "mcc"):
            for way, label in WAYS.items():
                rounds = [mean_rounds(cells, way, metric, rule) for rule in RULES]
                pairs = [
                    against(cells, metric, f"{way}|metric", f"{way}|own loss", decision) for decision in (HALF, TUNED)
                ]
                rows.append([NAMES[library], metric, label, *(f"{number:.0f}" for number in rounds), *pairs])
    head = ["library", "metric", "trained on", "rounds, its loss", "rounds, the metric"]
    return table([*head, "the metric against its loss, at 0.5", "tuned"], rows)


def mean_rounds(results: dict[str, Any], way: str, metric: str, rule: str) -> float:
    trained = f"objective {metric}" if way == "objective" else way
    key = f"{trained}|{metric if rule == 'metric' else rule}"
    return statistics.fmean(cell["rounds"][key] for cells in results.values() for cell in cells.values())


def seconds_table(results: dict[str, Any]) -> str:
    """Mean seconds of training on a split, all five folds."""
    rows = []
    for library, cells in results.items():
        seconds = [cell["seconds"] for splits in cells.values() for cell in splits.values()]
        ways = ("log-loss", "scale_pos_weight", "focal", "objective f1", "objective mcc")
        rows.append([NAMES[library], *(f"{statistics.fmean(each[way] for each in seconds):.1f}" for way in ways)])
    head = [*list(WAYS.values())[:3], '`objective("f1")`', '`objective("mcc")`']
    return table(["seconds per split", *head], rows)


def tables_table(results: dict[str, Any]) -> str:
    """The tuned F1 of each table with LightGBM, each way stopped on its loss."""
    cells = results["lightgbm"]
    values = {way: means(cells, "f1", f"{way}|own loss", TUNED) for way in WAYS}
    rows = [[name, *(f"{values[way][name]:.3f}" for way in WAYS)] for name in cells]
    return table(["table", *WAYS.values()], rows)


def parts(results: dict[str, Any]) -> dict[str, str]:
    """All generated parts of the page by their names."""
    made = {
        f"{library} {metric}": methods_table(results[library], metric)
        for library in results
        for metric in ("f1", "mcc")
    }
    return made | {
        "stopping": stopping_table(results),
        "seconds": seconds_table(results),
        "boosting tables": tables_table(results),
    }


def write_page(results: dict[str, Any]) -> None:
    """Fill in the tables of the page."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts(results)), encoding="utf-8")
