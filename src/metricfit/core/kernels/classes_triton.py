"""Soft counts of exclusive classes on a CUDA device: one pass over the logits for the counts, one for the gradient.

Nothing of the size of the logits is stored but the gradient. Probabilities, the two largest of them and the step are
computed in registers, in float32 for logits of any type. Counts are sums without a matrix product, so that TF32 does
not matter. Each program adds its samples in float32 and writes one partial sum per class; a second small program adds
these in float64. Only the true classes of rows with many classes are counted by atomic additions, to memory of the
program, so that results differ at most in the order of these. Above ``ONE_BLOCK`` classes the programs walk over blocks
of classes, and the counts read the logits twice.

The formulas are those of ``step_formulas`` and ``classes``, and tests compare the two.
"""

from __future__ import annotations

import importlib.util
import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metricfit.core.kernels import launch
from metricfit.core.kernels.soft_classes import Layout, StepAt
from metricfit.core.step_formulas import both_ends
from metricfit.errors import InvalidValueError

AVAILABLE = importlib.util.find_spec("triton") is not None
KINDS = {"linear": 0, "sigmoid": 1, "identity": 2, "raised_cosine": 3}
TYPES = (torch.float32, torch.float16, torch.bfloat16)
#: The largest number of classes in one block.
ONE_BLOCK = 2048
#: From this number of classes on, true classes are counted by atomic additions to memory of the program.
SCATTERED = 64


class Launch(NamedTuple):
    """Logits per tile, warps per program, tiles that are loaded ahead, and programs per launch."""

    tile: int
    warps: int
    stages: int
    programs: int


COUNTS, GRADIENT = Launch(2048, 4, 3, 1056), Launch(1024, 2, 3, 2112)


def handles(logits: Tensor) -> bool:
    """Return whether the kernels are for these logits: float32 or half precision on a CUDA device."""
    return (
        logits.device.type == "cuda"
        and logits.dtype in TYPES
        and logits.numel() > 0
        and math.prod(logits.shape[:-2]) < 2**16  # images are the second axis of the grid
        and torch.version.cuda is not None
        and AVAILABLE
    )


class _Batch(NamedTuple):
    """A batch as the programs read it: without views, because each view costs as much as a launch."""

    #: Logits of two or three axes, and labels and weights without the class axis.
    x: Tensor
    y: Tensor
    w: Tensor
    weighted: bool
    #: The numbers of images, samples per image and classes, and the strides of the logits along these.
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    #: The leading shape of the counts: the images, or nothing if all samples are counted together.
    kept: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        y = _strides(self.y)
        return self.shape[1], *self.strides, *y, *(_strides(self.w) if self.weighted else y)

    @property
    def groups(self) -> int:
        return math.prod(self.kept)


def _strides(samples: Tensor) -> tuple[int, int]:
    """Return the strides of labels or weights along images and samples; that of a single image is 0.

    Triton knows of 0 that it keeps the alignment.
    """
    return 0 if samples.dim() == 1 or samples.shape[0] == 1 else samples.stride(0), samples.stride(-1)


def _class_strides(x: Tensor, layout: Layout) -> tuple[int, int, int]:
    """Return the strides of logits, or of their gradient, along images, samples and classes."""
    strides = x.stride()
    image = 0 if len(strides) == 2 or x.shape[0] == 1 else strides[0]
    return (image, strides[-2], strides[-1]) if layout.class_axis == -1 else (image, strides[-1], strides[-2])


def _batch(logits: Tensor, target: Tensor, weight: Tensor | None, layout: Layout) -> _Batch:
    x, y, w = logits, target, target if weight is None else weight
    if logits.dim() > 3:  # only leading axes that do not merge are copied
        x, y, w = x.reshape(-1, *x.shape[-2:]), y.reshape(-1, y.shape[-1]), w.reshape(-1, w.shape[-1])
    shape = x.shape
    samples, classes = shape[-2:] if layout.class_axis == -1 else (shape[-1], shape[-2])
    kept = logits.shape[: -3 if -3 in layout.sample_axes else -2]
    images = 1 if len(shape) == 2 else shape[0]
    return _Batch(x, y, w, weight is not None, (images, samples, classes), _class_strides(x, layout), tuple(kept))


def counts(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    step: StepAt,
    layout: Layout,
    ignore_index: int | None = None,
) -> Tensor:
    """Return soft counts ``(4, ..., c)`` in float32, as ``classes.class_counts`` does."""
    return _count(logits, target, weight, step, layout, ignore_index, None)


def counts_and_kept(
    logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout, ignore_index: int | None
) -> tuple[Tensor, Tensor]:
    """Return soft counts, and 16 bytes per sample with which ``gradient`` is faster; nothing for few classes."""
    size = kept_size(target.numel(), logits.shape[layout.class_axis], step.threshold)
    kept = logits.new_empty(size, dtype=torch.float32)
    return _count(logits, target, weight, step, layout, ignore_index, kept), kept


def kept_size(samples: int, classes: int, threshold: float | None) -> int:
    """Return how many numbers ``counts_and_kept`` keeps."""
    return 4 * samples if threshold is None and SCATTERED <= classes <= ONE_BLOCK else 0


