"""Thresholds per label and rankings of several labels and classes on a CUDA device, against those on the CPU."""

import pytest
import torch
from torch import nn

from metricfit import Counts, MetricLoss
from metricfit.curves import auroc, average_precision, best_thresholds
from metricfit.decide import DecisionModule
from metricfit.metrics import Accumulator, PerLabel
from metricfit.train import Hardware, Monitor, evaluate, fit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

THRESHOLDS = [0.2, 0.5, 0.93]


def labels(n=2000):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 3, generator=generator)
    return logits, (logits + torch.randn(n, 3, generator=generator) > 0.5).long()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch's compiler
@pytest.mark.parametrize("of", [PerLabel(THRESHOLDS), PerLabel(torch.tensor(THRESHOLDS))], ids=["numbers", "tensor"])
def test_counts_and_losses_at_thresholds_per_label(of):
    logits, target = labels()
    x = logits.cuda().requires_grad_()
    for count in (Counts.soft, Counts.hard):
        on_gpu, expected = count(x, target.cuda(), threshold=of), count(logits, target, threshold=of)
        assert on_gpu.tp.is_cuda
        torch.testing.assert_close(on_gpu.tp.cpu(), expected.tp)
    loss = MetricLoss("f1", threshold=of).cuda()
    assert loss.threshold.is_cuda
    value = loss(x, target.cuda())
    value.backward()
    y = logits.clone().requires_grad_()
    MetricLoss("f1", threshold=of)(y, target).backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad)
    compiled = torch.compile(loss)(x, target.cuda())
    torch.testing.assert_close(compiled, value)
    moved = MetricLoss("f1", threshold=PerLabel(torch.tensor(THRESHOLDS, device="cuda")))
    torch.testing.assert_close(moved(x, target.cuda()), value)


def test_a_loss_at_thresholds_per_label_is_captured():
    logits, target = (each.cuda() for each in labels())
    loss, x = MetricLoss("f1", threshold=PerLabel(THRESHOLDS)).cuda(), logits.clone().requires_grad_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            (expected,) = torch.autograd.grad(loss(x, target), x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (gradient,) = torch.autograd.grad(loss(x, target), x)
    graph.replay()
    torch.testing.assert_close(gradient, expected)


def test_streams_monitors_and_modules():
    logits, target = labels()
    quality = Accumulator("f1", threshold=PerLabel(THRESHOLDS)).cuda()
    quality.update(logits.cuda(), target.cuda())
    monitor = Monitor("f1", threshold=THRESHOLDS)
    assert quality.compute().item() == pytest.approx(monitor.measure(logits, target).value)
    for each in (monitor, Monitor("f1", threshold="best"), Monitor("auroc"), Monitor("average_precision")):
        on_gpu, expected = each.measure(logits.cuda(), target.cuda()), each.measure(logits, target)
        assert on_gpu.value == pytest.approx(expected.value, abs=1e-6)
    decided = DecisionModule(nn.Identity(), PerLabel(THRESHOLDS)).cuda()(logits.cuda()).labels
    assert (
        decided.sum(0).tolist()
        == Counts.hard(logits.cuda(), target.cuda(), threshold=PerLabel(THRESHOLDS)).predicted.tolist()
    )


@pytest.mark.parametrize("average", ["macro", "weighted", "micro", None])
def test_rankings_are_those_of_the_cpu(average):
    logits, target = labels()
    rounded = (logits * 8).round() / 8
    for function in (auroc, average_precision):
        expected = function(rounded, target, average=average)
        on_gpu = torch.as_tensor(function(rounded.cuda(), target.cuda(), average=average)).cpu()
        assert on_gpu.tolist() == pytest.approx(torch.as_tensor(expected).tolist(), abs=1e-9)
    numbers, scores = target.sum(1).clamp(max=2), rounded.double().softmax(1)
    for versus in ("rest", "one"):
        if versus == "rest" or average in ("macro", "weighted"):
            expected = auroc(scores, numbers, average=average, versus=versus)
            on_gpu = torch.as_tensor(auroc(scores.cuda(), numbers.cuda(), average=average, versus=versus)).cpu()
            assert on_gpu.tolist() == pytest.approx(torch.as_tensor(expected).tolist(), abs=1e-9)


def test_fit_with_thresholds_per_label():
    x, y = labels()
    found = best_thresholds(x.sigmoid().cuda(), y.cuda(), "f1")
    loss = MetricLoss("f1", threshold=PerLabel(found.thresholds.clamp(0.01, 0.99)))
    torch.manual_seed(0)
    settings = {"validation": (x, y), "epochs": 3, "monitor": ["best f1", "auroc"]}
    settings |= {"hardware": Hardware(accelerator="gpu", devices=1), "progress": False}
    result = fit(nn.Linear(3, 3), (x, y.float()), loss, **settings)
    assert len(result.threshold) == 3
    assert evaluate(result, (x, y))["f1"] == pytest.approx(result.best, abs=1e-3)
