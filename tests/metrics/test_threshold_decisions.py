"""The value that a threshold search promises is the value that Counts.hard gives at the chosen threshold."""

import math

import numpy as np
import pytest
import torch

from metricfit import Counts, metrics
from metricfit.curves import best_threshold
from metricfit.train import Monitor, evaluate

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
KINDS = ["random", "tied", "large", "largest", "negative", "nearly zero"]


def samples(kind, dtype, seed, n=400):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    logits = {
        "random": noise,
        "tied": (3 * noise).round() / 3,
        "large": 20 + 4 * noise,
        "largest": 34 + 2 * noise,
        "negative": -80 + 8 * noise,
        "nearly zero": 1e-8 * noise,
    }[kind].to(dtype)
    target = (noise + torch.randn(n, generator=generator, dtype=torch.float64) > 0.8).long()
    return logits, target


def f1_at(logits, target, threshold):
    return metrics.f1(Counts.hard(logits, target, threshold=threshold)).item()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_threshold_chosen_on_probabilities_gives_the_promised_value(kind, dtype):
    for seed in range(20):
        logits, target = samples(kind, dtype, seed)
        best = best_threshold(logits.sigmoid(), target, "f1")
        assert f1_at(logits, target, best.threshold) == pytest.approx(best.value, abs=1e-12)
        assert f1_at(logits, target, torch.tensor(best.threshold, dtype=torch.float64)) == pytest.approx(best.value)


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_a_threshold_chosen_on_more_precise_probabilities_gives_the_promised_value(kind, dtype):
    for seed in range(20):
        logits, target = samples(kind, dtype, seed)
        # Which of the two precisions a threshold of exactly 0.5 was chosen in cannot be known; it is taken for float32.
        precisions = (logits.float(), logits.float() if kind == "nearly zero" else logits.double())
        for scores in (given.sigmoid() for given in precisions):
            for given in (scores, scores.double(), scores.numpy(), scores.tolist()):
                best = best_threshold(given, target, "f1")
                assert f1_at(logits, target, best.threshold) == pytest.approx(best.value, abs=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_threshold_of_half_precision_decides_rounded_and_unrounded_scores_alike(dtype):
    for seed in range(20):
        logits, target = samples("random", dtype, seed)
        scores = logits.sigmoid()
        threshold = best_threshold(scores, target, "f1").threshold
        chosen = scores.double() >= threshold
        assert torch.equal(scores >= threshold, chosen)
        assert f1_at(logits, chosen.long(), threshold) == 1.0
        assert scores[chosen].min() == torch.tensor(threshold, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_threshold_of_half_precision_at_the_ends(dtype):
    assert best_threshold(torch.tensor([0.0, 0.0], dtype=dtype), torch.tensor([1, 1]), "recall").threshold == 0.0
    assert best_threshold(torch.tensor([1.0, 0.5], dtype=dtype), torch.tensor([0, 0]), "accuracy").threshold == math.inf
    negative = best_threshold(torch.tensor([-2.0, -3.0], dtype=dtype), torch.tensor([1, 0]), "f1").threshold
    assert -2.0 > negative > -2.02


def test_counts_per_group_decide_likewise():
    logits, target = samples("random", torch.bfloat16, 0)
    best = best_threshold(logits.sigmoid(), target, "f1")
    counts = Counts.hard(logits, target, threshold=best.threshold, group=torch.arange(len(target)) % 3)
    whole = counts.map(lambda given: given.sum(0))
    assert metrics.f1(whole).item() == pytest.approx(best.value, abs=1e-12)


def test_evaluate_and_monitor_tell_large_logits_apart():
    logits, target = torch.tensor([[30.0], [25.0], [20.0], [18.5]]), torch.tensor([1, 1, 0, 0])
    found = evaluate(torch.nn.Identity(), (logits, target), "f1", threshold="best")
    assert list(found.values.values()) == [1.0]
    assert Monitor("f1", threshold="best").measure(logits, target).value == 1.0
    assert evaluate(torch.nn.Identity(), (logits, target), "f1", threshold=found.threshold)["f1"] == 1.0
    assert np.isclose(f1_at(logits.squeeze(1), target, found.threshold), 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_threshold_chosen_on_logits_gives_the_promised_value(kind, dtype):
    for seed in range(20):
        logits, target = samples(kind, dtype, seed)
        best = Monitor("f1", threshold="best").measure(logits, target)
        assert 0 < best.threshold < 1
        assert f1_at(logits, target, best.threshold) == pytest.approx(best.value, abs=1e-12)
        if kind != "largest":  # where neighbouring logits can have the same float64 probability
            assert best.value == pytest.approx(best_threshold(logits.double(), target, "f1").value, abs=1e-12)
