"""What a loss costs over two processes: the bytes that each sends per pass, and the time beside one without messages.

    python -m benchmarks.growth_processes --json benchmarks/results/growth/processes.json   # about 20 seconds

Two processes of this machine talk through gloo, with one thread each. Every tensor that is handed to a collective
operation of ``torch.distributed`` is counted. A pass is forward and backward to the logits; the gradient of the model,
which DistributedDataParallel sends with any loss, comes on top.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks import binary_loss, multiclass_loss
from benchmarks.passes import Loss, one_pass
from benchmarks.report import current_commit, describe
from benchmarks.tables import Setting
from benchmarks.timing import interleaved_minima
from metricfit import MetricLoss
from metricfit.losses import FocalLoss, PairHingeLoss

PROCESSES = 2
SAMPLES = (32, 1_024, 32_768)  # of one process
CLASSES = (10, 100, 1_000, 10_000)
CLASS_SAMPLES = 256
REPEATS, FEW_REPEATS, MANY_LOGITS = 200, 50, 10**5
#: Collective operations, and the position of the tensor that a process sends.
COLLECTIVES = {"all_reduce": 0, "all_gather": 1, "all_gather_into_tensor": 1, "reduce_scatter_tensor": 1}


class Messages:
    """Counts the bytes that this process hands to collective operations."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        for name, position in COLLECTIVES.items():
            setattr(dist, name, self._counted(name, getattr(dist, name), position))

    def _counted(self, name: str, operation: Callable[..., Any], position: int) -> Callable[..., Any]:
        @functools.wraps(operation)
        def counted(*arguments: Any, **options: Any) -> Any:
            tensor: Tensor = arguments[position]
            self.sent.append((name, tensor.numel() * tensor.element_size()))
            return operation(*arguments, **options)

        return counted

    def of(self, work: Callable[[], Any]) -> list[tuple[str, int]]:
        """Return the operations and bytes of one call."""
        self.sent.clear()
        work()
        return list(self.sent)


def cases() -> list[tuple[str, int, int, Callable[[bool], Loss]]]:
    """Return loss, samples per process, classes, and the loss with and without messages."""
    binary = [
        *(('MetricLoss("f1")', n, 1, lambda sync: MetricLoss("f1", sync=sync)) for n in SAMPLES),
        *(("FocalLoss", n, 1, lambda sync: FocalLoss(2.0, sync=sync)) for n in SAMPLES[1:2]),
        *(("PairHingeLoss", n, 1, lambda sync: PairHingeLoss(sync=sync)) for n in SAMPLES),
    ]
    classes = [('MetricLoss("f1")', CLASS_SAMPLES, c, lambda sync: MetricLoss("f1", sync=sync)) for c in CLASSES]
    return [*binary, *classes]


def measure(rank: int, folder: str, file: str) -> None:
    """Run all cases in one process; the first writes the results."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the same batch again and again teaches nothing
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=PROCESSES)
    messages, points = Messages(), []
    for name, samples, classes, make in cases():
        data = binary_loss.data(samples, "cpu") if classes == 1 else multiclass_loss.data(samples, classes, "cpu")
        works = {kind: one_pass(make(kind == "together"), *data) for kind in ("together", "alone")}
        sent = messages.of(works["together"])
        repeats = FEW_REPEATS if samples * classes > MANY_LOGITS else REPEATS
        # The same number in both processes: they wait for each other.
        best, repeats = interleaved_minima(works, "cpu", Setting(repeats, fewest=repeats, budget=0.0))
        point = {"loss": name, "samples": samples, "classes": classes, "messages": sent, "repeats": repeats}
        points.append(point | {"seconds": best["together"], "seconds_alone": best["alone"]})
        if rank == 0:
            print(_line(points[-1]), flush=True)
    if rank == 0:
        header = describe("python -m benchmarks.growth_processes") | {"commit": current_commit()}
        Path(file).write_text(json.dumps(header | {"points": points}, indent=1) + "\n", encoding="utf-8")
    dist.destroy_process_group()


def main(arguments: list[str] | None = None) -> None:
    """Start two processes, which print and write what they measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure, (folder, str(options.json)), nprocs=PROCESSES)


def _line(point: dict[str, Any]) -> str:
    times = f"{point['seconds'] * 1e3:8.3f} ms together, {point['seconds_alone'] * 1e3:8.3f} ms alone"
    return f"{point['loss']:18} {point['samples']:>7,} x {point['classes']:<6,} {times}  {point['messages']}"


if __name__ == "__main__":
    main()
