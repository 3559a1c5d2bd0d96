"""The section on long tails of docs/evidence/losses.md, from the cells that long_tails.py writes.

python -m studies.long_tails_page                     # from the stored results
python -m studies.long_tails_page --cells runs/tails  # collect new cells first
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from studies.common import DOCS, fill, table
from studies.long_tails import DECISIONS, LOSSES, METRICS, MIXES, NETWORKS, RATIOS, SETS, VARIANTS
from studies.pays_tables import Values, against, draw_losses

RESULTS, PAGE = Path(__file__).resolve().parent / "results" / "long_tails.json", DOCS / "evidence" / "losses.md"
PICTURE = DOCS / "img" / "pays-tails.svg"
BASELINE, MIX, PROPOSED = "CE", "CE + 0.5 F1", "offsets, smoothed"
#: Variants are shown from this number of problems on.
FEWEST_PROBLEMS = 3
NAMES = {"f1": "Macro F1", "balanced_accuracy": "Balanced accuracy", "mcc": "MCC"}
SET_NAMES = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST"}

Problem = tuple[str, int, str]
Cells = dict[tuple[str, int, str, str], dict[str, Any]]


def collect(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def by_key(cells: list[dict[str, Any]]) -> Cells:
    return {(cell["set"], cell["ratio"], cell["network"], cell["loss"]): cell for cell in cells}


def complete_problems(cells: Cells, losses: Sequence[str] = LOSSES) -> list[Problem]:
    """Sets, ratios and networks on which all these losses were trained."""
    problems = product(SETS, RATIOS, NETWORKS)
    return [problem for problem in problems if all((*problem, loss) in cells for loss in losses)]


def means(
    cells: Cells, problems: Sequence[Problem], decision: str, mix: str, metric: str, losses: Sequence[str] = LOSSES
) -> Values:
    """The mean over the seeds, for each loss on each problem."""
    return {
        loss: [
            statistics.fmean(one[decision][mix][metric] for one in cells[(*problem, loss)]["values"])
            for problem in problems
        ]
        for loss in losses
    }


def losses_table(cells: Cells, problems: Sequence[Problem], mix: str, metric: str) -> str:
    """Losses by decisions, and each loss against cross-entropy with the argmax and with the proposed offsets."""
    by_decision = {decision: means(cells, problems, decision, mix, metric) for decision in DECISIONS}
    compared = [against(by_decision[decision], BASELINE) for decision in ("argmax", PROPOSED)]
    rows = []
    for loss in LOSSES:
        values = [f"{statistics.fmean(by_decision[decision][loss]):.3f}" for decision in DECISIONS]
        rows.append([loss, *values, *(text.get(loss, "") for text in compared)])
    head = ["loss", *DECISIONS, f"against {BASELINE}, argmax", f"against {BASELINE}, {PROPOSED}"]
    return f"**{NAMES[metric]}, {mix} test rows**\n\n" + table(head, rows)


def decisions_table(cells: Cells, problems: Sequence[Problem]) -> str:
    """Tuned offsets against the argmax, for each loss, by macro F1."""
    rows = []
    for loss in LOSSES:
        row = [loss]
        for mix in MIXES:
            values = {decision: means(cells, problems, decision, mix, "f1")[loss] for decision in DECISIONS}
            row += [against(values, "argmax")[decision] for decision in DECISIONS[1:]]
        rows.append(row)
    return table(["loss", *(f"{decision}; {mix}" for mix in MIXES for decision in DECISIONS[1:])], rows)


def problems_table(cells: Cells, problems: Sequence[Problem]) -> str:
    """Macro F1 of balanced test rows on every problem: argmax / smoothed offsets."""
    rows = []
    for place, problem in enumerate(problems):
        values = [
            [means(cells, problems, decision, "balanced", "f1")[loss][place] for decision in ("argmax", PROPOSED)]
            for loss in LOSSES
        ]
        name = f"{SET_NAMES[problem[0]]}, {problem[1]}:1, {problem[2]}"
        rows.append([name, *(f"{argmax:.3f} / {tuned:.3f}" for argmax, tuned in values)])
    return table(["problem", *LOSSES], rows)


def variants_table(cells: Cells) -> str:
    """Other forms of the mix against the mix with weight 0.5 and the default step, by macro F1."""
    losses = (MIX, *VARIANTS)
    problems = complete_problems(cells, losses)
    if len(problems) < FEWEST_PROBLEMS:
        return ""
    rows: list[list[str]] = [[loss] for loss in losses]
    for mix, decision in product(MIXES, ("argmax", PROPOSED)):
        values = means(cells, problems, decision, mix, "f1", losses)
        compared = against(values, MIX)
        for row in rows:
            difference = f" ({compared[row[0]]})" if row[0] in compared else ""
            row.append(f"{statistics.fmean(values[row[0]]):.3f}{difference}")
    head = table(["loss", *(f"{mix}, {decision}" for mix, decision in product(MIXES, ("argmax", PROPOSED)))], rows)
    return f"**Other forms of the mix, macro F1**, on {len(problems)} problems, against `{MIX}`:\n\n{head}"


def rates_table(cells: Cells, problems: Sequence[Problem]) -> str:
    """How often each learning rate was kept."""
    rates = cells[(*problems[0], BASELINE)]["rates"]
    rows = [
        [loss, *(sum(cells[(*problem, loss)]["rate"] == rate for problem in problems) for rate in rates)]
        for loss in LOSSES
    ]
    return table(["loss", *(f"{rate:g}" for rate in rates)], rows)


def parts_of_page(stored: list[dict[str, Any]]) -> dict[str, str]:
    cells = by_key(stored)
    problems = complete_problems(cells)
    seeds = sorted({len(cells[(*problem, loss)]["values"]) for problem in problems for loss in LOSSES})
    note = (
        f"Means over {len(problems)} problems (set, ratio, network) with {' or '.join(map(str, seeds))} seeds each. "
        "Comparisons: the mean difference, problems won-lost, and the p-value of Wilcoxon's test over the problems, "
        f"corrected for the {len(LOSSES) - 1} losses (Holm). The smallest p that {len(problems)} problems allow is "
        f"{(len(LOSSES) - 1) * 2 / 2 ** len(problems):.2g}, for a loss that wins or loses all of them."
    )
    tables = [losses_table(cells, problems, mix, metric) for metric in METRICS for mix in MIXES]
    parts = [
        note,
        *tables,
        "**Macro F1, offsets against the argmax**, corrected for two decisions:",
        decisions_table(cells, problems),
        "**Macro F1 of balanced test rows, argmax / smoothed offsets:**",
        problems_table(cells, problems),
        variants_table(cells),
        "**Number of problems for which each learning rate was kept:**",
        rates_table(cells, problems),
    ]
    return {"tails": "\n\n".join(filter(None, parts))}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, help="the folder of finished cells: collect them")
    options = parser.parse_args(arguments)
    if options.cells is not None:
        lines = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in collect(options.cells))
        RESULTS.write_text(f"[{lines}]\n", encoding="utf-8")
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts_of_page(stored)), encoding="utf-8")
    cells = by_key(stored)
    panels = {}
    for name, ratio in product(SETS, RATIOS):
        problems = [problem for problem in complete_problems(cells) if problem[:2] == (name, ratio)]
        if problems:
            panels[f"{SET_NAMES[name]}, {ratio}:1"] = {
                decision: means(cells, problems, decision, "balanced", "f1") for decision in DECISIONS
            }
    draw_losses(panels, PICTURE, "macro F1, balanced rows", columns=2)


if __name__ == "__main__":
    main()
