"""A small U-Net, the losses of the segmentation study, and training of several networks side by side on one GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from metricfit.losses import LovaszLoss, MetricLoss, Mix
from metricfit.steps import Linear
from studies.segmentation_data import VOID, Crops, Images, Split, normalised

Loss = Callable[[Tensor, Tensor], Tensor]

#: Shares of false positives and false negatives in the Tversky loss (Salehi et al. 2017).
TVERSKY = (0.3, 0.7)
WEIGHT_DECAY, WARM_UP = 1e-2, 0.05
#: The sides of an image are padded to multiples of this, because a U-Net of four levels halves them five times.
SIDES = 32


def convolutions(inputs: int, outputs: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for channels in (inputs, outputs):
        parts += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """The U-Net of Ronneberger et al. 2015, with padding, batch normalisation and fewer channels.

    It works on squares of 2 x 2 pixels, whose channels are put side by side, and its last layer gives the logits of all
    four. This is four times as fast as working on pixels.

    Args:
        inputs: Channels of an image.
        outputs: Number of logits per pixel.
        width: Channels of the first level; they double with every level.
        levels: Number of times that the resolution is halved.
    """

    def __init__(self, inputs: int, outputs: int, width: int, levels: int = 4) -> None:
        super().__init__()
        channels = [width * 2**level for level in range(levels + 1)]
        self.down = nn.ModuleList(
            convolutions(before, after) for before, after in zip([4 * inputs, *channels], channels, strict=False)
        )
        pairs = list(pairwise(channels))[::-1]
        self.wider = nn.ModuleList(nn.ConvTranspose2d(low, high, 2, stride=2) for high, low in pairs)
        self.up = nn.ModuleList(convolutions(2 * high, high) for high, _ in pairs)
        self.head = nn.Conv2d(width, 4 * outputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits ``(n, outputs, h, w)`` of images, whose sides are multiples of SIDES."""
        images, kept = functional.pixel_unshuffle(images, 2), []
        for level, block in enumerate(self.down):
            images = block(images if level == 0 else functional.max_pool2d(images, 2))
            kept.append(images)
        kept.pop()
        for wider, block in zip(self.wider, self.up, strict=True):
            images = block(torch.cat([kept.pop(), wider(images)], 1))
        return functional.pixel_shuffle(self.head(images), 2)


class Overlap(nn.Module):
    """One minus the soft Tversky index of the batch, the mean over the classes that occur: the usual Dice loss.

    Written without metricfit, as the rival of its losses.

    Args:
        false_positives: Their share; 0.5 is Dice.
        false_negatives: Their share; 0.5 is Dice.
    """

    def __init__(self, false_positives: float = 0.5, false_negatives: float = 0.5) -> None:
        super().__init__()
        self.shares = false_positives, false_negatives

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of logits ``(n, c, ...)`` with class numbers, or of logits of a mask ``(n,)``."""
        if logits.dim() == 1:
            p, y = logits.sigmoid()[None], target.float()[None]
        else:
            target = target.unsqueeze(1)
            p = logits.softmax(1) * (target != VOID)
            y = (target == torch.arange(logits.shape[1], device=target.device).view(-1, 1, 1)).to(p.dtype)
            p, y = (part.transpose(0, 1).flatten(1) for part in (p, y))
        tp, fp, fn = (p * y).sum(1), (p * (1 - y)).sum(1), ((1 - p) * y).sum(1)
        index = tp / (tp + self.shares[0] * fp + self.shares[1] * fn + 1e-7)
        present = (y.sum(1) > 0).to(p.dtype)
        return 1 - (index * present).sum() / present.sum().clamp(min=1)


class Switch(nn.Module):
    """One loss for the first half of the steps, another for the second half.

    Args:
        first: The first loss.
        second: The second loss.
        at: The number of the step, a tensor ``(1,)`` that the training counts up.
        steps: Number of steps.
    """

    def __init__(self, first: nn.Module, second: nn.Module, at: Tensor, steps: int) -> None:
        super().__init__()
        self.first, self.second, self.at, self.steps = first, second, at, steps

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Compute both losses, because a CUDA graph has no branches, and return that of this step."""
        early = (2 * self.at < self.steps).squeeze(0)
        return torch.where(early, self.first(logits, target), self.second(logits, target))


LOSSES = (
    "cross-entropy",
    "Dice",
    "cross-entropy + Dice",
    "Tversky",
    "Lovasz",
    "metric F1",
    "metric Jaccard",
    "mix",
    "cross-entropy, then metric F1",
)


