"""Row 3: a multiclass metric as a loss against cross_entropy, forward and backward, in time and in memory.

Logits are normal, float32, 65,536 samples of 1,000 classes; targets are uniform. The memory of a pass on the CPU is
the resident memory beyond the inputs, each pass in a separate process; on a GPU it is what torch's allocator counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks import resident
from benchmarks.passes import Loss, compiled, one_pass, timed_peers
from benchmarks.rows import Measurement, NotMeasuredHere, Peer, PeerGroup, Row, Setting, at_most
from benchmarks.timing import Work, interleaved_minima, peak_bytes
from metricfit import MetricLoss

SAMPLES, CLASSES = 2**16, 1000
QUICK_SAMPLES, QUICK_CLASSES = 512, 600  # just beyond one of the CPU's blocks


def data(samples: int, classes: int, device: str) -> tuple[Tensor, Tensor]:
    """Make normal logits and uniform targets."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(samples, classes, generator=generator, device=device)
    return logits, torch.randint(classes, (samples,), generator=generator, device=device)


def size(setting: Setting) -> tuple[int, int]:
    """Return the numbers of samples and classes per pass."""
    return setting.size(SAMPLES, QUICK_SAMPLES), setting.size(CLASSES, QUICK_CLASSES)


def loss_named(name: str) -> Loss:
    """Return our loss, or cross-entropy."""
    return MetricLoss("f1") if name == "ours" else cross_entropy


def time_against_cross_entropy(setting: Setting) -> Measurement:
    """Measure the seconds per pass of our loss and of cross-entropy, both eager on the CPU."""
    logits, target = data(*size(setting), "cpu")
    passes = {name: one_pass(loss_named(name), logits, target) for name in ("ours", "cross_entropy")}
    best, repeats = interleaved_minima(passes, "cpu", setting)
    return Measurement(best["ours"], best["cross_entropy"], repeats=repeats)


def memory_against_cross_entropy(setting: Setting) -> Measurement:
    """Measure the resident memory beyond the inputs of our loss and of cross-entropy, both eager on the CPU."""
    if not resident.STATUS.exists():
        raise NotMeasuredHere(f"no {resident.STATUS}")
    needed = partial(_profiled if setting.quick else _resident, size(setting))
    return Measurement(needed("ours"), needed("cross_entropy"), unit="bytes", repeats=1)


def _resident(shape: tuple[int, int], name: str) -> int:
    return resident.extra_resident_bytes(__name__, "two_sizes", name, *shape, threads=torch.get_num_threads())


def _profiled(shape: tuple[int, int], name: str) -> int:
    """Measure the memory in this process with the profiler; a quick run has no time to start processes."""
    return peak_bytes(two_sizes(name, *shape)[1], "cpu")


def two_sizes(name: str, samples: int, classes: int) -> tuple[Work, Work]:
    """Return a small pass and the measured pass, for the process whose memory is measured."""
    small, whole = data(2, classes, "cpu"), data(samples, classes, "cpu")
    return one_pass(loss_named(name), *small), one_pass(loss_named(name), *whole)


def eager_and_compiled(device: str) -> Callable[[Setting], list[Peer]]:
    """Time both losses, eager and compiled, for information."""

    def measure(setting: Setting) -> list[Peer]:
        logits, target = data(*size(setting), device)
        losses: dict[str, Loss] = {
            "cross_entropy": cross_entropy,
            'MetricLoss("f1")': MetricLoss("f1"),
            "cross_entropy, compiled": compiled(cross_entropy, device, setting),
            'MetricLoss("f1"), compiled': compiled(MetricLoss("f1"), device, setting),
        }
        return timed_peers({name: one_pass(loss, logits, target) for name, loss in losses.items()}, device, setting)

    return measure


WORK = 'multiclass MetricLoss("f1") forward+backward v cross_entropy, 65536 x 1000, CPU, both eager'

ROWS = (
    Row("multiclass-loss-cpu-eager", f"{WORK}: time", "cpu", at_most(3.0), time_against_cross_entropy),
    Row("multiclass-loss-cpu-memory", f"{WORK}: peak memory", "cpu", at_most(2.0), memory_against_cross_entropy),
)

PEERS = (
    PeerGroup(
        "multiclass-loss-gpu-peers",
        "a multiclass pass of 65536 x 1000 logits, GPU",
        "cuda",
        eager_and_compiled("cuda"),
    ),
)
