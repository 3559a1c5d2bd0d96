"""How many threads the tests and the processes that they start use."""

import os
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent


def test_the_number_of_threads_is_settled_before_torch_is_loaded():
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])


def test_without_a_setting_there_is_one_thread_per_process():
    """In a process of its own, because the caller of this one may have chosen a number."""
    script = "import conftest, os, torch; print(torch.get_num_threads(), os.environ['OMP_NUM_THREADS'])"
    unset = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=unset, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["1", "1"]
