"""Lightning and Hugging Face Trainer on two processes: what their pages say of DDP."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("on_two_ranks.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "package"), [("lightning", "lightning"), ("hf", "transformers"), ("torchmetrics", "torchmetrics")]
)
def test_two_processes_train_as_one(framework, package):
    pytest.importorskip(package)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*command, str(SCRIPT), framework],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("the same") == 2
