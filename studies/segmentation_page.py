"""The section on segmentation of docs/evidence/losses.md, from the cells that segmentation.py writes.

python -m studies.segmentation_page                                # from the stored results
python -m studies.segmentation_page camvid.jsonl membrane.jsonl  # collect new cells first
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from metricfit.stats import compare
from studies.common import DOCS, plain, table, write_page
from studies.pays_tables import draw_losses

RESULTS = Path(__file__).resolve().parent / "results" / "segmentation.json"
PAGE, UNITS_PAGE = "evidence/losses.md", "evidence/decisions.md"
PICTURE = DOCS / "img" / "pays-segmentation.svg"
BASELINE = "cross-entropy"
DECISIONS = ("default", "tuned", "per image", "per image, calibrated")
SETS = {"camvid": "CamVid", "membrane": "membrane"}
UNITS = {"camvid": "seeds", "membrane": "folds"}
#: Names of what is measured, and the decision that is compared beside the default; chosen before the study.
TARGETS = {
    "dice, image": "image Dice",
    "jaccard, image": "image IoU",
    "dice, set": "set Dice",
    "jaccard, set": "set IoU",
}
PROPOSED = {"image": "per image, calibrated", "set": "tuned"}
#: Neighbouring frames and slices resemble each other, so the bootstrap draws blocks of this many images.
BLOCK, RESAMPLES = 10, 2000

Cells = list[dict[str, Any]]


def collect(files: list[Path]) -> dict[str, Any]:
    """Return the finished cells of the seeds that every loss has, and comparisons over images."""
    cells = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    losses = {cell["loss"] for cell in cells}
    counts = {key: sum((cell["set"], cell["seed"]) == key for cell in cells) for key in _keys(cells)}
    cells = [cell for cell in cells if counts[cell["set"], cell["seed"]] == len(losses)]
    images = {name: over_images([cell for cell in cells if cell["set"] == name]) for name in SETS}
    for cell in cells:
        for scores in cell["scores"].values():
            for target in ("dice, images", "jaccard, images"):
                scores.pop(target, None)
    return {"settings": {"blocks of images": BLOCK, "resamples": RESAMPLES}, "cells": cells, "images": images}


def _keys(cells: Cells) -> set[tuple[str, int]]:
    return {(cell["set"], cell["seed"]) for cell in cells}


def over_images(cells: Cells) -> dict[str, Any]:
    """For each pair of a loss with a decision and its rival: the mean difference, and its interval over images."""
    if not cells:
        return {}
    found: dict[str, Any] = {}
    losses = list(dict.fromkeys(cell["loss"] for cell in cells))
    for target in ("dice, image", "jaccard, image"):
        decisions = [each for each in cells[0]["scores"] if each != "calibration"]
        values = {(loss, each): _images(cells, loss, each, target) for loss in losses for each in decisions}
        for loss in losses:
            for decision in ("default", PROPOSED["image"]):
                if loss != BASELINE:
                    key = f"{target}: {loss} against {BASELINE}, {decision}"
                    found[key] = _bootstrap(values[loss, decision] - values[BASELINE, decision])
            for a, b in compared(cells):
                found[f"{target}: {a} against {b}, {loss}"] = _bootstrap(values[loss, a] - values[loss, b])
    return found


#: Decisions that are compared with each other.
COMPARED = (
    ("tuned", "default"),
    ("per image, calibrated", "default"),
    ("per image, calibrated", "per image"),
    ("per image, calibrated", "tuned"),
    ("per image, calibrated", "rankseg, calibrated"),
)


def compared(cells: Cells) -> list[tuple[str, str]]:
    """Return the pairs of COMPARED that were measured; rankseg may not have been installed."""
    return [pair for pair in COMPARED if all(each in cell["scores"] for cell in cells for each in pair)]


def _images(cells: Cells, loss: str, decision: str, target: str) -> np.ndarray:
    """The values of the images: means over the seeds for CamVid, the slices of all folds for the membranes."""
    values = [np.array(cell["scores"][decision][f"{target}s"]) for cell in cells if cell["loss"] == loss]
    return np.mean(values, 0) if cells[0]["set"] == "camvid" else np.concatenate(values)


def _bootstrap(differences: np.ndarray) -> list[float]:
    """The mean, and a 95 % interval from resampled blocks of neighbouring images."""
    size = min(BLOCK, max(1, len(differences) // 5))
    blocks = np.array_split(differences, max(2, len(differences) // size))
    sums, counts = np.array([block.sum() for block in blocks]), np.array([len(block) for block in blocks])
    drawn = np.random.default_rng(0).integers(len(blocks), size=(RESAMPLES, len(blocks)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return [float(differences.mean()), float(low), float(high)]


def values_of(cells: Cells, name: str, loss: str, decision: str, target: str) -> list[float]:
    """One value per seed or fold."""
    return [
        cell["scores"][decision][target]
        for cell in sorted(cells, key=lambda cell: cell["seed"])
        if cell["set"] == name and cell["loss"] == loss
    ]


def difference(a: list[float], b: list[float]) -> str:
    """The mean difference in hundredths with Student's interval over seeds or folds, and how many were won."""
    found = compare(a, b, samples=1)
    low, high = (100 * bound for bound in found.interval)
    return f"{100 * found.difference:+.1f} ({low:+.1f} to {high:+.1f}; {found.wins}-{found.losses})"


