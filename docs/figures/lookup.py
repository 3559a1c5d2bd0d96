"""Time a step read from a table against a step computed, on one CPU thread; fill docs/concepts/numerics.md.

The table is that of the supplement to Tsoi et al. 2022, Sec. 3: p cut to two decimals, the step worked out beforehand.
It is tried where it would be used, inside the library's own blocked kernel: only the step's value and slope differ,
and where the time goes besides them is the same. A round's figure is the least CPU time of 40
interleaved repeats: waiting for other programs does not count, and throttling hits both alike. The ratio is given for
each of seven rounds, since other programs still share the caches.
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
from metricfit.core import cpu_kernel
from metricfit.core.steps import ClosedFormStep
from metricfit.steps import Linear, Sigmoid

N, ROUNDS, REPEATS, ENTRIES = 2**20, 7, 40, 101


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logits, target = 2 * torch.randn(N), (torch.rand(N) < 0.3).float()
    rows = []
    for name, step in (("`Linear(0.1)`", Linear(0.1)), ("`Sigmoid(10)`", Sigmoid(10))):
        loss, x = MetricLoss("f1", step=step, validate=False), logits.clone().requires_grad_()
        knots = torch.linspace(0, 1, ENTRIES)
        values, slopes = step(knots, 0.5).contiguous(), step.slope(knots, 0.5).contiguous()

        def work(loss: MetricLoss = loss, x: Tensor = x) -> Tensor:
            x.grad = None
            loss(x, target).backward()
            assert x.grad is not None
            return x.grad

        def tabled(work: Callable[[], Tensor] = work, values: Tensor = values, slopes: Tensor = slopes) -> Tensor:
            with reading(values, slopes):
                return work()

        rounds = [fastest(work, tabled) for _ in range(ROUNDS)]
        ratios = sorted(looked_up / computed for computed, looked_up in rounds)
        computed, looked_up = (min(times) for times in zip(*rounds, strict=True))
        exact, cut = work(), tabled()
        error = float((cut - exact).norm() / exact.norm())
        alone = step_alone(step, torch.sigmoid(logits), values)
        rows.append(
            [
                name,
                f"{computed:.1f}",
                f"{looked_up:.1f}",
                f"{ratios[ROUNDS // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                f"{error:.1%}",
                *alone,
            ]
        )
    header = [
        "step",
        "computed, ms",
        "table, ms",
        "ratio, median of 7 rounds (range)",
        "error of the gradient",
        "step alone: computed",
        "table",
    ]
    text = table(header, rows)
    note = (
        f'{N:,} float32 logits, forward and backward of `MetricLoss("f1")`, torch {torch.__version__}, '
        "CPU time of one thread."
    )
    fill("concepts/numerics.md", "lookup", f"{text}\n\n{note}")
    print(text)


@contextmanager
def reading(values: Tensor, slopes: Tensor) -> Iterator[None]:
    """Within it, the blocked kernel reads its steps from these tables."""

    def read(entries: Tensor) -> Callable[..., None]:
        def look_up(p: Tensor, t: float, kind: str, number: float, out: Tensor, spare: Tensor) -> None:
            at = torch.mul(p, ENTRIES - 1, out=spare).to(torch.int32)
            torch.index_select(entries, 0, at, out=out)

        return look_up

    with mock.patch.object(cpu_kernel, "_value", read(values)), mock.patch.object(cpu_kernel, "_slope", read(slopes)):
        yield


def step_alone(step: ClosedFormStep, p: Tensor, values: Tensor) -> list[str]:
    """The same, outside the kernel: one call on the whole array, value only."""
    times = fastest(
        lambda: step(p, 0.5),
        lambda: torch.index_select(values, 0, (p * (ENTRIES - 1)).to(torch.int32)),
    )
    return [f"{given:.1f}" for given in times]


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
