"""Measure what float32 does to steep steps, divisions, roots and sums; fill and draw docs/concepts/numerics.md."""

from __future__ import annotations

import torch
from page import BLUE, GREY, RED, fill, plt, save, table
from torch import Tensor

from metricfit import Counts, metrics
from metricfit.core.numerics import ratio, root
from metricfit.core.tensor_numerics import tails
from metricfit.steps import Sigmoid

K = 73


def main() -> None:
    fill("concepts/numerics.md", "saturation", saturation())
    fill("concepts/numerics.md", "tails", both_tails())
    fill("concepts/numerics.md", "zero", zero_over_zero())
    fill("concepts/numerics.md", "sums", sums())
    draw()


def saturation() -> str:
    """Where the logistic step is exactly 1."""
    rows = []
    for dtype in (torch.float32, torch.float64):
        k = torch.arange(1, 200)
        below = torch.sigmoid(k.to(dtype) * 0.5) < 1
        p = torch.linspace(0.5, 1, 500_001, dtype=dtype)
        ones = torch.sigmoid(K * (p - 0.5)) == 1
        first = f"{float(p[ones][0]):.3f}" if bool(ones.any()) else "never"
        rows.append([str(dtype).removeprefix("torch."), str(int(k[below].max())), first])
    return table(["type", "largest whole k with step(1) < 1", f"first p with step(p) = 1, k = {K}"], rows)


def naive(logits: Tensor, target: Tensor) -> Counts:
    h = torch.sigmoid(K * (torch.sigmoid(logits) - 0.5))
    y = target.to(h.dtype)
    return Counts(*(given.sum().reshape(1) for given in (y * h, (1 - y) * h, y * (1 - h), (1 - y) * (1 - h))))


def halves(logits: Tensor, target: Tensor) -> Counts:
    x = K * (torch.sigmoid(logits) - 0.5)
    h, rest, y = torch.sigmoid(x), torch.sigmoid(-x), target.to(logits.dtype)
    return Counts(*(given.sum().reshape(1) for given in (y * h, (1 - y) * h, y * rest, (1 - y) * rest)))


def ours(logits: Tensor, target: Tensor) -> Counts:
    return Counts.soft(logits, target, step=Sigmoid(K))


def both_tails() -> str:
    """The gradient at a positive with p = 0.9, four ways."""
    ways = [
        ("`h` and `1 - h`, autograd, float32", naive, torch.float32),
        ("`s(x)` and `s(-x)`, autograd, float32", halves, torch.float32),
        ("metricfit, float32", ours, torch.float32),
        ("metricfit, float64", ours, torch.float64),
    ]
    rows = []
    for name, counts, dtype in ways:
        row = [name]
        for metric in (metrics.f1, metrics.precision):
            logits = torch.logit(torch.tensor([0.9, 0.52, 0.51, 0.1], dtype=torch.float64)).to(dtype).requires_grad_()
            (1 - metric(counts(logits, torch.tensor([1, 1, 0, 0])))).backward()
            assert logits.grad is not None
            gradient = float(logits.grad[0])
            row.append(f"{gradient:.3e}" if gradient else "0")
        rows.append(row)
    return table(["how", "gradient of 1 - f1", "of 1 - precision"], rows)


def zero_over_zero() -> str:
    """Values and gradients at 0/0 and at the root of 0."""
    rows = []
    for name, function in (
        ("`x / x`", lambda x: x / x),
        ("`torch.where(x == 0, 0, x / x)`", lambda x: torch.where(x == 0, 0.0, x / x)),
        ("`metrics.ratio(x, x)`", lambda x: ratio(x, x)),
        ("`torch.sqrt(x)`", torch.sqrt),
        ("`metrics.root(x)`", root),
    ):
        x = torch.zeros((), requires_grad=True)
        value = function(x)
        value.backward()
        rows.append([name, f"{value.item():g}", f"{x.grad.item():g}"])
    return table(["at x = 0", "value", "gradient"], rows)


def sums() -> str:
    """Sums of ones in several types."""
    rows = []
    for dtype, n in ((torch.float16, 70_000), (torch.bfloat16, 70_000), (torch.float32, 20_000_001)):
        plain = float(torch.ones(n, dtype=dtype).sum())
        counted = Counts.hard(torch.ones(n, dtype=dtype), torch.ones(n, dtype=torch.bool)).tp
        soft = Counts.soft(torch.full((n,), 20.0, dtype=dtype), torch.ones(n, dtype=torch.bool)).tp
        rows.append(
            [
                str(dtype).removeprefix("torch."),
                f"{n:,}",
                f"{plain:,.0f}",
                f"{float(soft):,.0f}",
                f"{float(counted):,.0f}",
            ]
        )
    return table(["logits", "samples", "`ones.sum()`", "`Counts.soft`, tp", "`Counts.hard`, tp"], rows)


def draw() -> None:
    """The gradient of the steep step over p: naive float32 dies, both tails do not."""
    x = torch.linspace(-8, 8, 3201, dtype=torch.float64)
    exact_p, exact_q = tails(x)
    exact = Sigmoid(K).slope(exact_p, 0.5) * exact_p * exact_q
    single = x.float().requires_grad_()
    torch.sigmoid(K * (torch.sigmoid(single) - 0.5)).sum().backward()
    assert single.grad is not None
    logits = x.float().requires_grad_()
    # One count's gradient at every logit: tp of a batch that is all positive.
    Counts.soft(logits, torch.ones_like(logits), step=Sigmoid(K)).tp.sum().backward()
    assert logits.grad is not None
    figure, axes = plt.subplots(figsize=(7.6, 3.9))
    axes.plot(exact_p, exact, color=GREY, linewidth=6, alpha=0.35, label="float64")
    axes.plot(exact_p, logits.grad, color=BLUE, label="metricfit, float32")
    alive = single.grad > 0
    axes.plot(exact_p[alive], single.grad[alive], color=RED, linestyle="--", label="plain autograd, float32")
    dead = float(exact_p[~alive & (exact_p > 0.5)].min())
    axes.axvline(dead, color=RED, linewidth=1, linestyle=":")
    axes.annotate(
        f"plain autograd:\nexactly 0 from p = {dead:.3f} on",
        (dead, 1e-17),
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
    )
    axes.set(xlabel="probability p", ylabel="gradient of the step at the logit", yscale="log", ylim=(1e-20, 30))
    axes.legend(loc="upper left")
    save(figure, "numerics")


if __name__ == "__main__":
    main()
