"""BinnedScores: curves of a stream, beside scikit-learn's of all scores at once."""

import math

import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from metricfit import Counts, best_threshold, metrics
from metricfit.core.validation import DivergedError
from metricfit.curves import InfeasibleError
from metricfit.errors import InvalidStateError, InvalidValueError
from metricfit.metrics import BinnedScores

RANDOM = torch.Generator().manual_seed(0)
TARGET = (torch.rand(3000, generator=RANDOM) < 0.1).long()
LOGITS = torch.randn(3000, generator=RANDOM) + 2 * TARGET - 3
WEIGHT = torch.rand(3000, generator=RANDOM)


def stream(scores, logits, target, weight=None, rows=700):
    for start in range(0, len(logits), rows):
        part = slice(start, start + rows)
        scores.update(logits[part], target[part], None if weight is None else weight[part])
    return scores


def test_areas_are_those_of_all_scores_within_the_ties_of_a_bin():
    scores = stream(BinnedScores(), LOGITS, TARGET, WEIGHT)
    assert scores.auroc().item() == pytest.approx(roc_auc_score(TARGET, LOGITS, sample_weight=WEIGHT), abs=1e-4)
    expected = average_precision_score(TARGET, LOGITS, sample_weight=WEIGHT)
    assert scores.average_precision().item() == pytest.approx(expected, abs=5e-3)


def test_scores_that_the_bins_tell_apart_have_exact_areas():
    scores = BinnedScores(bins=64, limit=8.0)
    logits = (LOGITS / 0.25).floor().clamp(-32, 31) * 0.25 + 0.125  # the middles of the bins
    stream(scores, logits, TARGET)
    assert scores.auroc().item() == pytest.approx(roc_auc_score(TARGET, logits), abs=1e-12)
    assert scores.average_precision().item() == pytest.approx(average_precision_score(TARGET, logits), abs=1e-12)


def test_the_best_threshold_has_the_value_that_it_promises_and_no_edge_is_better():
    scores = stream(BinnedScores(), LOGITS, TARGET)
    best = scores.best_threshold("f1")[0]
    assert f1_score(TARGET, LOGITS.double().sigmoid() >= best.threshold) == pytest.approx(best.value, abs=1e-12)
    edges = scores.thresholds[1:-1:16]
    assert max(f1_score(TARGET, LOGITS.double().sigmoid() >= edge) for edge in edges) <= best.value + 1e-12


def test_requirements_hold_at_the_threshold():
    scores = stream(BinnedScores(), LOGITS, TARGET)
    threshold = scores.best_threshold("precision", subject_to="recall >= 0.9")[0].threshold
    found = (LOGITS.double().sigmoid() >= threshold)[TARGET == 1].double().mean()
    assert found >= 0.9


def test_classes_are_measured_against_the_rest_and_labels_one_by_one():
    logits = torch.randn(900, 3, generator=RANDOM)
    classes = (logits + 2 * torch.randn(900, 3, generator=RANDOM)).argmax(1)
    of_classes = stream(BinnedScores(), logits, classes)
    expected = roc_auc_score(classes, logits.softmax(1), multi_class="ovr", average=None)
    assert of_classes.auroc().tolist() == pytest.approx(expected.tolist(), abs=2e-3)
    labels = torch.nn.functional.one_hot(classes)
    of_labels = stream(BinnedScores(task="multilabel"), logits, labels)
    expected = roc_auc_score(labels, logits, average=None)
    assert of_labels.auroc().tolist() == pytest.approx(expected.tolist(), abs=2e-3)


def test_pixels_of_images_count_and_ignored_ones_do_not():
    logits, target = torch.randn(2, 3, 8, 8, generator=RANDOM), torch.randint(0, 3, (2, 8, 8), generator=RANDOM)
    target[0, 0] = 255
    scores = BinnedScores(ignore_index=255)
    scores.update(logits, target)
    kept = (target != 255).flatten()
    flat = BinnedScores()
    flat.update(logits.movedim(1, -1).reshape(-1, 3)[kept], target.flatten()[kept])
    torch.testing.assert_close(scores.counts.tensors, flat.counts.tensors)


def test_memory_does_not_grow_and_the_state_is_saved_and_reset():
    scores = stream(BinnedScores(bins=32), LOGITS, TARGET)
    assert scores.total.shape == (2, 1, 32)
    resumed = BinnedScores(bins=32)
    resumed.load_state_dict(scores.state_dict())
    resumed.sync()  # one process: nothing changes
    assert resumed.auroc() == scores.auroc()
    scores.reset()
    with pytest.raises(InvalidStateError, match="no batch"):
        scores.auroc()


def test_extreme_scores_are_in_the_outermost_bins():
    scores = BinnedScores(bins=4, limit=1.0)
    scores.update(torch.tensor([100.0, -100.0, float("inf"), 0.9]), torch.tensor([1, 0, 1, 0]))
    assert scores.total[:, 0].tolist() == [[0, 0, 0, 2], [1, 0, 0, 1]]


