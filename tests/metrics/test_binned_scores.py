"""BinnedScores: curves of a stream, beside scikit-learn's of all scores at once."""

import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from metricfit.core.validation import DivergedError
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
    assert scores.sums.shape == (2, 1, 32)
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
    assert scores.sums[:, 0].tolist() == [[0, 0, 0, 2], [1, 0, 0, 1]]


@pytest.mark.parametrize("settings", [{"bins": 1}, {"bins": 2.5}, {"limit": 0}, {"limit": float("inf")}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(InvalidValueError, match=next(iter(settings))):
        BinnedScores(**settings)


def test_nan_is_named():
    with pytest.raises(DivergedError, match="NaN"):
        BinnedScores().update(torch.tensor([float("nan"), 1.0]), torch.tensor([1, 0]))


def test_shares_of_classes_are_refused():
    with pytest.raises(InvalidValueError, match="shares"):
        BinnedScores(task="multiclass").update(torch.zeros(2, 3), torch.full((2, 3), 1 / 3))