def _count(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    step: StepAt,
    layout: Layout,
    ignore_index: int | None,
    kept: Tensor | None,
) -> Tensor:
    from metricfit.core.kernels import classes_triton_source

    batch = _batch(logits, target, weight, layout)
    images, samples, classes = batch.shape
    constants, static = _settings(step, batch, ignore_index, COUNTS, kept)
    programs = _programs(batch, static["SAMPLES"], COUNTS)
    rows = images * programs
    partial = logits.new_empty(rows, 3, classes, dtype=torch.float32)
    weights = logits.new_empty(rows, dtype=torch.float32)
    tensors, numbers = (batch.x, batch.y, batch.w), (*batch.sizes, *constants)
    if classes <= ONE_BLOCK:
        kernel = classes_triton_source.counts_kernel
        launch(
            kernel,
            (programs, images, 1),
            (*tensors, partial, weights, weights if kept is None else kept),
            numbers,
            static,
            COUNTS.warps,
        )
    else:
        scores = logits.new_empty(4, images, samples, dtype=torch.float32)
        kernel = classes_triton_source.scores_kernel
        launch(kernel, (samples, images, 1), (*tensors, scores), numbers, static, COUNTS.warps)
        grid = programs, images, -(-classes // static["BLOCK"])
        kernel = classes_triton_source.sums_kernel
        launch(kernel, grid, (*tensors, scores, partial, weights), numbers, static, COUNTS.warps)
    result = logits.new_empty(4, *batch.kept, classes, dtype=torch.float32)
    block = min(static["BLOCK"], 8)
    sums = {"C": classes, "BLOCK": block, "ROWS": 256}
    grid = -(-classes // block), batch.groups, 1
    kernel = classes_triton_source.finish_kernel
    launch(kernel, grid, (partial, weights, result), (rows // batch.groups,), sums)
    return result


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    grad: Tensor,
    step: StepAt,
    layout: Layout,
    ignore_index: int | None = None,
    scale: Tensor | None = None,
    kept: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the logits from that of the counts, ``(4, ..., c)``.

    With ``scale``, a tensor of one number, the result is multiplied by it. ``kept`` is from ``counts_and_kept``.
    """
    from metricfit.core.kernels import classes_triton_source

    batch = _batch(logits, target, weight, layout)
    images, _, classes = batch.shape
    constants, static = _settings(step, batch, ignore_index, GRADIENT, kept)
    of_counts, of_counts_strides = _repeat_for_images(grad, batch.groups, images)
    result = torch.empty_like(batch.x)  # dense with the strides of x if x is dense
    kernel = (
        classes_triton_source.gradient_kernel if classes <= ONE_BLOCK else classes_triton_source.large_gradient_kernel
    )
    grid = _programs(batch, static["SAMPLES"], GRADIENT), images, 1
    numbers = *batch.sizes, *of_counts_strides, *_class_strides(result, layout), *constants
    scale_or_any, kept_or_any = of_counts if scale is None else scale, of_counts if kept is None else kept
    tensors = batch.x, batch.y, batch.w, of_counts, scale_or_any, kept_or_any, result
    launch(kernel, grid, tensors, numbers, static | {"SCALED": scale is not None}, GRADIENT.warps)
    return result if result.dim() == logits.dim() else result.reshape(logits.shape)


def _repeat_for_images(grad: Tensor, groups: int, images: int) -> tuple[Tensor, tuple[int, ...]]:
    """Return the gradient of the counts, and its strides for counts, images and classes."""
    classes = grad.shape[-1]
    if groups == 1:
        return grad.contiguous(), (classes, 0, 1)
    repeated = grad.reshape(4, groups, 1, classes).expand(4, groups, images // groups, classes)
    return repeated.reshape(4, images, classes).contiguous(), (images * classes, classes, 1)


def _programs(batch: _Batch, samples_per_tile: int, shape: Launch) -> int:
    """Return the number of programs per image, which share its tiles."""
    images, samples, _ = batch.shape
    return min(-(-samples // samples_per_tile), -(-shape.programs // images))


def _settings(
    step: StepAt, batch: _Batch, ignore_index: int | None, shape: Launch, kept: Tensor | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the numbers of a step for the Triton programs, and the settings that they are compiled for."""
    classes = batch.shape[2]
    is_dense, keeps = batch.strides[1:] == (classes, 1), kept is not None and kept.numel() > 0
    limits = ONE_BLOCK, SCATTERED
    return _make_settings(step, classes, is_dense, batch.weighted, ignore_index, shape, keeps, limits)


@lru_cache(maxsize=256)
def _make_settings(
    step: StepAt,
    classes: int,
    is_dense: bool,
    is_weighted: bool,
    ignore_index: int | None,
    shape: Launch,
    keeps: bool,
    limits: tuple[int, int],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if step.kind not in KINDS:
        raise InvalidValueError(f"the Triton kernel has no step of the kind {step.kind!r}")
    one_block, scattered = limits
    block = min(1 << (classes - 1).bit_length(), one_block)
    t, u = (0.0, 1.0) if step.threshold is None else both_ends(step.threshold, torch.float32)
    from_one = step.kind == "linear" and t > u
    constants = step.number, u if from_one else t, 0 if ignore_index is None else ignore_index
    static = {
        "C": classes,
        "BLOCK": block,
        "SAMPLES": max(1, shape.tile // block),
        "KIND": KINDS[step.kind],
        "DYNAMIC": step.threshold is None,
        "FROM_ONE": from_one,
        "WEIGHTED": is_weighted,
        "IGNORES": ignore_index is not None,
        "DENSE": is_dense,
        "SCATTERS": scattered <= classes <= one_block,
        "STAGES": shape.stages,
        "KEEPS": keeps,
    }
    return constants, static
