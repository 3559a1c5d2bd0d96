"""Time and memory of per_image on a GPU, beside the sort of the same numbers and rankseg 0.0.8.

    python -m studies.per_unit_speed --peers  # needs a CUDA device; --peers needs rankseg
    python -m studies.per_unit_speed --page   # fills in the page from the stored results

Times are the minima of interleaved repeats; memory is the peak beyond the probabilities themselves.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metricfit.decide import per_image
from studies.common import DOCS, fill, plain, table

#: Name, task and shape.
SHAPES: tuple[tuple[str, str | None, tuple[int, ...]], ...] = (
    ("200 masks of 128 x 128", None, (200, 128, 128)),
    ("16 masks of 512 x 512", None, (16, 512, 512)),
    ("8 masks of 2,048 x 2,048", None, (8, 2048, 2048)),
    ("16 images of 256 x 256, 19 overlapping masks", "multilabel", (16, 19, 256, 256)),
    ("16 images of 256 x 256, 19 classes", "multiclass", (16, 19, 256, 256)),
    ("233 images of 180 x 240, 11 classes", "multiclass", (233, 11, 180, 240)),
)
REPEATS = 15
RESULTS, PAGE = Path(__file__).resolve().parent / "results" / "per_unit_speed.json", DOCS / "evidence" / "decisions.md"


def made_up(shape: tuple[int, ...], task: str | None, device: torch.device) -> Tensor:
    """Probabilities that change smoothly over an image."""
    random = torch.Generator(device=device).manual_seed(0)
    *front, height, width = shape
    coarse = torch.randn(*(front if len(front) == 2 else (front[0], 1)), 8, 8, generator=random, device=device)
    logits = 3 * torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    logits = logits + 0.5 * torch.randn(logits.shape, generator=random, device=device)
    return logits.softmax(1) if task == "multiclass" else (logits - 2).sigmoid().reshape(shape)


def contenders(task: str | None, peers: bool) -> dict[str, Callable[[Tensor], object]]:
    def sort(p: Tensor) -> object:
        return p.flatten(1 if task is None else 2).sort(-1, descending=True)

    found: dict[str, Callable[[Tensor], object]] = {
        "sort": sort,
        "per_image dice": lambda p: per_image(p, "dice", task=task),
        "per_image jaccard": lambda p: per_image(p, "jaccard", task=task),
    }
    if peers:
        from rankseg import RankSEG

        mode = "multiclass" if task == "multiclass" else "multilabel"
        for name, settings in {
            "rankseg RMA dice": {"metric": "dice"},
            "rankseg RMA dice, screening": {"metric": "dice", "safe_screening": "auto"},
            "rankseg RMA jaccard": {"metric": "IoU"},
        }.items():
            rank = RankSEG(output_mode=mode, solver="RMA", pruning_prob=0.0, **settings)
            found[name] = lambda p, rank=rank: rank.predict(p.unsqueeze(1) if task is None else p)
    return found


def measure_shape(task: str | None, probabilities: Tensor, peers: bool) -> dict[str, Any]:
    times: dict[str, list[float]] = {}
    memory: dict[str, float] = {}
    functions = contenders(task, peers)
    for name, function in list(functions.items()):
        try:
            for _ in range(2):
                function(probabilities)
        except Exception as error:
            print(f"  {name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            del functions[name]
    for _ in range(REPEATS):
        for name, function in functions.items():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function(probabilities)
            end.record()
            torch.cuda.synchronize()
            times.setdefault(name, []).append(start.elapsed_time(end))
            memory[name] = (torch.cuda.max_memory_allocated() - before) / 2**20
    return {name: {"ms": min(times[name]), "MiB": memory[name]} for name in functions}


def speed_table(results: dict[str, Any]) -> str:
    """Milliseconds and peak memory of each way to decide."""
    shapes = {name: found for name, found in results.items() if name != "device"}
    methods = list(next(iter(shapes.values())))
    rows = [
        [name, *(f"{found[method]['ms']:.1f} ms, {found[method]['MiB']:,.0f} MiB" for method in methods)]
        for name, found in shapes.items()
    ]
    return table(["probabilities", *methods], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="with rankseg")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results are written")
    parser.add_argument("--page", action="store_true", help="only fill in the page, from the stored results")
    given = parser.parse_args()
    if not given.page:
        device = torch.device("cuda")
        results: dict[str, Any] = {"device": torch.cuda.get_device_name(device)}
        for name, task, shape in SHAPES:
            results[name] = measure_shape(task, made_up(shape, task, device), given.peers)
            print(name, results[name], flush=True)
            given.results.write_text(json.dumps(plain(results), indent=1) + "\n", encoding="utf-8")
    results = json.loads(given.results.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"gpu": speed_table(results)}), encoding="utf-8")


if __name__ == "__main__":
    main()
