"""How time and memory of a pass grow with samples and with classes: docs/evidence/speed.md shows the results.

    make growth                                                                        # the CPU, then the page
    python -m benchmarks.growth --device cuda --json benchmarks/results/growth/h200.json   # about 90 s on an H200
    python docs/figures/cost_growth.py                                                 # pictures and tables of the page

The file is written after every size, so a run that is stopped keeps what it has measured, and later runs continue
behind it unless ``--again`` is given. Losses are left out of sizes for which memory does not suffice; the file says so.
``growth_processes`` measures what two processes send to each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from benchmarks import binary_loss, multiclass_loss
from benchmarks.bars import BCE, CROSS_ENTROPY, METRIC_LOSS
from benchmarks.pair_losses import all_pairs
from benchmarks.passes import Loss, one_pass
from benchmarks.pointwise import GAMMA, focal
from benchmarks.report import current_commit, describe
from benchmarks.tables import Setting
from benchmarks.timing import Work, interleaved_minima, peak_bytes
from metricfit import MetricLoss
from metricfit.curves import best_threshold
from metricfit.losses import FocalLoss, PairHingeLoss

SAMPLES = tuple(10**power for power in range(2, 10))
CLASSES = (1, 2, 10, 100, 1_000, 10_000)
SAMPLES_PER_CLASS_TABLE = {"cpu": 4_096, "cuda": 65_536}
SECONDS_PER_SIZE = 4.0
SLOWEST = 5.0  # seconds of a pass: beyond it a loss is left out of larger sizes
TOO_SLOW = f"a pass takes more than {SLOWEST:g} s"
SHARE_OF_MEMORY = 0.7
GUESSED_BYTES = 32.0  # per logit, for a loss that was not measured at a smaller size

Works = dict[str, Work]


@dataclass(frozen=True)
class Size:
    """One size of one axis: how many logits there are, and the function that makes the works."""

    axis: str
    samples: int
    classes: int
    works: Callable[[str], Works]

    @property
    def logits(self) -> int:
        """The number of logits of a pass."""
        return self.samples * self.classes


def binary_works(n: int, device: str) -> Works:
    """Return passes of binary losses, and the search for a threshold beside the sort."""
    logits, target = binary_loss.data(n, device)
    losses: dict[str, Loss] = {
        BCE: nn.BCEWithLogitsLoss(),
        METRIC_LOSS: MetricLoss("f1"),
        "FocalLoss": FocalLoss(GAMMA),
        "focal loss, plain torch": focal,
        "soft Dice, plain torch": binary_loss.soft_dice,
        "PairHingeLoss": PairHingeLoss(),
        "all pairs, plain torch": all_pairs,
    }
    searches: Works = {
        "torch.sort": lambda: torch.sort(logits, descending=True),
        "best_threshold": lambda: best_threshold(logits, target, "f1"),
    }
    return {name: one_pass(loss, logits, target) for name, loss in losses.items()} | searches


def multiclass_works(n: int, classes: int, device: str) -> Works:
    """Return passes of losses of exclusive classes."""
    batch = multiclass_loss.data(n, classes, device)
    losses: dict[str, Loss] = {
        CROSS_ENTROPY: cross_entropy,
        METRIC_LOSS: MetricLoss("f1"),
        "focal loss, plain torch": multiclass_focal,
        "soft Dice, plain torch": multiclass_dice,
    }
    return {name: one_pass(loss, *batch) for name, loss in losses.items()}


def multilabel_works(n: int, labels: int, device: str) -> Works:
    """Return passes of losses of labels that do not exclude each other."""
    logits, target = (part.view(n, labels) for part in binary_loss.data(n * labels, device))
    losses: dict[str, Loss] = {
        BCE: nn.BCEWithLogitsLoss(),
        METRIC_LOSS: MetricLoss("f1", task="multilabel" if labels > 1 else "binary"),
        "FocalLoss": FocalLoss(GAMMA, task="multilabel" if labels > 1 else "binary"),
    }
    return {name: one_pass(loss, logits, target) for name, loss in losses.items()}


def multiclass_focal(logits: Tensor, target: Tensor) -> Tensor:
    """Focal loss of exclusive classes as usually written."""
    losses = cross_entropy(logits, target, reduction="none")
    return ((1 - torch.exp(-losses)) ** GAMMA * losses).mean()


def multiclass_dice(logits: Tensor, target: Tensor) -> Tensor:
    """Soft Dice of exclusive classes, the mean over classes, as usually written."""
    p, y = torch.softmax(logits, dim=1), one_hot(target, logits.shape[1]).to(logits.dtype)
    return 1 - (2 * (p * y).sum(0) / (p.sum(0) + y.sum(0)).clamp_min(1e-8)).mean()


def sizes(device: str, largest: int) -> list[Size]:
    """Return every size, small ones first."""
    n = min(SAMPLES_PER_CLASS_TABLE[device], largest)
    by_samples = [Size("samples", m, 1, lambda d, m=m: binary_works(m, d)) for m in SAMPLES if m <= largest]  # type: ignore[misc]
    by_classes = [
        Size("multiclass", n, c, lambda d, c=c: multiclass_works(n, c, d))  # type: ignore[misc]
        for c in CLASSES
        if 2 <= c <= largest
    ]
    by_labels = [Size("multilabel", n, c, lambda d, c=c: multilabel_works(n, c, d)) for c in CLASSES if c <= largest]  # type: ignore[misc]
    return by_samples + by_classes + by_labels


class Known:
    """What smaller sizes have shown about a loss: its bytes per logit and its seconds."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], dict[str, Any]] = {}

    def reason_to_skip(self, name: str, size: Size, device: str) -> str:
        """Return why a loss is not measured at this size, or nothing."""
        smaller = self._points.get((size.axis, name))
        if smaller is None:
            bytes_needed = GUESSED_BYTES * size.logits
        elif smaller.get("reason"):
            return str(smaller["reason"])
        else:
            times = size.logits / (smaller["samples"] * smaller["classes"])
            is_quadratic = name.startswith("all pairs")
            bytes_needed = smaller["bytes"] * times ** (2 if is_quadratic else 1)
            if smaller["seconds"] * times ** (2 if is_quadratic else 1) > SLOWEST:
                return TOO_SLOW
        return "" if bytes_needed < SHARE_OF_MEMORY * free_bytes(device) else "not enough memory"

    def add(self, point: dict[str, Any]) -> None:
        """Remember a point."""
        self._points[(point["axis"], point["loss"])] = point


