"""The errors of this library share one base class, and keep the built-in classes that they had."""

import importlib
import pkgutil
import warnings

import pytest

import metricfit
from metricfit.curves import InfeasibleError
from metricfit.errors import InvalidTypeError, InvalidValueError, MetricfitError, ModelFileError, quote, shorten
from metricfit.runs import CellError
from metricfit.train import NotFiniteError

SKIPPED = (
    "metricfit.data.images",  # moved: importing it is an error
    "metricfit.estimators",  # moved: importing it is an error
    "metricfit.experiments",  # moved: importing it is an error
)


def exceptions_of_the_package():
    for module in pkgutil.walk_packages(metricfit.__path__, "metricfit."):
        if module.name in SKIPPED:
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:  # a module that was moved, and says so
            continue
        for thing in vars(loaded).values():
            if isinstance(thing, type) and issubclass(thing, Exception) and thing.__module__.startswith("metricfit"):
                yield thing


def test_every_error_of_the_package_derives_from_the_base_class():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        errors = {thing for thing in exceptions_of_the_package() if not issubclass(thing, Warning)}
    assert len(errors) > 5
    assert {error.__name__ for error in errors if not issubclass(error, metricfit.MetricfitError)} == set()


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InfeasibleError, ValueError),
        (InvalidValueError, ValueError),
        (InvalidTypeError, TypeError),
        (ModelFileError, ValueError),
        (NotFiniteError, ArithmeticError),
        (CellError, RuntimeError),
    ],
)
def test_code_that_catches_the_built_in_class_keeps_working(error, builtin):
    assert issubclass(error, builtin)
    assert issubclass(error, MetricfitError)


@pytest.mark.parametrize("value", ["f1", 3, None, [1, 2], 0.5])
def test_a_short_value_is_quoted_whole(value):
    assert quote(value) == repr(value)


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no")


def test_a_long_value_is_shortened():
    for value in ("x" * 2**20, 10**5000, -(10**5000), list(range(10**5)), b"x" * 2**20, Unprintable()):
        assert len(quote(value)) < 150


def test_a_long_explanation_is_shortened():
    assert shorten("short") == "short"
    assert len(shorten("x" * 2**20)) < 400