@pytest.mark.parametrize("settings", [{"bins": 1}, {"bins": 2.5}, {"limit": 0}, {"limit": float("inf")}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(InvalidValueError, match=next(iter(settings))):
        BinnedScores(**settings)


def test_nan_is_named():
    with pytest.raises(DivergedError, match="NaN"):
        BinnedScores().update(torch.tensor([float("nan"), 1.0]), torch.tensor([1, 0]))


def test_a_label_between_0_and_1_is_that_share_of_a_positive():
    shares = torch.rand(300, generator=RANDOM)
    logits = torch.randn(300, generator=RANDOM) + shares
    weight = WEIGHT[:300]
    soft = stream(BinnedScores(), logits, shares, weight)
    both = torch.cat([shares * weight, (1 - shares) * weight])
    labels = torch.cat([torch.ones(300), torch.zeros(300)])
    expected = roc_auc_score(labels, logits.repeat(2), sample_weight=both)
    assert soft.auroc().item() == pytest.approx(expected, abs=1e-3)
    edge = soft.thresholds[512].item()
    counts = Counts.hard(logits, shares, threshold=edge, weight=weight)
    for cell, of_bins in zip(counts.tensors, soft.counts.tensors, strict=True):
        torch.testing.assert_close(of_bins[512], cell)
    smoothed = stream(BinnedScores(), logits, shares)
    assert smoothed.total.sum().item() == pytest.approx(300)


def test_labels_as_floats_count_as_integers_do():
    for weight in (None, WEIGHT):
        floats, integers = (stream(BinnedScores(), LOGITS, y, weight) for y in (TARGET.float(), TARGET))
        torch.testing.assert_close(floats.total, integers.total)


def test_shares_of_classes_are_weighed_too():
    logits, shares = torch.randn(50, 3, generator=RANDOM), torch.rand(50, 3, generator=RANDOM).softmax(1)
    scores = BinnedScores(task="multiclass")
    scores.update(logits, shares)
    torch.testing.assert_close(scores.counts.positives[0], shares.double().sum(0))
    split = BinnedScores(task="multiclass")  # one row per class, weighted by its share
    split.update(logits.repeat_interleave(3, 0), torch.arange(3).repeat(50), shares.flatten())
    torch.testing.assert_close(scores.total, split.total, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy"])
def test_the_best_threshold_is_exact_to_within_a_bin(metric):
    scores = stream(BinnedScores(bins=256, limit=8.0), LOGITS, TARGET)
    width = 16 / 256
    exact = best_threshold(LOGITS.double().sigmoid(), TARGET, metric)
    best = scores.best_threshold(metric)[0]
    edge = math.ceil((math.log(exact.threshold / (1 - exact.threshold)) + 8) / width - 1) * width - 8  # just below it
    decided = torch.stack([LOGITS.double() >= edge, LOGITS.double() >= edge + width])
    neighbours = [getattr(metrics, metric)(Counts.from_labels(row.long(), TARGET)).item() for row in decided]
    assert max(neighbours) - 1e-12 <= best.value <= exact.value + 1e-12
    assert abs(math.log(best.threshold / (1 - best.threshold)) - edge) <= 2 * width


def test_scores_in_bins_of_their_own_have_the_exact_best_threshold():
    logits = (LOGITS / 0.25).floor().clamp(-32, 31) * 0.25 + 0.125
    best = stream(BinnedScores(bins=64, limit=8.0), logits, TARGET).best_threshold("f1")[0]
    exact = best_threshold(logits.double().sigmoid(), TARGET, "f1")
    assert best.value == pytest.approx(exact.value, abs=1e-12)
    log_odds = torch.logit(torch.tensor([best.threshold, exact.threshold], dtype=torch.float64))
    assert 0 <= log_odds[1] - log_odds[0] <= 0.25


def test_a_label_without_positives_has_the_average_precision_of_the_curves():
    scores = BinnedScores()
    scores.update(torch.randn(9, 2), torch.tensor([[1, 0]] * 4 + [[0, 0]] * 5))
    assert scores.average_precision()[1] == 0
    assert scores.auroc().isnan().tolist() == [False, True]


def test_a_state_of_other_bins_is_refused():
    scores, again = stream(BinnedScores(), LOGITS, TARGET), BinnedScores()
    again.load_state_dict(scores.state_dict())
    assert again.best_threshold("f1") == scores.best_threshold("f1")
    for other in (BinnedScores(bins=64), BinnedScores(limit=8)):
        with pytest.raises(ValueError, match=r"the state is of BinnedScores\(bins=1024, limit=16\)"):
            other.load_state_dict(scores.state_dict())


def test_exclusive_classes_are_not_added_to_labels():
    scores, logits = BinnedScores(), torch.randn(9, 3)
    scores.update(logits, (logits > 0.3).long())
    with pytest.raises(ValueError, match="the earlier ones of several labels"):
        scores.update(logits, logits.argmax(1))


def test_another_number_of_outputs_is_named_as_that():
    scores, logits = BinnedScores(), torch.randn(9, 3)
    scores.update(logits[:, 0], (logits[:, 0] > 0.3).long())
    for target in (logits.argmax(1), (logits > 0.3).long()):
        with pytest.raises(ValueError, match=r"\(2, 1, 1024\).*\(2, 3, 1024\); call reset\(\) before another stream"):
            scores.update(logits, target)


def test_the_label_that_cannot_meet_a_requirement_is_named():
    scores = BinnedScores()
    target = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 0]])
    scores.update(torch.tensor([[2.0, 3.0], [-1.0, 1.0], [1.0, 0.5], [-2.0, -1.0]]), target)
    with pytest.raises(InfeasibleError, match=r"^label 1: .*precision") as caught:
        scores.best_threshold("f1", subject_to="precision >= 0.9")
    assert "precision >= 0.9" in caught.value.requirements
