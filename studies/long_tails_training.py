"""Small networks for small images, and the training of several of them in one CUDA graph.

A step of a small network consists of short kernels that leave most of a GPU idle. All models of a group (seeds and
learning rates of one loss) are therefore captured in one graph, each on a branch of its own, so that their kernels run
at the same time. Convolutions are computed in bfloat16. Batch, learning rate and step number are read from tensors, so
a replay needs nothing from Python.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from studies.long_tails_data import CLASSES, Batches

WEIGHT_DECAY, WARM_UP = 0.05, 0.1
#: Steps that run directly before a graph is captured: kernels are compiled and the optimiser's state is made.
DIRECT_STEPS = 3

Loss = Callable[[Tensor, Tensor], Tensor]


class CosineLayer(nn.Module):
    """Cosines of the angles between features and one direction per class, for LDAM."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CLASSES, features) / features**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the cosines."""
        return linear(normalize(x), normalize(self.weight))


def _convolution(channels_in: int, channels_out: int, stride: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
    return [layer, nn.BatchNorm2d(channels_out)]


class Block(nn.Module):
    """Two convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        stride = 1 if channels_in == channels_out else 2
        first, second = _convolution(channels_in, channels_out, stride), _convolution(channels_out, channels_out)
        self.body = nn.Sequential(*first, nn.ReLU(), *second)
        self.shortcut: nn.Module = nn.Identity()
        if stride == 2:
            shortcut = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(body + shortcut)."""
        return (self.body(x) + self.shortcut(x)).relu()


def network(kind: str, channels: int, *, cosine: bool) -> nn.Sequential:
    """A CNN of three convolutions with 32, 64 and 128 filters, or a ResNet of 13 convolutions with 32 to 128 filters.

    The ResNet halves the image once before its three stages of two blocks, as those for larger images do.
    """
    layers: list[nn.Module] = []
    if kind == "CNN":
        for channels_in, channels_out in ((channels, 32), (32, 64), (64, 128)):
            layers += [*_convolution(channels_in, channels_out), nn.ReLU(), nn.MaxPool2d(2)]
    else:
        layers += [*_convolution(channels, 32), nn.ReLU(), nn.MaxPool2d(2)]
        for channels_in, channels_out in ((32, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)):
            layers.append(Block(channels_in, channels_out))
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(body, CosineLayer(128) if cosine else nn.Linear(128, CLASSES))


def schedule(steps: int) -> Tensor:
    """A factor of the learning rate for every step: a linear start, then half a cosine down to 0."""
    start = max(1, round(WARM_UP * steps))
    rising = [(step + 1) / start for step in range(start)]
    falling = [0.5 * (1 + math.cos(math.pi * step / (steps - start))) for step in range(steps - start)]
    return torch.tensor(rising + falling)


class Group:
    """Networks of several seeds and learning rates that are trained with one loss.

    Args:
        kind: "CNN" or "ResNet".
        rates: The learning rates.
        seeds: Number of seeds.
        batches: The data, with all batches drawn.
        cosine: Whether the last layer gives cosines.
    """

    def __init__(self, kind: str, rates: Sequence[float], seeds: int, batches: Batches, *, cosine: bool) -> None:
        self.batches, self.seeds, self.device = batches, seeds, batches.device
        self.models: list[nn.Sequential] = []
        for _ in rates:
            for seed in range(seeds):
                torch.manual_seed(seed)
                model = network(kind, batches.channels, cosine=cosine).to(self.device)
                self.models.append(model.to(memory_format=torch.channels_last))
        self.weights = [list(model.parameters()) for model in self.models]
        self.steps = len(batches.rows)
        self.factors = schedule(self.steps).to(self.device)
        self.step_number = torch.zeros(1, dtype=torch.long, device=self.device)
        on_gpu = self.device.type == "cuda"
        self.rates = [torch.tensor(rate, device=self.device) for rate in rates]
        self.peaks = list(rates)
        groups = [
            {"params": [w for one in self.weights[i * seeds : (i + 1) * seeds] for w in one], "lr": rate}
            for i, rate in enumerate(self.rates)
        ]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY, capturable=on_gpu, fused=on_gpu or None)
        self.streams = [torch.cuda.Stream() for _ in self.models] if on_gpu else []

    def step(self, losses: Sequence[Loss]) -> None:
        """Make one step of every model."""
        images, labels = self.batches.batch(self.step_number)
        factor = self.factors.index_select(0, self.step_number)[0]
        for rate, peak in zip(self.rates, self.peaks, strict=True):
            rate.copy_(factor * peak)
        for number, (model, loss) in enumerate(zip(self.models, losses, strict=True)):
            x, y = images[number % self.seeds], labels[number % self.seeds]
            if self.streams:
                self.streams[number].wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self.streams[number]):
                    self._differentiate(number, loss(self._forward(model, x), y))
            else:
                self._differentiate(number, loss(self._forward(model, x), y))
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.step()
        self.step_number += 1

    def _forward(self, model: nn.Sequential, x: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bool(self.streams), cache_enabled=False):
            features = model[0](x)
        return model[1](features.float())

    def _differentiate(self, number: int, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, self.weights[number])
        for weight, gradient in zip(self.weights[number], gradients, strict=True):
            weight.grad = gradient

    def train(self, losses: Sequence[Loss], steps: int, *, graph: bool = True) -> None:
        """Make this number of steps, one loss per model."""
        for model in self.models:
            model.train()
        if not (graph and self.streams):
            for _ in range(steps):
                self.step(losses)
            return
        direct = torch.cuda.Stream()
        direct.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(direct):
            for _ in range(DIRECT_STEPS):
                self.step(losses)
        torch.cuda.current_stream().wait_stream(direct)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        gc.disable()  # it could free an older graph, which would end the capture
        with torch.cuda.graph(captured):
            self.step(losses)
        gc.enable()
        for _ in range(steps - DIRECT_STEPS):
            captured.replay()
        torch.cuda.synchronize()
        for weight in (weight for weights in self.weights for weight in weights):
            weight.grad = None  # they lie in the memory of the graph

    @torch.no_grad()
    def logits(self, pixels: Sequence[Tensor]) -> list[Tensor]:
        """Logits of every model, on the CPU; the images of each seed as bytes."""
        results = []
        for number, model in enumerate(self.models):
            model.eval()
            images = self.batches.standardised(pixels[number % self.seeds])
            results.append(torch.cat([model(part) for part in images.split(2000)]).float().cpu())
        return results
