"""Draw raw and calibrated probabilities of logits with the threshold: docs/img/decision-module.svg."""

from __future__ import annotations

import torch
from page import BLUE, GREY, ORANGE, RED, plt, save
from torch import nn

from metricfit import MetricLoss, decide

BINS = 12


def main() -> None:
    torch.manual_seed(0)
    y = (torch.rand(12000) < 0.1).long()
    x = torch.randn(12000, 4) + 0.8 * y[:, None]
    train, held_out = slice(0, 2000), slice(2000, 12000)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    loss, optimizer = MetricLoss("fbeta(beta=2)"), torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        loss(model(x[train]), y[train]).backward()
        optimizer.step()
    with torch.no_grad():
        logits = model(x[held_out]).squeeze(1)
    decision = decide.best_decision(logits, y[held_out], "fbeta(beta=2)")
    classifier = decide.DecisionModule(nn.Identity(), decision)
    figure, axes = plt.subplots(figsize=(7.6, 3.8))
    order = logits.argsort()
    means = [part.mean() for part in logits[order].tensor_split(BINS)]
    shares = [part.float().mean() for part in y[held_out][order].tensor_split(BINS)]
    axes.plot(means, shares, "o", color=GREY, label="share of positive rows")
    line = torch.linspace(float(logits.quantile(0.001)), float(logits.quantile(0.999)), 300)
    axes.plot(line, torch.sigmoid(line), color=ORANGE, label="sigmoid(logit)")
    axes.plot(line, classifier(line).probabilities, color=BLUE, label="probability by the module")
    axes.axvline(decision.threshold, color=RED, linewidth=1.2)
    axes.annotate("label 1 from here", (decision.threshold, 0.3), xytext=(6, 0), textcoords="offset points", color=RED)
    axes.set(xlabel="logit of the model", ylabel="probability", ylim=(0, 1.02))
    axes.legend(loc="upper left")
    save(figure, "decision-module")


if __name__ == "__main__":
    main()
