"""A multiclass metric as a loss beside cross_entropy, forward and backward, in time and in memory.

Logits are normal, float32, 65,536 samples of 1,000 classes; targets are uniform. The memory of a pass on the CPU is
the resident memory beyond the inputs, each pass in a separate process; on a GPU it is what torch's allocator counts.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks import resident
from benchmarks.bars import CROSS_ENTROPY, METRIC_LOSS
from benchmarks.passes import AUTOTUNED, Loss, compiled, one_pass, timed_losses
from benchmarks.tables import Line, Setting, Table
from benchmarks.timing import Work
from metricfit import MetricLoss

SAMPLES, CLASSES = 2**16, 1000
USUAL = ((1_024, 3), (1_024, 10), (4_096, 10), (65_536, 10), (2_048, 20), (256, 100), (256, 1_000))
TINY_SAMPLES, TINY_CLASSES = 1024, 600  # just beyond one of the CPU's blocks


def data(samples: int, classes: int, device: str) -> tuple[Tensor, Tensor]:
    """Make normal logits and uniform targets."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(samples, classes, generator=generator, device=device)
    return logits, torch.randint(classes, (samples,), generator=generator, device=device)


def size(setting: Setting) -> tuple[int, int]:
    """Return the numbers of samples and classes per pass."""
    return setting.size(SAMPLES, TINY_SAMPLES), setting.size(CLASSES, TINY_CLASSES)


def both_losses() -> dict[str, Loss]:
    """Return cross-entropy and our loss."""
    return {CROSS_ENTROPY: cross_entropy, METRIC_LOSS: MetricLoss("f1")}


def on_cpu(setting: Setting) -> list[Line]:
    """Time both losses, eager on the CPU, with the resident memory of their processes where the kernel tells it."""
    lines = timed_losses(both_losses(), data(*size(setting), "cpu"), setting)
    if setting.tiny or not resident.STATUS.exists():
        return lines
    return [replace(line, bytes=_resident(line.name, *size(setting))) for line in lines]


def _resident(name: str, samples: int, classes: int) -> int:
    threads = torch.get_num_threads()
    return resident.extra_resident_bytes(__name__, "two_sizes", name, samples, classes, threads=threads)


def two_sizes(name: str, samples: int, classes: int) -> tuple[Work, Work]:
    """Return a small pass and the measured pass, for the process whose memory is measured."""
    small, whole = data(2, classes, "cpu"), data(samples, classes, "cpu")
    return one_pass(both_losses()[name], *small), one_pass(both_losses()[name], *whole)


def on_gpu(setting: Setting) -> list[Line]:
    """Time both losses on a GPU, eager and compiled."""
    losses = both_losses()
    losses |= {f"{name}, compiled": compiled(loss, "cuda", setting) for name, loss in losses.items()}
    return timed_losses(losses, data(*size(setting), "cuda"), setting)


def autotuned(setting: Setting) -> list[Line]:
    """Time our loss compiled with autotuning beside cross-entropy, on a GPU."""
    loss = compiled(MetricLoss("f1"), "cuda", setting, autotuned=True)
    losses: dict[str, Loss] = {CROSS_ENTROPY: cross_entropy, f"{METRIC_LOSS}, {AUTOTUNED}": loss}
    return timed_losses(losses, data(*size(setting), "cuda"), setting)


def usual_sizes(setting: Setting) -> list[Line]:
    """Time both losses on the numbers of samples and classes of tables and small images, eager on the CPU."""
    lines = []
    for samples, classes in USUAL:
        losses = {f"{name}, {samples:,} x {classes:,}": loss for name, loss in both_losses().items()}
        batch = data(setting.size(samples, 64), setting.size(classes, 3), "cpu")
        plain, ours = timed_losses(losses, batch, setting)
        lines += [plain, replace(ours, note=f"{ours.seconds / plain.seconds:.2f} times cross_entropy")]
    return lines


TABLES = (
    Table("multiclass-cpu", "a multiclass pass of 65,536 x 1,000 logits, CPU, eager", "cpu", on_cpu),
    Table("multiclass-sizes-cpu", "multiclass passes of usual sizes, CPU, eager", "cpu", usual_sizes),
    Table("multiclass-gpu", "a multiclass pass of 65,536 x 1,000 logits, GPU", "cuda", on_gpu),
    Table(
        "multiclass-autotuned-gpu",
        "a multiclass pass of 65,536 x 1,000 logits, GPU, compiled with autotuning",
        "cuda",
        autotuned,
    ),
)
