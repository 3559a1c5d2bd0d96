"""Doctests are part of the tests: names their examples use, and files that need a GPU to import."""

import pytest
import torch

from metricfit import Counts

collect_ignore = ["src/metricfit/core/_triton_source.py"]


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace):
    doctest_namespace["torch"] = torch
    doctest_namespace["Counts"] = Counts