def losses_table(cells: Cells, name: str, losses: list[str]) -> str:
    """What each loss reaches with each decision, in hundredths."""
    columns = [("dice, image", decision) for decision in DECISIONS]
    columns += [(target, decision) for target in list(TARGETS)[1:] for decision in ("default", _proposed(target))]
    rows = []
    for loss in losses:
        means = [statistics.fmean(values_of(cells, name, loss, decision, target)) for target, decision in columns]
        rows.append([loss, *(f"{100 * mean:.1f}" for mean in means)])
    return table(["loss", *(f"{TARGETS[target]}: {decision}" for target, decision in columns)], rows)


def against_table(results: dict[str, Any], name: str, losses: list[str]) -> str:
    """Each loss against cross-entropy at the same decision, in hundredths."""
    rows = []
    for loss in losses:
        if loss == BASELINE:
            continue
        row = [loss]
        for target in ("dice, image", "jaccard, set"):
            for decision in ("default", _proposed(target)):
                pair = (values_of(results["cells"], name, each, decision, target) for each in (loss, BASELINE))
                row.append(
                    difference(*pair) + _over_images(results, name, f"{target}: {loss} against {BASELINE}, {decision}")
                )
        rows.append(row)
    targets = [
        f"{TARGETS[target]}: {decision}"
        for target in ("dice, image", "jaccard, set")
        for decision in ("default", _proposed(target))
    ]
    return table([f"against {BASELINE}", *targets], rows)


def _proposed(target: str) -> str:
    return PROPOSED[target.split(", ")[1]]


def _over_images(results: dict[str, Any], name: str, key: str) -> str:
    found = results["images"][name].get(key)
    return "" if found is None else f", images {100 * found[1]:+.1f} to {100 * found[2]:+.1f}"


def decisions_table(results: dict[str, Any], name: str, losses: list[str]) -> str:
    """Decisions against each other for each loss: mean Dice of the images, in hundredths."""
    rows = []
    for loss in losses:
        row = [loss]
        for a, b in compared(results["cells"]):
            pair = (values_of(results["cells"], name, loss, each, "dice, image") for each in (a, b))
            row.append(difference(*pair))
        rows.append(row)
    return table(["loss", *(f"{a} against {b}" for a, b in compared(results["cells"]))], rows)


def calibration_table(cells: Cells, losses: list[str]) -> str:
    """Log-loss and calibration error of each loss, as trained and calibrated, and the chosen rates."""
    rows = []
    for loss in losses:
        row = [loss]
        for name in SETS:
            own = [cell for cell in cells if cell["set"] == name and cell["loss"] == loss]
            if not own:
                continue
            for measure in ("log-loss", "ECE"):
                raw, calibrated = (
                    statistics.fmean(cell["scores"]["calibration"][kind][measure] for cell in own)
                    for kind in ("raw", "calibrated")
                )
                row.append(f"{raw:.3f}, {calibrated:.3f}")
            row.append(", ".join(f"{rate:g}" for rate in sorted({cell["rate"] for cell in own})))
        rows.append(row)
    heads = [f"{SETS[name]} {part}" for name in SETS for part in ("log-loss", "ECE", "rate")]
    return table(["loss", *heads][: len(rows[0])], rows)


