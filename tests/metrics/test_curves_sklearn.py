"""Curves and areas equal scikit-learn's, with ties, with weights, for every kind of array."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from metricfit import curves

few_scores = st.integers(-4, 4).map(lambda k: k / 4)  # few values, so that ties are common
any_score = st.floats(-1e6, 1e6, allow_subnormal=False)
weights = st.integers(1, 40).map(lambda k: k / 8)


@st.composite
def problems(draw):
    rows = draw(
        st.lists(st.tuples(st.one_of(few_scores, any_score), st.booleans(), weights), min_size=2, max_size=30).filter(
            lambda rows: len({label for _, label, _ in rows}) == 2
        )
    )
    scores, target, weight = (np.array(column) for column in zip(*rows, strict=True))
    return scores, target.astype(int), draw(st.sampled_from([None, weight]))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problems())
def test_areas_equal_scikit_learn(problem):
    scores, target, weight = problem
    expected = roc_auc_score(target, scores, sample_weight=weight)
    assert curves.auroc(scores, target, weight) == pytest.approx(expected, abs=1e-12)
    expected = average_precision_score(target, scores, sample_weight=weight)
    assert curves.average_precision(scores, target, weight) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problems())
def test_roc_equals_scikit_learn(problem):
    scores, target, weight = problem
    ours = curves.roc(scores, target, weight)
    for mine, theirs in zip(
        ours, roc_curve(target, scores, sample_weight=weight, drop_intermediate=False), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problems())
def test_precision_recall_equals_scikit_learn(problem):
    scores, target, weight = problem
    ours = curves.precision_recall(scores, target, weight)
    for mine, theirs in zip(ours, precision_recall_curve(target, scores, sample_weight=weight), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def with_zero_weights(seed):
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 3, 20) * 1.0
    weight[:2] = 1.0
    return rng.integers(0, 8, 20) / 8, np.arange(20) % 2, weight


@pytest.mark.parametrize("seed", range(10))
def test_samples_of_weight_0_do_not_change_the_areas(seed):
    scores, target, weight = with_zero_weights(seed)
    expected = roc_auc_score(target, scores, sample_weight=weight)
    assert curves.auroc(scores, target, weight) == pytest.approx(expected, abs=1e-12)
    expected = average_precision_score(target, scores, sample_weight=weight)
    assert curves.average_precision(scores, target, weight) == pytest.approx(expected, abs=1e-12)


def test_samples_of_weight_0_are_no_points_of_the_curves_as_in_scikit_learn():
    for seed in range(10):
        scores, target, weight = with_zero_weights(seed)
        theirs = roc_curve(target, scores, sample_weight=weight, drop_intermediate=False)
        for mine, point in zip(curves.roc(scores, target, weight), theirs, strict=True):
            np.testing.assert_allclose(mine, point, atol=1e-12)
        theirs = precision_recall_curve(target, scores, sample_weight=weight)
        for mine, point in zip(curves.precision_recall(scores, target, weight), theirs, strict=True):
            np.testing.assert_allclose(mine, point, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_auroc_is_the_share_of_ordered_pairs(seed):
    rng = np.random.default_rng(seed)
    scores, target, weight = rng.integers(0, 6, 25), rng.permutation(np.arange(25) % 3 == 0), rng.random(25) + 0.1
    won = pairs = 0.0
    for i in np.flatnonzero(target):
        for j in np.flatnonzero(~target):
            pairs += weight[i] * weight[j]
            won += weight[i] * weight[j] * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    assert curves.auroc(scores, target, weight) == pytest.approx(won / pairs, abs=1e-12)


class Series:
    """What pandas and polars offer: no tensor, no list, but ``__array__``; here read-only, as theirs may be."""

    def __init__(self, values):
        self.values = np.array(values)
        self.values.flags.writeable = False

    def __array__(self, dtype=None, copy=None):
        return self.values


def read_only(values):
    array = np.array(values)
    array.flags.writeable = False
    return array


SCORES, TARGET = [0.5, 0.25, 0.75, 0.5, 0.125, 1.0], [1, 0, 1, 0, 0, 0]
NUMPY_KINDS = {
    "list": list,
    "tuple": tuple,
    "column": lambda v: np.array(v).reshape(-1, 1),
    "float16": lambda v: np.array(v, dtype=np.float16),
    "float32": lambda v: np.array(v, dtype=np.float32),
    "float64": np.array,
    "reversed": lambda v: np.array(v[::-1])[::-1],
    "strided": lambda v: np.repeat(np.array(v), 2)[::2],
    "read_only": read_only,
    "series": Series,
}


@pytest.mark.parametrize("kind", NUMPY_KINDS)
def test_every_kind_of_array_gives_the_same_curve_in_numpy(kind):
    make = NUMPY_KINDS[kind]
    expected = roc_curve(TARGET, SCORES, drop_intermediate=False)
    for mine, theirs in zip(curves.roc(make(SCORES), make(TARGET)), expected, strict=True):
        assert isinstance(mine, np.ndarray)
        assert mine.dtype == np.float64
        np.testing.assert_allclose(mine, theirs, rtol=1e-14)
    assert curves.auroc(make(SCORES), make(TARGET)) == pytest.approx(roc_auc_score(TARGET, SCORES), rel=1e-14)
    assert curves.precision_recall(make(SCORES), make(TARGET)).precision.dtype == np.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("column", [False, True])
def test_torch_in_gives_torch_out_in_float64(dtype, column):
    scores, target = torch.tensor(SCORES, dtype=dtype, requires_grad=True), torch.tensor(TARGET)
    if column:
        scores, target = scores.unsqueeze(1), target.unsqueeze(1)
    curve = curves.roc(scores, target)
    for mine, theirs in zip(curve, roc_curve(TARGET, SCORES, drop_intermediate=False), strict=True):
        assert isinstance(mine, torch.Tensor)
        assert mine.dtype == torch.float64
        assert not mine.requires_grad
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-14)
    assert isinstance(curves.precision_recall(scores, target).recall, torch.Tensor)
    assert isinstance(curves.auroc(scores, target), float)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint16, np.uint32])
def test_integer_scores_and_targets(dtype):
    scores, target = np.array([3, 1, 4, 1, 5, 9], dtype=dtype), np.array(TARGET, dtype=dtype)
    assert curves.auroc(scores, target) == pytest.approx(roc_auc_score(TARGET, scores), rel=1e-14)
    np.testing.assert_array_equal(curves.roc(scores, target).thresholds, [np.inf, 9, 5, 4, 3, 1])


def test_boolean_targets():
    assert curves.auroc(np.array(SCORES), np.array(TARGET, dtype=bool)) == pytest.approx(
        roc_auc_score(TARGET, SCORES), rel=1e-14
    )
    assert curves.auroc(torch.tensor(SCORES), torch.tensor(TARGET).bool()) == pytest.approx(
        roc_auc_score(TARGET, SCORES), rel=1e-14
    )


def test_kinds_may_be_mixed_and_the_answer_is_of_the_scores_kind():
    curve = curves.roc(torch.tensor(SCORES), np.array(TARGET), weight=[1.0] * 6)
    assert isinstance(curve.fpr, torch.Tensor)
    assert isinstance(curves.roc(SCORES, torch.tensor(TARGET)).fpr, np.ndarray)


def test_the_users_arrays_are_not_changed():
    scores, target, weight = np.array(SCORES), np.array(TARGET), np.ones(6)
    curves.roc(scores, target, weight)
    curves.best_threshold(scores, target, "f1", weight=weight)
    assert scores.tolist() == SCORES
    assert target.tolist() == TARGET
    assert weight.tolist() == [1.0] * 6


def test_float32_scores_are_counted_in_float64():
    n = 2**17
    scores, target = torch.linspace(0, 1, n), (torch.arange(n) % 5 == 0).int()
    weight = torch.full((n,), 0.1)
    expected = roc_auc_score(target.numpy(), scores.numpy(), sample_weight=weight.numpy().astype(float))
    assert curves.auroc(scores, target, weight) == pytest.approx(expected, abs=1e-10)


def test_average_precision_of_positives_alone_is_1():
    assert curves.average_precision([0.1, 0.2], [1, 1]) == 1.0
