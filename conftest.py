"""Doctests are part of the tests: names their examples use, and files that cannot be imported here."""

import pytest
import torch

from metricfit import Counts

collect_ignore = [
    "src/metricfit/core/_triton_source.py",  # needs a GPU
    "src/metricfit/data/images.py",  # moved: importing it is an error
    "src/metricfit/experiments/reproduce.py",  # moved: importing it is an error
]


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace):
    doctest_namespace["torch"] = torch
    doctest_namespace["Counts"] = Counts
