"""Masks per image on simulated images: what they gain, how near they are to exact ones, and rankseg beside them.

    python -m studies.per_unit          # about a minute on one core; fills in the page and draws the picture
    python -m studies.per_unit --peers  # with rankseg 0.0.8, if it is installed
    python -m studies.per_unit --gaps   # only what the default loses to the exact method; half a minute

Every image is a smooth field of probabilities with one object, clear or faint; its true mask is drawn from them. So the
probabilities are calibrated, and pixels are independent given them. Thresholds are tuned on other images.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from metricfit import Counts
from metricfit.decide import per_image
from metricfit.decide.expected_values import RankedMoments, exact_values
from metricfit.metrics import get_metric
from studies.common import options, publish, table

METRICS = ("dice", "jaccard")
#: Pixels of a unit, and the power of uniform draws that makes its probabilities; the last has about two positives.
SMALL = ((5, 2), (12, 2), (20, 3), (50, 5), (100, 5), (300, 40), (300, 150))
#: Units of up to this many pixels take little time, so there are ten times as many.
FEW_PIXELS = 20
RESULTS = Path(__file__).resolve().parent / "results" / "per_unit.json"


def simulated_images(count: int, side: int, seed: int) -> tuple[Tensor, Tensor]:
    """Probabilities and true masks ``(count, side, side)``, one object each, from clear to hardly visible."""
    random = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, side)
    centre = 1.2 * torch.rand(count, 2, generator=random) - 0.6
    radius = 0.1 + 0.4 * torch.rand(count, 1, 1, generator=random)
    distance = ((axis - centre[:, :1, None]) ** 2 + (axis[:, None] - centre[:, 1:, None]) ** 2).sqrt()
    clarity = 0.15 + 0.8 * torch.rand(count, 1, 1, generator=random)
    softness = 0.02 + 0.1 * torch.rand(count, 1, 1, generator=random)
    probabilities = clarity * torch.sigmoid((radius - distance) / softness) + 0.002
    return probabilities, torch.rand(probabilities.shape, generator=random) < probabilities


def mean_value(masks: Tensor, truth: Tensor, name: str) -> float:
    counts = Counts(
        *(
            cell.flatten(1).sum(1, keepdim=True).double()
            for cell in (masks & truth, masks & ~truth, ~masks & truth, ~masks & ~truth)
        ),
        exclusive=False,
    )
    return float(get_metric(name)(counts).mean())


def tuned_threshold(count: int, side: int, name: str) -> float:
    """The threshold with the best mean over other images."""
    probabilities, truth = simulated_images(count, side, seed=1)
    grid = [step / 50 for step in range(1, 40)]
    return max(grid, key=lambda threshold: mean_value(probabilities >= threshold, truth, name))


def deciders(name: str, threshold: float, peers: bool) -> dict[str, Callable[[Tensor], Tensor]]:
    found: dict[str, Callable[[Tensor], Tensor]] = {
        "0.5": lambda p: p >= 0.5,
        "one tuned threshold": lambda p: p >= threshold,
        "**per_image**": lambda p: per_image(p, name),
    }
    if peers:
        from rankseg import RankSEG

        solvers = ("RMA", "BA") if name == "dice" else ("RMA",)
        for solver in solvers:
            rank = RankSEG(
                metric="dice" if name == "dice" else "IoU", output_mode="multilabel", solver=solver, pruning_prob=0.0
            )
            found[f"rankseg {solver}"] = lambda p, rank=rank: rank.predict(p.unsqueeze(1)).squeeze(1).bool()
    return found


def measure_values(count: int, side: int, peers: bool) -> dict[str, Any]:
    """The mean of each metric by each decision, and its time as a multiple of the sort's."""
    probabilities, truth = simulated_images(count, side, seed=0)
    results: dict[str, Any] = {}
    for name in METRICS:
        threshold = tuned_threshold(count, side, name)
        for method, decide in deciders(name, threshold, peers).items():
            value = mean_value(decide(probabilities), truth, name)
            seconds = min(_seconds(decide, probabilities) for _ in range(5))
            sort = min(_seconds(lambda p: p.flatten(1).sort(1, descending=True), probabilities) for _ in range(5))
            results.setdefault(method, {})[name] = {"value": value, "sorts": seconds / sort}
    return results


def _seconds(function: Callable[[Tensor], object], argument: Tensor) -> float:
    start = time.process_time()
    function(argument)
    return time.process_time() - start


