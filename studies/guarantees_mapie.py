"""MAPIE's risk control on the draws of guarantees.py; run it in an environment with MAPIE 1.6, without metricfit.

    PEER/bin/python -m studies.guarantees_mapie runs/guarantees          # all draws of all cases
    PEER/bin/python -m studies.guarantees_mapie runs/guarantees 100      # 100 draws of cases without results

"MAPIE" is BinaryClassificationController with its defaults (100 thresholds, Bonferroni-Holm). "MAPIE, sequence" tests
in a fixed sequence, from the easiest threshold, where the requirement is monotone, and otherwise in an order learned on
a fifth of the rows ("split_fixed_sequence"). Thresholds that no row reaches are left out of the grid: with them, 1.6.0
has a p-value of NaN for precision, and then finds no threshold at all.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from mapie.risk_control import BinaryClassificationController

CONFIDENCE, LEARNING_SHARE = 0.9, 0.2
GRID = np.linspace(0, 0.99, 100)
NAMES = {"selection_rate": "predicted_positive_fraction"}
#: Where testing starts: the lowest threshold, the highest, or an order to be learned.
STARTS = {"recall": "lowest", "fpr": "highest", "selection_rate": "highest"}


def probabilities(logits: Any) -> Any:
    positive = 1 / (1 + np.exp(-logits[:, 0]))
    return np.column_stack([1 - positive, positive])


def choose(logits: Any, y: Any, requirements: list[str], metric: str, sequence: bool, seed: int) -> int | None:
    """The number of the threshold that MAPIE chooses, None if it finds none."""
    names, levels = zip(*((text.split()[0], float(text.split()[2])) for text in requirements), strict=True)
    risks = [NAMES.get(name, name) for name in names]
    one = len(risks) == 1
    starts = {STARTS.get(name) for name in names}
    method, learning = "bonferroni_holm", np.zeros(len(y), dtype=bool)
    if sequence and (len(starts) > 1 or None in starts):
        method = "split_fixed_sequence"
        learning[np.random.default_rng((seed, 1_934)).permutation(len(y))[: round(LEARNING_SHARE * len(y))]] = True
    parts = [logits[learning], logits[~learning]] if learning.any() else [logits]
    grid = GRID[min(probabilities(part)[:, 1].max() for part in parts) >= GRID]
    if sequence and not learning.any():
        grid, method = (grid if "lowest" in starts else grid[::-1]), "fixed_sequence"
    controller = BinaryClassificationController(
        probabilities,
        risks[0] if one else risks,
        levels[0] if one else list(levels),
        confidence_level=CONFIDENCE,
        best_predict_param_choice=metric,
        list_predict_params=grid,
        fwer_method=method,
    )
    if learning.any():
        controller.learn_fixed_sequence_order(logits[learning], y[learning])
    controller.calibrate(logits[~learning], y[~learning])
    best = controller.best_predict_param
    return None if best is None else int(np.argmin(np.abs(GRID - best)))


def main() -> None:
    folder, limit = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
    warnings.simplefilter("ignore")
    for path in sorted(folder.glob("*.npz")):
        if limit is not None and path.with_suffix("").with_name(path.stem + ".mapie.json").exists():
            continue
        case = json.loads(path.with_suffix(".json").read_text())["case"]
        draws = np.load(path)
        found = {}
        for name, sequence in (("MAPIE", False), ("MAPIE, sequence", True)):
            pairs = zip(draws["scores"][:limit], draws["y"][:limit], strict=True)
            found[name] = [
                choose(z[:, None], y, case["requirements"], case["metric"], sequence, seed)
                for seed, (z, y) in enumerate(pairs)
            ]
        path.with_suffix("").with_name(path.stem + ".mapie.json").write_text(json.dumps(found))
        print(path.stem, flush=True)


if __name__ == "__main__":
    main()
