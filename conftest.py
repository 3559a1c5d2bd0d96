"""Threads for all tests; and for doctests, the names they use and the files that cannot be imported here."""

import os

# One thread per process unless the caller says otherwise: `pytest -n auto` starts a process per core, and several
# threads in each of them would wait for one another. Libraries read these settings when loaded, so they are set
# before torch is imported. Processes that tests start inherit them. PASSIVE: waiting threads sleep instead of spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no compiling processes beside the tests

import numpy as np
import pytest
import torch

from metricfit import Counts

collect_ignore_glob = ["src/metricfit/core/kernels/triton/[!_]*.py"]  # need Triton


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace):
    doctest_namespace["np"] = np
    doctest_namespace["torch"] = torch
    doctest_namespace["Counts"] = Counts
