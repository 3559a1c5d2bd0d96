"""Time a step read from a table against a step computed, on one CPU thread; fill docs/concepts/numerics.md.

The table comes from the supplement to Tsoi et al. 2022, Sec. 3: p cut to two decimals, the step worked out beforehand;
and a finer one. It is tried where it would be used, inside the library's own blocked kernel, where only the step's
value and slope differ, and alone. A round's figure is the least CPU time of 40 interleaved repeats: waiting for other
programs does not count, and throttling hits both alike. The ratio is given over seven rounds, since other programs
still share the caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from page import fill, table
from torch import Tensor

from metricfit import MetricLoss
from metricfit.core.kernels import binary_cpu as cpu_kernel
from metricfit.core.steps import ClosedFormStep
from metricfit.steps import Linear, Sigmoid

N, ROUNDS, REPEATS = 2**20, 7, 40
STEPS: list[tuple[str, ClosedFormStep]] = [("`Linear(0.1)`", Linear(0.1)), ("`Sigmoid(10)`", Sigmoid(10))]
SIZES = (101, 10_001)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logits, target = 2 * torch.randn(N), (torch.rand(N) < 0.3).float()
    in_loss = table(
        ["step", "entries", "computed, ms", "table, ms", "table / computed (range)", "error of the gradient"],
        [inside_the_loss(name, step, size, logits, target) for name, step in STEPS for size in SIZES],
    )
    alone = table(
        ["step", "computed, ms", "table, 32-bit `index_select`, ms", "table, 64-bit `table[index]`, ms"],
        [by_itself(name, step, torch.sigmoid(logits)) for name, step in STEPS],
    )
    note = f"{N:,} float32 logits, torch {torch.__version__}, CPU time of one thread."
    text = f'Forward and backward of `MetricLoss("f1")`:\n\n{in_loss}\n\nThe step\'s values alone:\n\n{alone}\n\n{note}'
    fill("concepts/numerics.md", "lookup", text)
    print(text)


def inside_the_loss(name: str, step: ClosedFormStep, size: int, logits: Tensor, target: Tensor) -> list[str]:
    """One row: the loss with the step computed, and with the step read from a table of that size."""
    loss, x = MetricLoss("f1", step=step, validate=False), logits.clone().requires_grad_()

    def computing() -> Tensor:
        x.grad = None
        loss(x, target).backward()
        assert x.grad is not None
        return x.grad

    def reading() -> Tensor:
        with steps_from_tables(step, size):
            return computing()

    rounds = [fastest(computing, reading) for _ in range(ROUNDS)]
    ratios = sorted(read / computed for computed, read in rounds)
    computed, read = (min(times) for times in zip(*rounds, strict=True))
    exact, cut = computing(), reading()
    error = float((cut - exact).norm() / exact.norm())
    spread = f"{ratios[ROUNDS // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return [name, f"{size:,}", f"{computed:.1f}", f"{read:.1f}", spread, f"{error:.1%}"]


@contextmanager
def steps_from_tables(step: ClosedFormStep, size: int) -> Iterator[None]:
    """Within it, the blocked kernel reads the step's values and slopes from tables."""
    knots = torch.linspace(0, 1, size)
    values, slopes = step(knots, 0.5), step.slope(knots, 0.5)

    def look_up(entries: Tensor, p: Tensor, out: Tensor, spare: Tensor) -> None:
        torch.index_select(entries, 0, torch.mul(p, size - 1, out=spare).to(torch.int32), out=out)

    def masses(
        x: Tensor, t: float, kind: str, number: float, p: Tensor, mass: Tensor, rest: Tensor, spare: Tensor
    ) -> None:
        look_up(values, torch.sigmoid(x, out=p), mass, spare)
        torch.sub(1, mass, out=rest)

    def slope(p: Tensor, q: Tensor, t: float, kind: str, number: float, out: Tensor, spare: Tensor) -> None:
        look_up(slopes, p, out, spare)

    with mock.patch.object(cpu_kernel, "_masses", masses), mock.patch.object(cpu_kernel, "_slope", slope):
        yield


def by_itself(name: str, step: ClosedFormStep, p: Tensor) -> list[str]:
    """One row: the step's values outside the kernel, one call on the whole array."""
    entries = step(torch.linspace(0, 1, SIZES[0]), 0.5)
    times = fastest(
        lambda: step(p, 0.5),
        lambda: torch.index_select(entries, 0, (p * (SIZES[0] - 1)).to(torch.int32)),
        lambda: entries[(p * (SIZES[0] - 1)).long()],
    )
    return [name, *(f"{given:.1f}" for given in times)]


def fastest(*works: Callable[[], Tensor]) -> list[float]:
    """The least CPU time of each, in milliseconds, the works taking turns."""
    least = [float("inf")] * len(works)
    for _ in range(REPEATS):
        for number, work in enumerate(works):
            start = time.thread_time()
            work()
            least[number] = min(least[number], 1e3 * (time.thread_time() - start))
    return least


if __name__ == "__main__":
    main()
