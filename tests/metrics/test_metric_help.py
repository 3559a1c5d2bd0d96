"""What an interactive user sees: documentation, signatures and summaries of the metrics."""

import doctest
import inspect
import pydoc

import pytest
import torch

from metricfit import Counts, metric, metrics
from metricfit.metrics import Metric
from metricfit.metrics.registry import find


@pytest.mark.parametrize("name", metrics.names())
def test_the_example_of_every_metric_runs(name):
    documentation = getattr(metrics, name).__doc__
    test = doctest.DocTestParser().get_doctest(documentation, {"torch": torch}, name, None, 0)
    assert test.examples
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


@pytest.mark.parametrize("name", metrics.names())
def test_the_help_of_every_metric_is_its_own(name):
    text = pydoc.plain(pydoc.render_doc(getattr(metrics, name)))
    assert "Args:" in text
    assert "Returns:" in text
    assert f"metrics.{name}(" in text
    assert find(name).summary in " ".join(text.split())
    assert "class Metric" not in text


def test_help_of_f1_is_about_f1():
    assert metrics.f1.__doc__.startswith("2 tp / (2 tp + fn + fp), the F1 score")
    assert metrics.fbeta(beta=2).__doc__ == metrics.fbeta.__doc__
    assert metrics.recall[1].__doc__ == metrics.recall.__doc__


def test_signatures():
    assert list(inspect.signature(metrics.f1).parameters) == ["counts"]
    fbeta = inspect.signature(metrics.fbeta)
    assert list(fbeta.parameters) == ["beta"]
    assert fbeta.return_annotation is Metric
    assert list(inspect.signature(metrics.cost).parameters) == ["fp", "fn"]


def test_a_users_metric_keeps_its_docstring():
    def documented(c: Counts) -> torch.Tensor:
        """tp per sample.

        More about it.
        """
        return c.tp / c.n

    user_defined = metric(documented)
    assert user_defined.__doc__ == documented.__doc__
    assert user_defined.summary == "tp per sample."
    assert metric(lambda c: c.tp).__doc__ == Metric.__doc__