def measure_gaps(units: int) -> list[dict[str, Any]]:
    """The expected metric that the default loses to the exact method, and what first moments alone would lose.

    Means over the units, and the largest of the default.
    """
    results = []
    for pixels, power in SMALL:
        count = 10 * units if pixels <= FEW_PIXELS else units
        draws = torch.rand(count, pixels, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        ranked = (draws**power).sort(1, descending=True).values
        sizes = torch.arange(pixels + 1).expand(count, -1)
        row: dict[str, Any] = {"pixels": pixels, "units": count, "positives": float(ranked.sum(1).mean())}
        for name in METRICS:
            metric = get_metric(name)
            exact = exact_values(ranked, metric)
            for method, values in {
                "default": RankedMoments(ranked).expected_values(metric, sizes),
                "first moments": _first_moments(ranked, name),
            }.items():
                lost = exact.max(1).values - exact.gather(1, values.argmax(1, keepdim=True))[:, 0]
                row[f"{name}, {method}"] = float(lost.mean())
                if method == "default":
                    row[f"{name}, largest"] = float(lost.max())
        results.append(row)
    return results


def _first_moments(ranked: Tensor, name: str) -> Tensor:
    hits = torch.nn.functional.pad(ranked.cumsum(1), (1, 0))
    sizes, positives = torch.arange(hits.shape[1]), ranked.sum(1, keepdim=True)
    return 2 * hits / (sizes + 1 + positives) if name == "dice" else hits / (sizes + 1 + positives - hits)


def draw(path: Path) -> None:
    """A clear and a faint object with the masks at 0.5 and per image."""
    probabilities, _ = simulated_images(200, 64, seed=3)
    highest = probabilities.flatten(1).max(1).values
    chosen = probabilities[[int((highest - aim).abs().argmin()) for aim in (0.9, 0.45, 0.25)]]
    masks = per_image(chosen, "dice")
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.4))
    for axis, image, mask in zip(axes, chosen, masks, strict=True):
        drawn = axis.imshow(image.numpy(), vmin=0, vmax=1, cmap="Greys")
        axis.contour(mask.numpy(), [0.5], colors="tab:orange", linewidths=2)
        if bool((image >= 0.5).any()):
            axis.contour((image >= 0.5).numpy(), [0.5], colors="tab:blue", linewidths=1.5, linestyles="--")
        lowest = float(image[mask].min())
        axis.set_title(f"marked from {lowest:.2f}", fontsize=11)
        axis.axis("off")
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="probability of the object")
    figure.suptitle("Best expected Dice (orange) and 0.5 (blue, dashed)", fontsize=12)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def values_table(results: dict[str, Any]) -> str:
    rows = [
        [
            method,
            *(f"{values[name]['value']:.4f}" if name in values else "none" for name in METRICS),
            f"{values['dice']['sorts']:.1f}",
        ]
        for method, values in results.items()
    ]
    return table(["decision", "mean Dice", "mean Jaccard", "time, in sorts"], rows)


def gaps_table(results: list[dict[str, Any]]) -> str:
    columns = [f"{name}, {method}" for name in METRICS for method in ("default (largest)", "first moments")]
    rows = []
    for row in results:
        cells = [row["pixels"], f"{row['positives']:.1f}"]
        for name in METRICS:
            cells.append(f"{100 * row[f'{name}, default']:.3f} ({100 * row[f'{name}, largest']:.2f})")
            cells.append(f"{100 * row[f'{name}, first moments']:.3f}")
        rows.append(cells)
    return table(["pixels", "expected positives", *columns], rows)


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    peers, only_gaps = ("--peers" in arguments, "--gaps" in arguments)
    given = options(__doc__, [argument for argument in arguments if argument not in ("--peers", "--gaps")])
    count, side, units = (6, 24, 5) if given.quick else (200, 128, 2000)
    settings = {"images": count, "side": side, "units": units}
    if only_gaps:
        images = json.loads(RESULTS.read_text(encoding="utf-8"))["images"]
    else:
        images = measure_values(count, side, peers)
        draw(given.out / "docs" / "img" / "per-unit.svg")
    results = {"settings": settings, "images": images, "gaps": measure_gaps(units)}
    publish(
        given.out,
        "evidence/decisions.md",
        {"images": values_table(results["images"]), "gaps": gaps_table(results["gaps"])},
        "per_unit",
        results,
    )


if __name__ == "__main__":
    main()
