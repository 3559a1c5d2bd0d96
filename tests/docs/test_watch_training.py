"""The callbacks of docs/watch-training.md; the page's own test logs to TensorBoard and MLflow."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit.train import Monitor, fit
from metricfit_papers.populations import fit_population

PAGE = Path(__file__).resolve().parents[2] / "docs" / "watch-training.md"
X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
DATA = X, (X[:, 0] > 0.3).long()
MONITORS = ["f1", Monitor("f1", threshold="best", subject_to="recall >= 0.5")]


class FakeRun:
    """What wandb.init returns, as far as the page uses it."""

    def __init__(self, **settings):
        self.settings, self.logged, self.finished = settings, [], 0
        self.config = {}

    def log(self, numbers, step):
        self.logged.append((step, numbers))

    def finish(self):
        self.finished += 1


@pytest.fixture
def page(monkeypatch):
    """The definitions of the page, and the runs that its callback for Weights & Biases starts."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    wanted = [block for block in blocks if "class WandB" in block or "def list_numbers" in block]
    assert len(wanted) == 2
    runs = []
    monkeypatch.setitem(
        sys.modules, "wandb", SimpleNamespace(init=lambda **settings: runs.append(FakeRun(**settings)) or runs[-1])
    )
    namespace = {}
    exec("import math\nfrom metricfit.train import Callback\n" + "".join(wanted), namespace)
    return SimpleNamespace(runs=runs, **{name: namespace[name] for name in ("WandB", "list_numbers")})


def test_weights_and_biases_gets_every_epoch(page):
    settings = {"validation": DATA, "monitor": MONITORS, "epochs": 3, "batch_size": 20, "progress": False}
    callback = page.WandB(project="churn")
    result = fit(nn.Linear(3, 1), DATA, WeightedBCELoss(), callbacks=[callback], **settings)
    (run,) = page.runs
    assert run.settings == {"project": "churn"}
    assert run.finished == 1
    assert run.config["steps_per_epoch"] == 2
    assert [step for step, _ in run.logged] == result.history["step"]
    assert [numbers["f1"] for _, numbers in run.logged] == result.history["f1"]
    assert [numbers["train_loss"] for _, numbers in run.logged] == result.history["train_loss"]
    names = set().union(*(numbers for _, numbers in run.logged))
    assert "best f1_ recall __ 0.5 threshold" in names
    assert all(re.fullmatch(r"[\w\-. /]+", name) for name in names)  # what MLflow allows, less the colon


def test_members_have_names_of_their_own(page):
    models = [nn.Linear(3, 1) for _ in range(2)]
    fit_population(models, DATA, WeightedBCELoss(), epochs=2, callbacks=[page.WandB()], progress=False)
    expected = ["member 0/train_loss", "member 1/train_loss"]
    assert [sorted(numbers) for _, numbers in page.runs[0].logged] == [expected] * 2


def test_only_finite_numbers_are_listed(page):
    row = {"stage": "bce", "epoch": 1, "step": 20, "value": 0.5, "threshold": float("nan"), "feasible": True}
    assert page.list_numbers(row) == {"value": 0.5}
