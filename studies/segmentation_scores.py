"""Decisions of the segmentation study, from logits to masks and class maps, and their scores."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from metricfit.decide import per_image
from metricfit.decide.calibration import Calibration, fit_calibration
from metricfit.decide.expected_values import exact_values
from metricfit.metrics import get_metric
from studies.segmentation_data import VOID

METRICS = ("dice", "jaccard")
#: "image": the mean over images of the mean over the classes in the image. "set": the mean over the classes.
SCOPES = ("image", "set")
TARGETS = tuple(f"{metric}, {scope}" for scope in SCOPES for metric in METRICS)
#: Pixels on which the temperature and the biases are fitted.
CALIBRATION_PIXELS = 50_000
#: Half-widths of the grids of offsets and thresholds, in calibrated logits, and their number of steps on each side.
GRIDS = ((3.0, 20), (0.6, 20), (0.15, 10))
BINS = 15
#: Offsets are searched on every third pixel.
THINNING = 3


@dataclass(frozen=True)
class Scored:
    """Logits with their labels; a mask has two classes here, with logits 0 and z.

    Attributes:
        logits: ``(n, c, pixels)``.
        labels: ``(n, pixels)``; 11 is void.
    """

    logits: Tensor
    labels: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Scored:
        """Return logits ``(n, c, h, w)`` and labels ``(n, h, w)`` in this form."""
        logits = logits.flatten(2)
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], 1)
        return cls(logits, labels.flatten(1).long())

    @property
    def first_class(self) -> int:
        """The first class that counts: of a mask only the positive one."""
        return int(self.logits.shape[1] == 2)

    def bias_of(self, calibration: Calibration) -> Tensor:
        """The bias of each class; a calibration of a mask is of the difference of its two logits."""
        bias = torch.from_numpy(calibration.bias).to(self.logits)
        return torch.cat([torch.zeros_like(bias), bias]) if self.first_class else bias

    def calibrated(self, calibration: Calibration) -> Scored:
        """Return calibrated logits."""
        return Scored(self.logits / calibration.temperature + self.bias_of(calibration)[:, None], self.labels)

    def thinned(self, step: int) -> Scored:
        """Return a part of the pixels of each image, at equal distances."""
        return Scored(self.logits[..., ::step].contiguous(), self.labels[..., ::step].contiguous())


def calibrate(validation: Scored) -> Calibration:
    """Fit a temperature and one bias per class on random validation pixels."""
    places = (validation.labels != VOID).flatten().nonzero().squeeze(1)
    random = torch.Generator().manual_seed(0)
    chosen = places[torch.randperm(len(places), generator=random)[:CALIBRATION_PIXELS].to(places.device)]
    logits = validation.logits.transpose(1, 2).flatten(0, 1)[chosen].cpu()
    logits = logits[:, 1:] - logits[:, :1] if validation.first_class else logits
    return fit_calibration(logits, validation.labels.flatten()[chosen].cpu(), None)


def histogram(places: Tensor, bins: int) -> Tensor:
    """Count places; unlike bincount, this does not wait for the GPU, which other programs may be using."""
    ones = torch.ones((), device=places.device).expand(places.numel())
    return torch.zeros(bins, device=places.device).index_add_(0, places.flatten(), ones).double()


def counts_of(decided: Tensor, scored: Scored) -> tuple[Tensor, Tensor, Tensor]:
    """Return true positives, decided pixels and true pixels of each image and class, ``(n, classes)``, without void."""
    classes = scored.logits.shape[1]
    counted = scored.labels != VOID
    image = torch.arange(len(decided), device=decided.device)[:, None] * classes

    def number(labels: Tensor, where: Tensor) -> Tensor:
        places = torch.where(where, image + labels, len(decided) * classes)
        return histogram(places, len(decided) * classes + 1)[:-1].view(-1, classes)[:, scored.first_class :]

    return (
        number(decided, counted & (decided == scored.labels)),
        number(decided, counted),
        number(scored.labels, counted),
    )


def value(counts: tuple[Tensor, Tensor, Tensor], target: str) -> Tensor:
    """Return a value of TARGETS from counts ``(..., n, classes)``, where the last two axes are averaged."""
    metric, scope = target.split(", ")
    tp, decided, positives = counts if scope == "image" else (part.sum(-2, keepdim=True) for part in counts)
    return per_image_values((tp, decided, positives), metric).mean(-1)


def per_image_values(counts: tuple[Tensor, Tensor, Tensor], metric: str) -> Tensor:
    """Return the mean of the metric over the classes that are in an image, ``(..., n)``."""
    tp, decided, positives = counts
    both = decided + positives
    values = 2 * tp / both.clamp(min=1) if metric == "dice" else tp / (both - tp).clamp(min=1)
    present = (positives > 0).double()
    return (values * present).sum(-1) / present.sum(-1).clamp(min=1)


def tuned_offsets(validation: Scored, target: str, starts: list[Tensor]) -> Tensor:
    """Find offsets of the logits with the best validation value, one class after the other; a mask has one offset.

    While the offset of class k moves, a pixel is of class k or of the best other class. One histogram of the gap
    between the two gives the counts at all offsets of a grid.
    """
    results = []
    positives = counts_of(validation.labels.clamp(max=len(starts[0]) - 1), validation)[2]
    for start in starts:
        offsets, reached = start.clone(), torch.zeros((), device=start.device)
        for half_width, steps in GRIDS:
            grid = torch.linspace(-half_width, half_width, 2 * steps + 1, device=start.device)
            for k in range(validation.first_class, len(offsets)):
                values = value(_counts_along(validation, offsets, k, grid, positives), target)
                values[steps] += 1e-9  # a change must improve something
                reached = values.max()
                offsets[k] += grid.index_select(0, values.argmax().view(1)).squeeze()
        results.append((float(reached), offsets))
    return max(results, key=lambda result: result[0])[1]


def _counts_along(
    scored: Scored, offsets: Tensor, k: int, grid: Tensor, positives: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the counts ``(grid, n, classes)`` as the offset of class k moves over a grid."""
    images, classes, _ = scored.logits.shape
    z = scored.logits + offsets[:, None]
    own = z[:, k].clone()
    z[:, k] = -torch.inf
    highest, other = z.max(1)
    # The pixel is of class k from this place of the grid on.
    place = torch.searchsorted(grid, (highest - own).contiguous(), right=True)
    kinds = torch.where(scored.labels == other, 1, torch.where(scored.labels == k, 2, 0))
    kinds = torch.where(scored.labels == VOID, 3, kinds)
    image = torch.arange(images, device=z.device)[:, None]
    index = ((image * classes + other) * 4 + kinds) * (len(grid) + 1) + place
    sizes = images, classes, 4, len(grid) + 1
    before = (
        histogram(index, images * classes * 4 * (len(grid) + 1)).view(sizes).cumsum(-1)
    )  # of these pixels the place is passed: they are of class k
    passed, left = before[..., :-1], before[..., -1:] - before[..., :-1]
    tp, decided = left[:, :, 1], left[:, :, :3].sum(2)
    tp[:, k], decided[:, k] = passed[:, :, 2].sum(1), passed[:, :, :3].sum((1, 2))
    first = scored.first_class
    tp, decided = (part.permute(2, 0, 1)[..., first:] for part in (tp, decided))
    return tp, decided, positives.expand_as(tp)


