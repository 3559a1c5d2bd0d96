"""The table at the top of docs/when-it-pays.md, from the stored results of the studies.

python docs/studies/pays_summary.py
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

import little_capacity_page as capacity
import long_tails_page as tails
import segmentation_page as masks
import several_labels_page as labels
from common import DOCS, fill, table

PAGE, RESULTS = DOCS / "when-it-pays.md", DOCS / "studies" / "results"
HEAD = ["your problem", "loss", "decision", "gain to expect", "evidence"]


def gain(better: Sequence[float], baseline: Sequence[float]) -> str:
    """The mean difference, with problems won and lost."""
    pairs = list(zip(better, baseline, strict=True))
    won, lost = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    return f"{statistics.fmean(a - b for a, b in pairs):+.3f} ({won}-{lost})"


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def rows_of_labels() -> list[list[str]]:
    cells = labels.complete(read("several_labels.json"), labels.MAIN)

    def values(average: str, decision: str, loss: str) -> Sequence[float]:
        return labels.means(cells, average, decision)[loss]

    evidence = f"[nine tables, {labels.number_of_splits(cells)} splits](#several-labels)"
    rows = []
    for average in ("macro", "micro", "samples"):
        decision = labels.PROPOSED[average]
        chosen = f'`best_decision(logits, target, "f1", average="{average}")`'
        call = '`per_row(probabilities, "f1")`' if decision == "per row" else chosen
        half = values(average, "0.5", "BCE")
        decided = gain(values(average, decision, "BCE"), half)
        mixed = gain(values(average, decision, "BCE + F1"), values(average, decision, "BCE"))
        text = f"{decided} by the decision; the mix adds {mixed} to that"
        rows.append([f"several labels, {average} F1", "cross-entropy", f"{decision}: {call}", text, evidence])
    half = values("macro", "0.5", "BCE")
    focal, mixed = (gain(values("macro", "0.5", loss), half) for loss in ("asymmetric focal", "BCE + F1"))
    text = f"{focal} macro F1; the mix has {mixed}"
    loss = "`FocalLoss(2, asymmetric=True)`"
    return [*rows, ["several labels, the threshold must stay at 0.5", loss, "0.5", text, evidence]]


def rows_of_tails() -> list[list[str]]:
    cells = tails.by_key(read("long_tails.json"))
    problems = tails.complete_problems(cells)

    def values(loss: str, decision: str, mix: str) -> Sequence[float]:
        return tails.means(cells, problems, decision, mix, "f1")[loss]

    evidence = f"[{len(problems)} problems, 5 seeds](#long-tails)"
    plain = {mix: values("CE", "argmax", mix) for mix in tails.MIXES}
    balanced, tailed = "balanced", "long-tailed"
    decided = gain(values("CE", tails.PROPOSED, balanced), plain[balanced])
    mixed = gain(values(tails.MIX, tails.PROPOSED, balanced), values("CE", tails.PROPOSED, balanced))
    adjusted, deferred, weak = (
        gain(values(loss, "argmax", balanced), plain[balanced]) for loss in ("logit-adjusted", "LDAM-DRW", tails.MIX)
    )
    both = gain(values(tails.MIX, tails.PROPOSED, tailed), plain[tailed])
    alone = gain(values(tails.MIX, "argmax", tailed), plain[tailed])
    return [
        [
            "a long tail of classes, all classes count the same",
            "cross-entropy",
            "offsets: `best_decision(..., prevalence=[0.1] * 10)`",
            f"{decided} macro F1 by the decision; the mix adds {mixed} to that",
            evidence,
        ],
        [
            "the same, with the plain argmax",
            "`LogitAdjustedLoss`, or LDAM with deferred weights",
            "argmax",
            f"{adjusted} and {deferred} macro F1; the mix has {weak}",
            evidence,
        ],
        [
            "a long tail of classes, new rows are long-tailed too",
            "`CE + 0.5 F1` (the recipe `mix`)",
            "offsets: `best_decision(...)`",
            f"{both} macro F1, of which the loss alone has {alone}",
            evidence,
        ],
    ]


def rows_of_tables() -> list[list[str]]:
    found = read("recipes.json")

    def values(recipe: str, decision: str) -> list[float]:
        return [statistics.fmean(split[decision] for split in of_table[recipe]) for of_table in found.values()]

    half, tuned = (gain(values("mix", decision), values("bce", decision)) for decision in ("half", "tuned"))
    decided = gain(values("bce", "tuned"), values("bce", "half"))
    evidence = "[19 tables, 20 splits](which-recipe.md)"
    text = f"{decided} F1 by the decision; the mix adds {tuned} to that"
    return [
        ["a table, few positives, a network", "cross-entropy", "tuned threshold: `best_threshold`", text, evidence],
        ["the same, the threshold must stay at 0.5", "the recipe `mix`", "0.5", f"{half} F1", evidence],
    ]


def rows_of_capacity() -> list[list[str]]:
    cells = capacity.by_key(read("little_capacity.json"))
    half, tuned = (capacity.means(cells, 0, decision) for decision in capacity.DECISIONS)
    base, staged = capacity.BASELINE, "BCE, then F1"
    splits = len(cells[capacity.TABLES[0], 0, base]["tuned"]["test"])
    evidence = f"[{len(capacity.TABLES)} tables, {splits} splits](#little-capacity)"
    staged_loss, added = 'cross-entropy, then `MetricLoss("f1")`', gain(tuned[staged], tuned[base])
    text = f"{gain(tuned[base], half[base])} F1 by the decision; a second stage with F1 adds {added}, not significant"
    at_half = f"{gain(half[staged], half[base])} F1"
    return [
        ["a table, a linear model", "cross-entropy", "tuned threshold: `best_threshold`", text, evidence],
        ["the same, the threshold must stay at 0.5", staged_loss, "0.5", at_half, evidence],
    ]


def rows_of_masks() -> list[list[str]]:
    cells = read("segmentation.json")["cells"]
    base, per = masks.BASELINE, masks.PROPOSED["image"]

    def values(name: str, loss: str, decision: str) -> list[float]:
        return masks.values_of(cells, name, loss, decision, "dice, image")

    repeats = {name: len(values(name, base, "default")) for name in masks.SETS}
    street, slices = (
        f"[{masks.SETS[name]}, {repeats[name]} {unit}](#segmentation)" for name, unit in masks.UNITS.items()
    )
    plain = {name: values(name, base, "default") for name in masks.SETS}
    decided = {name: gain(values(name, base, per), plain[name]) for name in masks.SETS}
    overlap, mix = (gain(values("camvid", loss, "default"), plain["camvid"]) for loss in ("metric F1", "mix"))
    added = gain(values("camvid", "metric F1", per), values("camvid", base, per))
    call = 'per image: `per_image(probabilities, "dice", task="multiclass")`'
    text = f"{decided['camvid']} mean Dice by the decision; the metric loss adds {added} to that"
    level = gain(values("membrane", "metric F1", "default"), plain["membrane"])
    return [
        ["segmentation, several classes, some rare", "cross-entropy", call, text, street],
        [
            "the same, with the plain argmax",
            '`MetricLoss("f1")`, or Dice',
            "argmax",
            f"{overlap} mean Dice; the mix has {mix}",
            street,
        ],
        [
            "segmentation, one mask that is a fifth of every image",
            "cross-entropy",
            "0.5",
            f"none to speak of: per image {decided['membrane']} mean Dice, the metric loss {level}",
            slices,
        ],
    ]


def parts_of_page() -> dict[str, str]:
    rows = [*rows_of_tables(), *rows_of_capacity(), *rows_of_masks(), *rows_of_labels(), *rows_of_tails()]
    return {"decide": table(HEAD, rows)}


def main() -> None:
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts_of_page()), encoding="utf-8")


if __name__ == "__main__":
    main()
