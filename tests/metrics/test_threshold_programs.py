"""Threshold searches by Triton programs, run on the CPU with a stand-in for Triton, against plain operations."""

import math
import sys
from pathlib import Path

import pytest
import torch

from metricfit import best_threshold, get_metric, metric
from metricfit.core.kernels import thresholds_triton
from metricfit.metrics import threshold_programs
from metricfit.metrics.curves import best_of_sweep
from metricfit.metrics.sweep import sweep

sys.path.insert(0, str(Path(__file__).parent.parent / "core"))
import triton_stand_in


@pytest.fixture
def on_gpu(monkeypatch):
    """Take scores on the CPU for scores on a GPU; the list has an entry for each search by a program."""
    triton_stand_in.install(monkeypatch, "thresholds_triton_source")
    monkeypatch.setattr(thresholds_triton, "handles", lambda scores: True)
    monkeypatch.setattr(thresholds_triton, "BLOCK", 16)
    monkeypatch.setattr(thresholds_triton, "CHUNK", 4)
    monkeypatch.setattr(threshold_programs, "SEARCHES_BEFORE", 0)
    monkeypatch.setattr(threshold_programs, "_programs", {})
    searched, search = [], thresholds_triton.search
    monkeypatch.setattr(
        thresholds_triton, "search", lambda *given, **settings: searched.append(1) or search(*given, **settings)
    )
    yield searched
    triton_stand_in.remove("thresholds_triton_source")


def samples(n, distinct, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n)
    target = torch.rand(n, generator=generator) < 0.3
    scores = torch.randn(n, generator=generator) + target
    return (scores if distinct else (4 * scores).round() / 4).to(dtype), target


def assert_best(found, scores, target, measured):
    expected = best_of_sweep(sweep(scores, target, None), get_metric(measured), [])
    assert found == (expected.threshold, pytest.approx(expected.value, abs=1e-12))


def test_every_metric_with_and_without_ties(any_metric, on_gpu):
    for n, distinct in ((1, True), (15, False), (16, True), (200, False)):
        scores, target = samples(n, distinct)
        assert_best(best_threshold(scores, target.long(), any_metric), scores, target, any_metric)
    assert len(on_gpu) == (0 if any_metric.needs_matrix else 4)  # others are searched with plain operations


@pytest.mark.parametrize("name", ["2*tp/(2*tp + fp + fn)", "minimize(fp + 0.1*fn)", "tp/fp"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float64], ids=str)
def test_written_formulas_and_types_of_labels(name, dtype, on_gpu):
    scores, target = samples(100, True, torch.float64)
    assert_best(best_threshold(scores, target.to(dtype), name), scores, target, name)
    assert on_gpu


def test_one_class_only(on_gpu):
    for label in (0, 1):
        scores, target = torch.arange(20.0), torch.full((20,), label)
        assert_best(best_threshold(scores, target, "f1"), scores, target, "f1")
    assert len(on_gpu) == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(bad, on_gpu):
    with pytest.raises(ValueError, match="1 of 3 scores are"):
        best_threshold(torch.tensor([0.0, bad, 1.0]), torch.tensor([0, 1, 1]), "f1")
    assert on_gpu


@pytest.mark.parametrize("bad", [2, -1, 0.5, math.nan])
def test_labels_other_than_0_and_1_are_refused(bad, on_gpu):
    with pytest.raises(ValueError, match="target must hold 0 and 1 only"):
        best_threshold(torch.arange(3.0), torch.tensor([0, 1, bad]), "f1")
    assert on_gpu


def test_a_program_is_made_after_a_few_searches_and_not_for_functions_of_users(on_gpu, monkeypatch):
    monkeypatch.setattr(threshold_programs, "SEARCHES_BEFORE", 2)
    monkeypatch.setattr(threshold_programs, "_searches", threshold_programs.Counter())
    scores, target = samples(30, True)
    found = [best_threshold(scores, target, "jaccard") for _ in range(4)]
    assert len(on_gpu) == 2
    assert len({value.threshold for value in found}) == 1

    @metric
    def own(c):
        return c.tp / (c.tp + c.fp + c.fn)

    assert {best_threshold(scores, target, own).threshold for _ in range(4)} == {found[0].threshold}
    assert len(on_gpu) == 2