def findings(results: dict[str, Any]) -> str:
    """What the tables say, with their numbers."""
    cells = results["cells"]

    def gain(name: str, a: tuple[str, str], b: tuple[str, str]) -> str:
        return difference(*(values_of(cells, name, *each, "dice, image") for each in (a, b)))

    per, argmax = PROPOSED["image"], (BASELINE, "default")
    by_default = {
        (name, loss): gain(name, (loss, "default"), argmax)
        for name in SETS
        for loss in ("metric F1", "Dice", "Tversky", "mix", "cross-entropy, then metric F1")
    }
    decided = {
        (name, each): gain(name, (BASELINE, each), argmax) for name in SETS for each in ("tuned", "per image", per)
    }
    after = {loss: gain("camvid", (loss, per), (BASELINE, per)) for loss in ("metric F1", "Tversky")}
    calibrating = {
        (name, loss): gain(name, (loss, per), (loss, "per image"))
        for name in SETS
        for loss in (BASELINE, "Lovasz", "Tversky", "Dice", "metric F1")
    }
    of_step = {
        (name, each): gain(name, ("metric F1", each), ("Dice", each)) for name in SETS for each in ("default", "tuned")
    }
    lines = [
        "At the argmax of CamVid, losses of overlap, which weight all classes equally, beat cross-entropy: metric F1 "
        f"has {by_default['camvid', 'metric F1']} hundredths of image Dice more, plain Dice "
        f"{by_default['camvid', 'Dice']}.",
        "The step `Linear(0.2)` of metric F1 adds nothing to plain Dice, which is the step `Identity()`. Linear has "
        f"{of_step['camvid', 'default']} hundredths more at the argmax of CamVid and {of_step['camvid', 'tuned']} with "
        f"tuned offsets; on the membranes it has {of_step['membrane', 'default']} and {of_step['membrane', 'tuned']}. "
        "Identity takes a fraction of the time on a CPU, so it is the default for images and volumes.",
        "The decision gives cross-entropy about the same, without another training: `per_image` "
        f"{decided['camvid', 'per image']}, calibrated {decided['camvid', per]}, tuned offsets "
        f"{decided['camvid', 'tuned']}. With it, metric F1 is level with cross-entropy: {after['metric F1']}. Tversky "
        f"keeps {after['Tversky']}, which so few seeds cannot settle.",
        f"The recipe `mix` gains nothing on CamVid, {by_default['camvid', 'mix']}, and little on the membranes, "
        f"{by_default['membrane', 'mix']}. Changing from cross-entropy to the metric at half the steps loses on "
        f"CamVid: {by_default['camvid', 'cross-entropy, then metric F1']}.",
        "On the membranes, a fifth of the pixels of every slice, neither matters much: at 0.5 all losses are within "
        "half a hundredth of cross-entropy, except Tversky with "
        f"{by_default['membrane', 'Tversky']}, and `per_image` gives cross-entropy {decided['membrane', per]}.",
        "Losses of overlap give probabilities that are far from calibrated (last table). Calibrating before "
        "`per_image` is necessary after a loss whose logits are no log-odds, such as the Lovasz hinge of masks: "
        f"{calibrating['membrane', 'Lovasz']}. It also helps after Tversky on the membranes: "
        f"{calibrating['membrane', 'Tversky']}. With cross-entropy it hardly matters: "
        f"{calibrating['camvid', BASELINE]} on CamVid, {calibrating['membrane', BASELINE]} on the membranes. After "
        "Dice and metric losses it is slightly harmful on CamVid, although it lowers their log-loss: "
        f"{calibrating['camvid', 'Dice']} for Dice, {calibrating['camvid', 'metric F1']} for metric F1. On CamVid it "
        "raises the log-loss of cross-entropy: the validation images are of a drive that was trained on, and most test "
        "images are of another drive.",
        rates_finding(cells),
    ]
    return "\n".join(f"- {line}" for line in lines)


def kept_rates(cells: Cells, name: str) -> tuple[list[float], dict[float, list[str]]]:
    """The learning rates of the grid, and the losses that kept each of them."""
    first = [cell for cell in cells if cell["set"] == name and cell["seed"] == 0]
    rates = sorted(map(float, first[0]["rates"]))
    return rates, {rate: [cell["loss"] for cell in first if cell["rate"] == rate] for rate in rates}


def rates_finding(cells: Cells) -> str:
    """Which losses kept a rate at the edge of the grid, and what this means for their comparison."""
    rates, kept = kept_rates(cells, "camvid")
    lowest, highest = rates[0], rates[-1]
    low, high = (", ".join(kept[rate]) for rate in (lowest, highest))
    inside = ", ".join(loss for rate in rates[1:-1] for loss in kept[rate])
    at_edge, rival = (
        next(
            cell["rates"][f"{lowest:g}"]
            for cell in cells
            if (cell["set"], cell["loss"], cell["seed"]) == ("camvid", loss, 0)
        )
        for loss in (BASELINE, "metric F1")
    )
    membrane, kept_there = kept_rates(cells, "membrane")
    at_membrane_edges = " and ".join(kept_there[membrane[0]] + kept_there[membrane[-1]])
    return (
        "On CamVid most of the chosen rates are at an edge of the grid. These losses kept the lowest rate, "
        f"{lowest:g}: {low}. The highest, {highest:g}, was kept by: {high}. Only these have a rate inside the grid: "
        f"{inside}. "
        "The losses at an edge might be better with a rate that was not tried, so part of the lead of metric F1 and of "
        "Dice over cross-entropy at the argmax may be due to the grid. At the same rate metric F1 is ahead as well: at "
        f"{lowest:g}, with the first seed, its validation value (the mean of the default and the tuned decision) is "
        f"{100 * (rival - at_edge):.1f} hundredths above cross-entropy's. Lower rates were not tried for any "
        f"loss. On the membranes only {at_membrane_edges} is at an edge."
    )