def free_bytes(device: str) -> float:
    """Return the memory that is free on the device."""
    if device == "cuda":
        return float(torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    kibibytes = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 2**22)
    return 1024.0 * kibibytes


def measure(size: Size, device: str, known: Known, setting: Setting) -> list[dict[str, Any]]:
    """Measure all losses at one size, interleaved."""
    start: dict[str, Any] = {"axis": size.axis, "samples": size.samples, "classes": size.classes}
    if 12.0 * size.logits > SHARE_OF_MEMORY * free_bytes(device):  # logits, target and the gradient
        return []
    works = size.works(device)
    points, chosen, memory = [], {}, {}
    for name, work in works.items():
        reason = known.reason_to_skip(name, size, device)
        if not reason:
            begun = time.monotonic()
            try:
                memory[name] = peak_bytes(work, device)
            except (torch.OutOfMemoryError, MemoryError):
                reason = "not enough memory"
            if time.monotonic() - begun > 2 * SLOWEST:  # it was called twice
                reason = TOO_SLOW
        if reason:
            points.append(start | {"loss": name, "seconds": None, "bytes": None, "repeats": 0, "reason": reason})
        else:
            chosen[name] = work
    best, repeats = interleaved_minima(chosen, device, setting, warmup=1)
    for name in chosen:
        line = {"loss": name, "seconds": best[name], "bytes": memory[name], "repeats": repeats, "reason": ""}
        points.append(start | line)
    for point in points:
        known.add(point)
    return points


def measured_sizes(
    device: str, largest: int, kept: list[dict[str, Any]], setting: Setting, deadline: float
) -> Iterator[list[dict[str, Any]]]:
    """Yield the points of every size that is not kept from an earlier run, until the deadline."""
    known = Known()
    for size in sizes(device, largest):
        earlier = [
            p for p in kept if (p["axis"], p["samples"], p["classes"]) == (size.axis, size.samples, size.classes)
        ]
        for point in earlier:
            known.add(point)
        if earlier:
            continue
        if time.monotonic() > deadline:
            print("out of time", file=sys.stderr)
            return
        print(f"measuring {size.axis}, {size.samples:,} x {size.classes:,} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        yield measure(size, device, known, setting)
        print(f"took {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()


def show(points: list[dict[str, Any]]) -> str:
    """Format points as lines."""
    return "\n".join(_line(point) for point in points)


def _line(point: Mapping[str, Any]) -> str:
    start = f"{point['axis']:10} {point['samples']:>13,} x {point['classes']:<6,} {point['loss']:26}"
    if point["reason"]:
        return f"{start} {point['reason']}"
    per_sample = point["seconds"] / point["samples"] * 1e9, point["bytes"] / point["samples"]
    return f"{start} {point['seconds'] * 1e3:12.3f} ms {per_sample[0]:12.3f} ns {per_sample[1]:12.1f} B per sample"


def main(arguments: list[str] | None = None) -> None:
    """Measure what is missing in the file of results, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--largest", type=float, default=SAMPLES[-1], help="the largest number of samples")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further size after this time")
    parser.add_argument("--budget", type=float, default=SECONDS_PER_SIZE, help="seconds per size")
    parser.add_argument("--threads", type=int, help="torch's CPU threads")
    parser.add_argument("--again", action="store_true", help="measure all sizes again")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="the file of results")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    kept = _read_points(options.json) if not options.again else []
    header = describe(f"python -m benchmarks.growth --device {options.device}") | {"commit": current_commit()}
    warnings.simplefilter("ignore")  # the same batch again and again teaches nothing
    setting = Setting(repeats=200, fewest=3, budget=options.budget)
    deadline = time.monotonic() + options.seconds
    for points in measured_sizes(options.device, int(options.largest), kept, setting, deadline):
        print(show(points), flush=True)
        kept = [*kept, *points]
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(header | {"points": kept}, indent=1) + "\n", encoding="utf-8")


def _read_points(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    points: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["points"]
    return points


if __name__ == "__main__":
    main()