def make_loss(name: str, classes: int, at: Tensor, steps: int) -> nn.Module:
    """Return a loss of LOSSES; a mask's logits are passed to it as one vector."""
    ignored = {} if classes == 1 else {"ignore_index": VOID}
    metric = ignored | {"step": Linear(0.1 if classes == 1 else 0.2)}  # Dice is the step Identity
    cross_entropy = nn.BCEWithLogitsLoss() if classes == 1 else nn.CrossEntropyLoss(ignore_index=VOID)
    if name == "cross-entropy, then metric F1":
        return Switch(cross_entropy, MetricLoss("f1", **metric), at, steps)
    return {
        "cross-entropy": cross_entropy,
        "Dice": Overlap(),
        "cross-entropy + Dice": Mix((cross_entropy, 1.0), (Overlap(), 1.0)),
        "Tversky": Overlap(*TVERSKY),
        "Lovasz": LovaszLoss(**ignored),
        "metric F1": MetricLoss("f1", **metric),
        "metric Jaccard": MetricLoss("jaccard", **metric),
        "mix": Mix((cross_entropy, 1.0), (MetricLoss("f1", **metric), 0.5)),
    }[name]


class Training:
    """One network with its loss, optimiser, batches and, on a GPU, its stream and graph.

    Args:
        split: The problem.
        loss: A name of LOSSES.
        rate: The highest learning rate.
        seed: The seed of the weights and of the batches.
        width: Channels of the U-Net.
        steps: Number of steps.
        batch: Images per step.
    """

    def __init__(self, split: Split, loss: str, rate: float, seed: int, *, width: int, steps: int, batch: int) -> None:
        self.name, self.rate, self.seed, self.split, self.steps = loss, rate, seed, split, steps
        device = split.train.pixels.device
        torch.manual_seed(seed)
        self.model = (
            UNet(split.train.pixels.shape[-1], split.classes, width).to(device).to(memory_format=torch.channels_last)
        )
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.loss = make_loss(loss, split.classes, self.at, steps)
        self.crops = Crops(split, batch, steps, seed)
        at = torch.linspace(0, 1, steps + 1, device=device)[:-1]
        self.rates = rate * torch.minimum((at + 1 / steps) / WARM_UP, (1 + torch.cos(math.pi * at)) / 2)
        self.last_loss = torch.zeros((), device=device)
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=torch.tensor(rate, device=device) if on_gpu else rate,
            weight_decay=WEIGHT_DECAY,
            capturable=on_gpu,
            fused=on_gpu,
        )
        self.stream = torch.cuda.Stream(device) if on_gpu else None
        self.graph: torch.cuda.CUDAGraph | None = None

    def step(self) -> None:
        """Make one training step."""
        images, target = self.crops.at(self.at)
        device = images.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda", cache_enabled=False):
            logits = self.model(images.contiguous(memory_format=torch.channels_last))
        logits = logits.float()
        if self.split.classes == 1:
            logits, target = logits.flatten(), target.flatten().float()
        loss = self.loss(logits, target)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        rate = self.rates.index_select(0, self.at).squeeze(0)
        group = self.optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(rate)
        else:
            group["lr"] = float(rate)
        self.optimizer.step()
        self.last_loss.copy_(loss.detach())
        self.at += 1

    def capture(self) -> None:
        """Record a step in a CUDA graph; the steps of the recording are undone."""
        before = {key: value.clone() for key, value in self.model.state_dict().items()}
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self.stream):
                for _ in range(3):
                    self.step()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=self.stream):
                self.step()
            self.graph = graph
        finally:
            torch.cuda.synchronize()
            self.model.load_state_dict(before)
            for state in self.optimizer.state.values():
                for part in state.values():
                    part.zero_()
            self.at.zero_()
            torch.cuda.synchronize()

    @torch.no_grad()
    def logits(self, images: Images, batch: int = 32) -> Tensor:
        """Compute the logits of whole images, float32 ``(n, classes, h, w)``; sides are padded."""
        self.model.eval()
        height, width = images.labels.shape[1:]
        padding = (0, -width % SIDES, 0, -height % SIDES)
        parts = []
        for start in range(0, len(images), batch):
            pixels = functional.pad(normalised(images.pixels[start : start + batch]), padding, mode="reflect")
            device = pixels.device.type
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                found = self.model(pixels.contiguous(memory_format=torch.channels_last))
            parts.append(found[:, :, :height, :width].float())
        self.model.train()
        return torch.cat(parts)


def train_side_by_side(trainings: Sequence[Training], log: Callable[[str], None] = print) -> None:
    """Train several networks; on a GPU each has a stream of its own, so that their small kernels overlap."""
    for training in trainings:
        if training.stream is not None:
            try:
                training.capture()
            except Exception as error:  # a loss that cannot be captured is trained step by step
                log(f"no graph for {training.name}: {type(error).__name__}: {str(error)[:300]}")
                torch.cuda.synchronize()
    for step in range(max(training.steps for training in trainings)):
        for training in trainings:
            if step >= training.steps:
                continue
            if training.graph is not None:
                with torch.cuda.stream(training.stream):
                    training.graph.replay()
            else:
                training.step()
        if step % 32 == 31 and trainings[0].stream is not None:
            torch.cuda.synchronize()
    if trainings[0].stream is not None:
        torch.cuda.synchronize()
    for training in trainings:
        training.graph = None