def calibration_gains(results: dict[str, Any]) -> str:
    """What calibrating before ``per_image`` changes for each loss, for the page on deciding per unit."""
    cells = results["cells"]
    rows = []
    for loss in dict.fromkeys(cell["loss"] for cell in cells):
        pairs = [
            [values_of(cells, name, loss, each, "dice, image") for each in (PROPOSED["image"], "per image")]
            for name in SETS
        ]
        rows.append([loss, *(difference(*pair) for pair in pairs)])
    return table(["loss", *(f"{SETS[name]}, {unit}" for name, unit in UNITS.items())], rows)


def exact_gaps(results: dict[str, Any]) -> str:
    """What the default method loses to the exact one on trained probabilities, for the page on deciding per unit."""
    gaps = [cell["exact gap"] for cell in results["cells"] if "exact gap" in cell]
    dice, jaccard = (100 * statistics.fmean(gap[metric] for gap in gaps) for metric in ("dice", "jaccard"))
    return (
        f"On trained probabilities (30 crops of 32 x 32 pixels from each of {len(gaps)} folds of "
        "[the membrane slices](losses.md#segmentation), cross-entropy) the default loses on average "
        f"{dice:.4f} hundredths of the expected Dice and {jaccard:.4f} of the expected IoU to the exact method."
    )


def parts_of_page(results: dict[str, Any]) -> dict[str, str]:
    """Return the section between the page's marks."""
    cells = results["cells"]
    losses = list(dict.fromkeys(cell["loss"] for cell in cells))
    counts = []
    for name, unit in UNITS.items():
        own = [cell for cell in cells if cell["set"] == name]
        counts.append(f"{SETS[name]} {len({cell['seed'] for cell in own})} {unit}, {own[0]['steps']:,} steps")
    text = [f"{'; '.join(counts)}. What it shows:", findings(results)]
    for name in SETS:
        text += [
            f"**{SETS[name]}, in hundredths**",
            losses_table(cells, name, losses),
            against_table(results, name, losses),
            "Decisions against each other, image Dice:",
            decisions_table(results, name, losses),
        ]
    text += ["**Log-loss and calibration error, as trained and calibrated, and the chosen rates**"]
    return {"segmentation": "\n\n".join([*text, calibration_table(cells, losses)])}


def parts_of_units_page(results: dict[str, Any]) -> dict[str, str]:
    """Return what the page on deciding per unit shows of this study."""
    return {"trained": exact_gaps(results), "calibrated": calibration_gains(results)}


def draw(results: dict[str, Any], path: Path) -> None:
    """The mean Dice of the images: losses by decisions."""
    cells = results["cells"]
    losses = list(dict.fromkeys(cell["loss"] for cell in cells))
    panels = {
        SETS[name]: {
            decision: {loss: values_of(cells, name, loss, decision, "dice, image") for loss in losses}
            for decision in DECISIONS
        }
        for name in SETS
    }
    draw_losses(panels, path, "image Dice", columns=len(panels))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cells", nargs="*", type=Path, help="files of finished cells")
    parser.add_argument("--out", type=Path, default=DOCS.parent, help="where docs/ and studies/results/ are written")
    given = parser.parse_args(arguments)
    where = given.out / "studies" / "results" / RESULTS.name
    if given.cells:
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(json.dumps(plain(collect(given.cells)), indent=1) + "\n", encoding="utf-8")
    results = json.loads(where.read_text(encoding="utf-8"))
    (given.out / "docs" / "img").mkdir(parents=True, exist_ok=True)
    draw(results, given.out / "docs" / "img" / PICTURE.name)
    for page, parts in ((PAGE, parts_of_page(results)), (UNITS_PAGE, parts_of_units_page(results))):
        write_page(given.out, page, parts)
    print(f"Wrote {PAGE}, {UNITS_PAGE} and {where}")


if __name__ == "__main__":
    main()
