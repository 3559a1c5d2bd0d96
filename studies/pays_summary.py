"""The tables of docs/when-it-pays.md, from the stored results of the studies.

python -m studies.pays_summary
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from metricfit.stats import compare
from studies import little_capacity_page as capacity
from studies import long_tails_page as tails
from studies import segmentation_page as masks
from studies import several_labels_page as labels
from studies.common import DOCS, table, write_page
from studies.pays_tables import against, corrected_p

RESULTS = DOCS.parent / "studies" / "results"
HEADS = {
    "chosen": ["problem", "decision", "gain of the decision", "a metric loss adds"],
    "fixed": ["problem", "loss", "gain over cross-entropy"],
}
#: The rows of the two tables.
Rows = dict[str, list[list[str]]]


def gain(better: Sequence[float], baseline: Sequence[float], p: float | None = None) -> str:
    """The mean difference, with problems won and lost, and p where a section tests this difference."""
    pairs = list(zip(better, baseline, strict=True))
    won, lost = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    tested = "" if p is None else f", p = {p:.2g}"
    return f"{statistics.fmean(a - b for a, b in pairs):+.3f} ({won}-{lost}{tested})"


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def link(title: str, section: str) -> str:
    return f"[{title}](evidence/losses.md#{section})"


def against_baseline(of_losses: dict[str, Sequence[float]], loss: str, base: str) -> str:
    return gain(of_losses[loss], of_losses[base], corrected_p(of_losses, base)[loss])


def rows_of_tables() -> Rows:
    found = read("recipes.json")

    def values(recipe: str, decision: str) -> list[float]:
        return [statistics.fmean(split[decision] for split in of_table[recipe]) for of_table in found.values()]

    def against_bce(decision: str) -> str:
        pair = values("mix", decision), values("bce", decision)
        return gain(*pair, compare(*pair).p_value)

    decided = gain(values("bce", "tuned"), values("bce", "half"))
    problem = link("tables, networks, F1", "tables")
    return {
        "chosen": [[problem, "tuned threshold", decided, against_bce("tuned")]],
        "fixed": [[problem, '`recipes.mix("f1")`', against_bce("half")]],
    }


def rows_of_capacity() -> Rows:
    cells = capacity.by_key(read("little_capacity.json"))
    half, tuned = (capacity.means(cells, 0, decision) for decision in capacity.DECISIONS)
    base, staged = capacity.BASELINE, "BCE, then F1"
    problem = link("tables, linear models, F1", "little-capacity")
    added, at_half = (against_baseline(values, staged, base) for values in (tuned, half))
    return {
        "chosen": [[problem, "tuned threshold", gain(tuned[base], half[base]), added]],
        "fixed": [[problem, '`recipes.two_stage("f1")`', at_half]],
    }


def rows_of_labels() -> Rows:
    cells = labels.complete(read("several_labels.json"), labels.MAIN)
    half = {average: labels.means(cells, average, "0.5") for average in ("macro", "samples")}
    chosen = []
    for average, said in (("macro", "thresholds per label, smoothed"), ("samples", "best labels of each row")):
        decided = labels.means(cells, average, labels.PROPOSED[average])
        gained = gain(decided["BCE"], half[average]["BCE"])
        problem = link(f"several labels, {average} F1", "several-labels")
        chosen.append([problem, said, gained, against_baseline(decided, labels.MIX, "BCE")])
    fixed = [
        [link("several labels, macro F1", "several-labels"), said, against_baseline(half["macro"], loss, "BCE")]
        for loss, said in (
            ("asymmetric focal", "`FocalLoss(2, asymmetric=True)`"),
            (labels.MIX, 'cross-entropy + `MetricLoss("f1")`'),
        )
    ]
    return {"chosen": chosen, "fixed": fixed}


def rows_of_tails() -> Rows:
    cells = tails.by_key(read("long_tails.json"))
    problems = tails.complete_problems(cells)

    def means(decision: str, mix: str) -> dict[str, Sequence[float]]:
        return tails.means(cells, problems, decision, mix, "f1")

    chosen = []
    for mix, said in (("balanced", "new rows are balanced"), ("long-tailed", "new rows have it too")):
        decided, plain = means(tails.PROPOSED, mix), means("argmax", mix)
        problem = link(f"a long tail of classes, {said}, macro F1", "long-tails")
        gained = gain(decided["CE"], plain["CE"])
        chosen.append([problem, "offsets, smoothed", gained, against_baseline(decided, tails.MIX, "CE")])
    plain = means("argmax", "balanced")
    problem = link("a long tail of classes, new rows are balanced, macro F1", "long-tails")
    fixed = [
        [problem, said, against_baseline(plain, loss, "CE")]
        for loss, said in (("logit-adjusted", "`LogitAdjustedLoss`"), (tails.MIX, '`recipes.mix("f1")`'))
    ]
    return {"chosen": chosen, "fixed": fixed}


def rows_of_masks() -> Rows:
    cells = read("segmentation.json")["cells"]
    base, per = masks.BASELINE, masks.PROPOSED["image"]
    rows: Rows = {"chosen": [], "fixed": []}
    for name, said in (("camvid", "street scenes, 11 classes, Dice"), ("membrane", "one large mask per image, Dice")):
        plain, overlap, decided, both = (
            masks.values_of(cells, name, loss, decision, "dice, image")
            for loss, decision in ((base, "default"), ("metric F1", "default"), (base, per), ("metric F1", per))
        )
        problem = link(said, "segmentation")
        rows["chosen"].append([problem, "per image", gain(decided, plain), gain(both, decided)])
        rows["fixed"].append([problem, '`MetricLoss("f1")`', gain(overlap, plain)])
    return rows


def single(better: Sequence[float], baseline: Sequence[float]) -> str:
    """The mean difference, problems won and lost, and p without a correction."""
    return against({"baseline": baseline, "other": better}, "baseline")["other"]


def rows_of_defaults() -> list[list[str]]:
    """What the stored results say about the step, the weight of the mix and a second stage."""
    cells = capacity.by_key(read("little_capacity.json"))
    pairs = {
        "`Linear(0.1)` against `Identity()`, F1 alone": ("F1", "F1, Identity"),
        "cross-entropy, then F1, against the mix": ("BCE, then F1", "BCE + 0.5 F1"),
    }
    rows = []
    for name, (loss, rival) in pairs.items():
        for width in capacity.widths_of(cells):
            row = [name, f"{len(capacity.TABLES)} tables, {capacity.width_name(width)}"]
            for decision in capacity.DECISIONS:
                values = capacity.means(cells, width, decision)
                row.append(single(values[loss], values[rival]))
            rows.append(row)
    found = read("recipes.json")
    row = ["cross-entropy, then F1, against the mix", f"{len(found)} tables, networks"]
    for decision in ("half", "tuned"):
        staged, mixed = (
            [statistics.fmean(split[decision] for split in of_table[recipe]) for of_table in found.values()]
            for recipe in ("two_stage", "mix")
        )
        row.append(single(staged, mixed))
    rows.append(row)
    return [*rows, *rows_of_variants()]


def rows_of_variants() -> list[list[str]]:
    """Other forms of the mix on long tails: macro F1 of balanced test rows, on the problems that have them."""
    cells = tails.by_key(read("long_tails.json"))
    names = {
        "CE + F1": "weight 1 against 0.5 in the mix",
        "CE + 0.5 F1, Identity": "`Identity()` against `Linear(0.2)` in the mix",
    }
    rows = []
    for variant, name in names.items():
        problems = tails.complete_problems(cells, (tails.MIX, variant))
        label = ", ".join(f"{tails.SET_NAMES[of]} {ratio}:1 {network}" for of, ratio, network in problems)
        row = [name, f"{label}, macro F1 of balanced rows"]
        for decision in ("argmax", tails.PROPOSED):
            other, mixed = (
                [one[decision]["balanced"]["f1"] for problem in problems for one in cells[(*problem, loss)]["values"]]
                for loss in (variant, tails.MIX)
            )
            row.append(f"{gain(other, mixed)} seeds")
        rows.append(row)
    return rows


def parts_of_pages() -> dict[str, dict[str, str]]:
    """The tables of each page, by its address under docs/."""
    found = [rows_of_tables(), rows_of_capacity(), rows_of_masks(), rows_of_labels(), rows_of_tails()]
    decide = {name: table(head, [row for rows in found for row in rows[name]]) for name, head in HEADS.items()}
    defaults = table(["comparison", "problems", "at 0.5, or the argmax", "tuned, or offsets"], rows_of_defaults())
    return {"when-it-pays.md": decide, "evidence/losses.md": {"defaults": defaults}}


def main() -> None:
    for page, parts in parts_of_pages().items():
        write_page(DOCS.parent, page, parts)


if __name__ == "__main__":
    main()
