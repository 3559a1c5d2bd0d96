"""The Metric object: equality, hash, names that read back, copies, classes."""

import copy
import pickle

import numpy as np
import pytest
import torch

from metricfit import Counts, get_metric, metric, metrics
from metricfit.losses import MetricLoss
from oracles import INSTANCES

ALL = [get_metric(INSTANCES.get(name, name)) for name in metrics.names()]
SOME = [
    *ALL,
    metrics.fbeta(beta=0.5),
    metrics.fbeta(beta=[1, 2.5, 1e-7]),
    metrics.tversky(1 / 3, 2 / 3),
    metrics.cost(fp=1e9, fn=0),
    metrics.recall[2],
    metrics.fbeta(beta=2)[1],
]
THREE = Counts(*(torch.tensor(v, dtype=torch.float64) for v in ([3, 1, 4], [1, 5, 9], [2, 6, 5], [8, 2, 1])))


def test_equal_by_name_and_parameters():
    assert metrics.fbeta(beta=2) == metrics.fbeta(beta=2.0) == metrics.fbeta(2)
    assert hash(metrics.fbeta(beta=2)) == hash(metrics.fbeta(beta=2.0))
    assert metrics.fbeta(beta=[1, 2]) == metrics.fbeta(beta=(1.0, 2.0))
    assert metrics.fbeta(beta=2) != metrics.fbeta(beta=3)
    assert metrics.fbeta(beta=1) != metrics.f1
    assert metrics.recall[1] == get_metric("recall[1]") != metrics.recall
    assert metrics.f1 != "f1"


def test_in_sets_and_dicts():
    assert len({metrics.fbeta(beta=2), metrics.fbeta(beta=2.0), metrics.fbeta(beta=3)}) == 2
    assert {metrics.fbeta(beta=2): "here"}[get_metric("fbeta(beta=2)")] == "here"
    assert len(set(ALL)) == len(ALL)
    assert metrics.f1 in [metrics.recall, metrics.f1]


@pytest.mark.parametrize("given", SOME, ids=repr)
def test_its_name_reads_back_as_itself(given):
    assert get_metric(given.name) == given
    assert repr(given) == given.name
    assert get_metric(given.name).parameters.keys() == given.parameters.keys()
    assert get_metric(given) is given


@pytest.mark.parametrize("given", SOME, ids=repr)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_pickles_are_equal_and_work(given, again):
    other = again(given)
    assert other == given
    assert hash(other) == hash(given)
    assert (other.minimize, other.bounds, other.needs, other.whole_matrix) == (
        *(given.minimize, given.bounds, given.needs),
        given.whole_matrix,
    )
    counts = Counts(tp=3, fp=1, fn=2, tn=4) if given.needs_matrix else THREE
    torch.testing.assert_close(other(counts), given(counts))


def test_a_parameter_beyond_64_bits_reads_back_and_works():
    given = metrics.fbeta(beta=1e20)
    torch.testing.assert_close(get_metric(given.name)(THREE), given(THREE))
    assert get_metric(given.name) == given


@metric
def a_module_level_metric_for_pickling(c):
    return c.tp / c.n


def test_a_users_metric_survives_deepcopy():
    other = copy.deepcopy(a_module_level_metric_for_pickling)
    assert other == a_module_level_metric_for_pickling
    assert copy.deepcopy(MetricLoss(a_module_level_metric_for_pickling)).metric == other


def test_a_users_metric_defined_in_a_module_can_be_pickled():
    """Spawned workers and torch.save(model) need it, as for any function defined in a module."""
    assert pickle.loads(pickle.dumps(a_module_level_metric_for_pickling)) == a_module_level_metric_for_pickling


@pytest.mark.parametrize("number", [np.float32(2), np.float64(2), np.int64(2)])
def test_numpy_numbers_are_numbers(number):
    assert metrics.fbeta(beta=number) == metrics.fbeta(beta=2)


def test_an_index_gives_the_class_alone():
    for given in (metrics.recall, metrics.fbeta(beta=2), metrics.fpr):
        for k in range(3):
            torch.testing.assert_close(given[k](THREE), given(THREE)[k : k + 1])


def test_an_index_beyond_the_classes_is_refused_when_called():
    with pytest.raises(ValueError, match=r"recall\[3\]: the counts have 3 classes, 0 to 2"):
        metrics.recall[3](THREE)


@pytest.mark.parametrize("index", [-1, 1.0, "", True, None, slice(2)])
def test_only_class_numbers_index(index):
    with pytest.raises(TypeError, match=r"recall\[k\] takes a class number from 0 on"):
        metrics.recall[index]


def test_an_index_of_an_index_or_of_a_whole_matrix_metric_is_refused():
    with pytest.raises(TypeError, match=r"recall\[1\] is already the metric of one class"):
        metrics.recall[1][0]
    with pytest.raises(TypeError, match="mcc is one number for the whole confusion matrix"):
        metrics.mcc[0]


def test_a_metric_is_not_iterable_for_ever():
    with pytest.raises((TypeError, ValueError)):
        list(metrics.accuracy)


def test_beta_per_class_is_beta_of_each_class():
    values = metrics.fbeta(beta=[1, 2, 0.5])(THREE)
    for k, beta in enumerate((1, 2, 0.5)):
        torch.testing.assert_close(values[k], metrics.fbeta(beta=beta)(THREE)[k])


def test_beta_per_class_keeps_the_counts_type():
    assert metrics.fbeta(beta=[1, 2, 0.5])(THREE.map(torch.Tensor.float)).dtype == torch.float32


def test_the_wrong_number_of_betas_is_refused():
    with pytest.raises(ValueError, match=r"fbeta\(beta=\[1, 2\]\) has 2 values of beta, the counts have 3 classes"):
        metrics.fbeta(beta=[1, 2])(THREE)


@pytest.mark.parametrize("given", [3, None, "f1", torch.ones(4)])
def test_called_on_anything_but_counts_it_says_so(given):
    with pytest.raises(TypeError, match=f"f1 is called on Counts, got {type(given).__name__}"):
        metrics.f1(given)


def test_bounds_and_direction():
    assert metrics.mcc.bounds == metrics.kappa.bounds == (-1.0, 1.0)
    assert metrics.f1.bounds == (0.0, 1.0)
    assert metrics.cost(fp=1, fn=10).bounds == (0.0, 10)
    assert metrics.cost(fp=[1, 30], fn=10).bounds == (0.0, 30)
    assert [m.base_name for m in ALL if m.minimize] == ["fpr", "fnr", "selection_rate", "cost", "cost_matrix"]
