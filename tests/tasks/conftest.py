"""Fixtures for several classes: every metric, both tasks, and twins in plain float64 autograd."""

from types import SimpleNamespace

import pytest
import task_twins as twins
import torch

from metricfit import metrics, steps


@pytest.fixture(params=twins.EVERY_METRIC, ids=lambda metric: metric.name)
def every_metric(request):
    return request.param


@pytest.fixture(params=twins.PER_CLASS, ids=lambda metric: metric.name)
def per_class_metric(request):
    return request.param


@pytest.fixture(params=twins.TASKS)
def task(request):
    return request.param


@pytest.fixture
def twin(naive):
    def decisions(logits, step, t=None):
        """Soft decisions ``(n, c)``, differentiable; for StraightThrough those of its inner step."""
        powers = torch.exp(logits - logits.max(1, keepdim=True).values.detach())
        p = powers / powers.sum(1, keepdim=True)
        threshold = p.sort(1).values[:, -2:].mean(1, keepdim=True) if t is None else t
        h = naive.step(step, p, threshold)
        s = h.sum(1, keepdim=True)
        return torch.where(s == 0, p, h / torch.where(s == 0, 1.0, s))

    def shares_of(given, target):
        if target.is_floating_point():
            return target
        return torch.nn.functional.one_hot(target, given.shape[1]).to(given.dtype)

    def counts(task, logits, target, weight=None, step=None, t=None):
        """tp, fp, fn, tn stacked ``(4, c)`` of logits ``(n, c)``."""
        w = torch.ones(len(logits), 1, dtype=logits.dtype) if weight is None else weight
        w = w.unsqueeze(1) if w.dim() == 1 else w
        if task == "multilabel":
            return naive.counts(logits.T, target.T.to(logits.dtype), w.expand_as(logits).T, *defaults(task, step, t))
        step, t = defaults(task, step, t)
        inner = step.step if isinstance(step, steps.StraightThrough) else step
        h, y = decisions(logits, inner, t), shares_of(logits, target)
        if inner is not step:
            hard = torch.nn.functional.one_hot(logits.argmax(1), logits.shape[1])
            h = hard + (h - h.detach())
        masses = y * h, (1 - y) * h, y * (1 - h), (1 - y) * (1 - h)
        return torch.stack([(w * mass).sum(0) for mass in masses])

    def defaults(task, step, t):
        if task == "multilabel":
            return (step or steps.Linear(0.1)), (0.5 if t is None else t)
        return (step or steps.Linear(0.2)), t

    def values(metric, stacked):
        """A value per class."""
        return [naive.metric(twins.metric_of_class(metric, k), *stacked[:, k]) for k in range(stacked.shape[1])]

    def value(metric, stacked, average="macro", training=True):
        if metric.whole_matrix:
            return twins.whole_matrix_value(metric.base_name, *(row.unbind() for row in stacked))
        if average == "micro":
            return naive.metric(metric, *stacked.sum(1))
        per_class, positives = values(metric, stacked), (stacked[0] + stacked[2]).detach()
        if average == "weighted":
            return sum(v * s for v, s in zip(per_class, positives, strict=True)) / positives.sum()
        if training and "positives" in metric.needs:
            per_class = [v for v, there in zip(per_class, positives > 0, strict=True) if there]
        return sum(per_class) / len(per_class) if per_class else 0.0 * stacked.sum()

    def loss(metric, task, logits, target, weight=None, step=None, t=None, average="macro"):
        metric = metrics.get_metric(metric)
        found = value(metric, counts(task, logits, target, weight, step, t), average)
        return found if metric.minimize else 1 - found

    def gradient(metric, task, logits, target, *rest, **settings):
        x = logits.detach().double().requires_grad_()
        return torch.autograd.grad(loss(metric, task, x, target, *rest, **settings), x)[0]

    return SimpleNamespace(decisions=decisions, counts=counts, values=values, value=value, loss=loss, gradient=gradient)
