"""The table at the top of docs/when-it-pays.md, from the stored results of the studies.

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
from studies.common import DOCS, fill, table
from studies.pays_tables import against, corrected_p

PAGE, RESULTS = DOCS / "when-it-pays.md", DOCS.parent / "studies" / "results"
HEAD = ["your problem", "loss", "decision", "gain to expect", "evidence"]
#: Differences with a larger p are marked.
SIGNIFICANT = 0.05


def gain(better: Sequence[float], baseline: Sequence[float], p: float | None = None) -> str:
    """The mean difference, with problems won and lost, and p where a section tests this difference."""
    pairs = list(zip(better, baseline, strict=True))
    won, lost = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    tested = "" if p is None else f", p = {p:.2g}"
    if p is not None and p > SIGNIFICANT:
        tested += ", not significant"
    return f"{statistics.fmean(a - b for a, b in pairs):+.3f} ({won}-{lost}{tested})"


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def rows_of_labels() -> list[list[str]]:
    cells = labels.complete(read("several_labels.json"), labels.MAIN)

    def values(average: str, decision: str, loss: str) -> Sequence[float]:
        return labels.means(cells, average, decision)[loss]

    def against_bce(average: str, decision: str, loss: str) -> str:
        of_losses = labels.means(cells, average, decision)
        return gain(of_losses[loss], of_losses["BCE"], corrected_p(of_losses, "BCE")[loss])

    evidence = f"[nine tables, {labels.number_of_splits(cells)} splits](#several-labels)"
    rows = []
    for average in ("macro", "micro", "samples"):
        decision = labels.PROPOSED[average]
        chosen = f'`best_decision(logits, target, "f1", average="{average}")`'
        call = '`per_row(probabilities, "f1")`' if decision == "per row" else chosen
        half = values(average, "0.5", "BCE")
        decided = gain(values(average, decision, "BCE"), half)
        mixed = against_bce(average, decision, labels.MIX)
        text = f"{decided} by the decision; cross-entropy + 1.0 F1 changes that by {mixed}"
        rows.append([f"several labels, {average} F1", "cross-entropy", f"{decision}: {call}", text, evidence])
    focal, mixed = (against_bce("macro", "0.5", loss) for loss in ("asymmetric focal", labels.MIX))
    text = f"{focal} macro F1; cross-entropy + 1.0 F1 has {mixed}"
    loss = "`FocalLoss(2, asymmetric=True)`"
    return [*rows, ["several labels, the threshold must stay at 0.5", loss, "0.5", text, evidence]]


def rows_of_tails() -> list[list[str]]:
    cells = tails.by_key(read("long_tails.json"))
    problems = tails.complete_problems(cells)

    def values(loss: str, decision: str, mix: str) -> Sequence[float]:
        return tails.means(cells, problems, decision, mix, "f1")[loss]

    def against_ce(loss: str, decision: str, mix: str) -> str:
        of_losses = tails.means(cells, problems, decision, mix, "f1")
        return gain(of_losses[loss], of_losses["CE"], corrected_p(of_losses, "CE")[loss])

    evidence = f"[{len(problems)} problems, 5 seeds](#long-tails)"
    plain = {mix: values("CE", "argmax", mix) for mix in tails.MIXES}
    balanced, tailed = "balanced", "long-tailed"
    decided = gain(values("CE", tails.PROPOSED, balanced), plain[balanced])
    mixed = against_ce(tails.MIX, tails.PROPOSED, balanced)
    adjusted, deferred, weak = (
        against_ce(loss, "argmax", balanced) for loss in ("logit-adjusted", "LDAM-DRW", tails.MIX)
    )
    with_offsets = {"CE": plain[tailed], tails.MIX: values(tails.MIX, tails.PROPOSED, tailed)}
    both = gain(with_offsets[tails.MIX], plain[tailed], corrected_p(with_offsets, "CE")[tails.MIX])
    alone = against_ce(tails.MIX, "argmax", tailed)
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

    def against_bce(decision: str) -> str:
        pair = values("mix", decision), values("bce", decision)
        return gain(*pair, compare(*pair).p_value)

    half, tuned = map(against_bce, ("half", "tuned"))
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
    staged_loss = 'cross-entropy, then `MetricLoss("f1")`'
    at_half, added = (gain(values[staged], values[base], corrected_p(values, base)[staged]) for values in (half, tuned))
    text = f"{gain(tuned[base], half[base])} F1 by the decision; a second stage with F1 adds {added} to that"
    return [
        ["a table, a linear model", "cross-entropy", "tuned threshold: `best_threshold`", text, evidence],
        ["the same, the threshold must stay at 0.5", staged_loss, "0.5", f"{at_half} F1", evidence],
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
    text = f"{decided['camvid']} mean Dice by the decision; the metric loss changes that by {added}"
    level = gain(values("membrane", "metric F1", "default"), plain["membrane"])
    return [
        ["segmentation, several classes, some rare", "cross-entropy", call, text, street],
        [
            "the same, with the plain argmax",
            '`MetricLoss("f1")`, or Dice',
            "argmax",
            f"{overlap} mean Dice, a part of which may be due to the grid of learning rates; the mix has {mix}",
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


def parts_of_page() -> dict[str, str]:
    rows = [*rows_of_tables(), *rows_of_capacity(), *rows_of_masks(), *rows_of_labels(), *rows_of_tails()]
    defaults = table(["comparison", "problems", "at 0.5, or the argmax", "tuned, or offsets"], rows_of_defaults())
    return {"decide": table(HEAD, rows), "defaults": defaults}


def main() -> None:
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts_of_page()), encoding="utf-8")


if __name__ == "__main__":
    main()