def decide_per_image(scored: Scored, metric: str) -> Tensor:
    """Return decisions ``(n, pixels)`` by ``per_image``."""
    probabilities = scored.logits.softmax(1)
    if scored.first_class:
        return per_image(probabilities[:, 1:].contiguous(), metric, task="multilabel")[:, 0].long()
    return per_image(probabilities, metric, task="multiclass")


def decide_by_rankseg(scored: Scored, metric: str) -> Tensor:
    """Return decisions ``(n, pixels)`` by rankseg 0.0.8, with its default solver and without leaving classes out."""
    from rankseg import RankSEG

    mode = "multilabel" if scored.first_class else "multiclass"
    rank = RankSEG(metric="dice" if metric == "dice" else "IoU", output_mode=mode, solver="RMA", pruning_prob=0.0)
    parts = []
    for logits in scored.logits.split(64):
        probabilities = logits.softmax(1)[:, scored.first_class :].unsqueeze(-1).contiguous()
        parts.append(rank.predict(probabilities).reshape(len(logits), -1).long())
    return torch.cat(parts)


def exact_gap(scored: Scored, metric: str, side: int, most: int = 30) -> float:
    """Return what per_image loses to its exact method in expectation, the mean over crops of masks."""
    p, crop = scored.logits.softmax(1)[:, 1].unflatten(1, (side, -1)), min(32, side // 4)
    corners = torch.randint(min(p.shape[1:]) - crop, (most, 2), generator=torch.Generator().manual_seed(0)).tolist()
    crops = torch.stack([p[n % len(p), y : y + crop, x : x + crop] for n, (y, x) in enumerate(corners)])
    ranked = crops.flatten(1).double().sort(1, descending=True).values
    exact = exact_values(ranked, get_metric(metric))
    marked = per_image(crops, metric).flatten(1).sum(1, keepdim=True)
    return float((exact.max(1, keepdim=True).values - exact.gather(1, marked)).mean())


def decisions(validation: Scored, test: Scored) -> dict[str, dict[str, Any]]:
    """Make all decisions on the test images; everything that is chosen is chosen on the validation images.

    Returns:
        For each decision its scores, which are the values of TARGETS, and the values of each image.
    """
    calibration = calibrate(validation)
    calibrated = test.calibrated(calibration)
    thinned = validation.calibrated(calibration).thinned(THINNING)
    bias = calibrated.bias_of(calibration)
    starts = [torch.zeros_like(bias), -bias]  # the default decision of calibrated logits, and of those of the network
    made = {"default": dict.fromkeys(TARGETS, test.logits.argmax(1))}
    made["tuned"] = {
        target: (calibrated.logits + tuned_offsets(thinned, target, starts)[:, None]).argmax(1) for target in TARGETS
    }
    for name, scores in (("per image", test), ("per image, calibrated", calibrated)):
        masks = {metric: decide_per_image(scores, metric) for metric in METRICS}
        made[name] = {target: masks[target.split(", ")[0]] for target in TARGETS}
    if find_spec("rankseg"):
        try:
            masks = {metric: decide_by_rankseg(calibrated, metric) for metric in METRICS}
            made["rankseg, calibrated"] = {target: masks[target.split(", ")[0]] for target in TARGETS}
        except RuntimeError as error:
            print(f"rankseg: {error}", flush=True)
    found: dict[str, dict[str, Any]] = {}
    known: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    for name, by_target in made.items():
        found[name] = {}
        for target, decided in by_target.items():
            if id(decided) not in known:
                known[id(decided)] = counts_of(decided, test)
            counts = known[id(decided)]
            found[name][target] = float(value(counts, target))
            if target.endswith("image"):
                found[name][f"{target}s"] = per_image_values(counts, target.split(", ")[0]).tolist()
    found["calibration"] = {"raw": calibration_of(test), "calibrated": calibration_of(calibrated)}
    return found


def calibration_of(scored: Scored) -> dict[str, float]:
    """Return the log-loss and the expected calibration error of the most probable class, over all pixels."""
    logits, labels = scored.logits.transpose(1, 2).flatten(0, 1), scored.labels.flatten()
    counted = labels != VOID
    log_p, labels = logits[counted].log_softmax(1), labels[counted]
    confidence, decided = log_p.exp().max(1)
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    gap = (confidence - (decided == labels).float()).double()
    error = torch.bincount(bins, gap, minlength=BINS).abs().sum() / len(gap)
    log_loss = -log_p.gather(1, labels[:, None]).double().mean()
    return {"log-loss": float(log_loss), "ECE": float(error)}


def validation_value(validation: Scored) -> float:
    """Return the value by which learning rates are chosen: the mean of the default and of the tuned decision.

    Both are the mean Dice of the validation images.
    """
    calibration = calibrate(validation)
    thinned, bias = validation.calibrated(calibration).thinned(THINNING), validation.bias_of(calibration)
    tuned = tuned_offsets(thinned, "dice, image", [torch.zeros_like(bias), -bias])
    values = [
        float(value(counts_of((thinned.logits + offsets[:, None]).argmax(1), thinned), "dice, image"))
        for offsets in (-bias, tuned)
    ]
    return sum(values) / 2
