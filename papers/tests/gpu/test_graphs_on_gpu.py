"""Steps replayed from CUDA graphs are the steps that Python makes."""

import copy

import pytest
import torch
from torch import nn

from metricfit.constraints import AugmentedLagrangian, RankingConstraint
from metricfit.losses import MetricLoss, SoftAUROCLoss, WeightedBCELoss, WMWLoss
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.steps import Linear
from metricfit.train import Stage, Steps
from metricfit.train.engine.learner import Learner
from metricfit_papers import graphs as cuda_graphs
from metricfit_papers import populations
from metricfit_papers.graphs import CapturedLearner
from metricfit_papers.populations import fit_population

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def short_runs_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "FEWEST_STEPS", 1)


def learner(graphs: bool) -> type[Learner]:
    return CapturedLearner if graphs else Learner


LOSSES = {
    "f1": lambda: MetricLoss("f1"),
    "bce": WeightedBCELoss,
    "auroc": lambda: SoftAUROCLoss(step=Linear(0.1)),
    "wmw": lambda: WMWLoss(gamma=0.2, power=3),
    "ranking": lambda: AugmentedLagrangian(WeightedBCELoss(), RankingConstraint(1.0, size=700), mu=0.3, rho=2.0),
}


def rows(classes: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 6, generator=drawn)
    return x, torch.bucketize(x[:, 0] + torch.randn(1000, generator=drawn), torch.linspace(0.5, 1.5, classes - 1))


# Without a bias before the norm, whose gradient is 0 but for rounding, which Adam makes as large as any.
def networks(outputs: int = 1, norm: bool = False) -> list[nn.Module]:
    torch.manual_seed(0)
    return [
        nn.Sequential(
            nn.Linear(6, 16, bias=not norm), *([nn.BatchNorm1d(16)] if norm else []), nn.ReLU(), nn.Linear(16, outputs)
        )
        for _ in range(3)
    ]


def trained(loss, graphs: bool, **settings):
    models = networks(norm=settings.pop("norm", False))
    splits = settings.pop("splits", [(range(700), range(700, 1000))] * 3)
    splits = [(list(each[0]), list(each[1])) for each in splits]
    found = fit_population(
        models,
        rows(),
        loss,
        splits=splits,
        epochs=6,
        batch_size=128,
        device="cuda",
        make_learner=learner(graphs),
        **settings,
    )
    return [torch.cat([w.detach().cpu().flatten() for w in each.model.state_dict().values()]) for each in found], found


@pytest.mark.parametrize("name", LOSSES)
def test_graphs_give_the_same_weights_for_every_loss(name: str) -> None:
    plain, _ = trained(LOSSES[name](), False)
    replayed, _ = trained(LOSSES[name](), True)
    for one, other in zip(plain, replayed, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"splits": [(range(650 + 20 * at), range(750, 1000)) for at in range(3)]},
        {"lr": [1e-3, 3e-3, 1e-2]},
        {"optimizer": lambda weights, lr: torch.optim.SGD(weights, lr=lr, momentum=0.9)},
        {"scheduler": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)},
        {"patience": 1},
        {"steps": Steps(clip=0.1)},
        {"norm": True},
    ],
    ids=["lengths", "rates", "sgd", "scheduler", "stopping", "clip", "norm"],
)
def test_graphs_give_the_same_weights_for_every_setting(settings: dict) -> None:
    plain, one = trained(MetricLoss("f1"), False, **settings)
    replayed, other = trained(MetricLoss("f1"), True, **settings)
    assert [len(each.history) for each in one] == [len(each.history) for each in other]
    for left, right in zip(plain, replayed, strict=True):
        torch.testing.assert_close(right, left, rtol=1e-3, atol=1e-4)


def test_graphs_give_the_same_weights_over_two_stages() -> None:
    def stages():
        return [Stage(WeightedBCELoss(), epochs=2, lr=1e-2), Stage(MetricLoss("f1"), epochs=4, lr=1e-3)]

    plain, _ = trained(stages(), False)
    replayed, _ = trained(stages(), True)
    for one, other in zip(plain, replayed, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-4)


def test_betas_of_classes_can_be_captured() -> None:
    losses = MetricLoss("fbeta(beta=[1, 0.25, 5])", task="multiclass"), WeightedCrossEntropyLoss()
    for loss in losses:
        plain, replayed = (
            fit_population(
                networks(3), rows(3), loss, epochs=3, batch_size=128, device="cuda", make_learner=learner(graphs)
            )
            for graphs in (False, True)
        )
        for one, other in zip(plain, replayed, strict=True):
            torch.testing.assert_close(
                other.history["train_loss"], one.history["train_loss"], rtol=1e-3, atol=1e-4, msg=str(loss)
            )


@pytest.mark.filterwarnings("ignore::metricfit.losses.gradient_watch.DeadGradientWarning")
def test_dropout_differs_from_step_to_step_and_member_to_member() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * 0 + torch.rand_like(x[:, :1])

    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("noise", torch.zeros(4))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.noise.index_add_(0, self.at, logits.detach().flatten()[:1])
                self.at.add_(1)
            return logits.mean()

    found = fit_population(
        [Noisy() for _ in range(3)],
        rows(),
        Kept(),
        epochs=4,
        batch_size=1000,
        device="cuda",
        make_learner=CapturedLearner,
    )
    seen = torch.stack([each.objective.noise.cpu() for each in found])
    assert len(seen.unique()) == 12


@pytest.mark.parametrize("graphs", [False, True])
def test_batch_norms_of_several_members_train_in_mixed_precision(graphs: bool) -> None:
    def network() -> nn.Module:
        return nn.Sequential(
            nn.Conv1d(1, 4, 3, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1)
        )

    x, y = rows()
    settings = {"epochs": 3, "batch_size": 128, "device": "cuda", "make_learner": learner(graphs)}
    losses = []
    for precision in (None, "bf16-mixed"):
        torch.manual_seed(0)
        members = [network() for _ in range(3)]
        found = fit_population(members, (x.unsqueeze(1), y), WeightedBCELoss(), precision=precision, **settings)
        losses.append([each.history["train_loss"][-1] for each in found])
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], abs=0.02)


def images() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(600, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0].mean((1, 2)) > 0.05).long()


@pytest.mark.parametrize("precision", [None, "bf16-mixed"])
def test_members_one_by_one_learn_what_they_learn_under_vmap(
    precision: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(populations, "FEWEST_WEIGHTS", 0)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # its 10 bits would hide differences of 1e-3

    def members() -> list[nn.Module]:
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 3), nn.ReLU()
        first = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 1))
        return [copy.deepcopy(first) for _ in range(5)]

    settings = {"epochs": 4, "batch_size": 60, "device": "cuda", "optimizer": torch.optim.SGD, "precision": precision}
    splits = [(list(range(480)), list(range(480, 600)))] * 5
    plain, replayed = (
        fit_population(
            members(), images(), WeightedBCELoss(), splits=splits, lr=[0.01 * (k + 1) for k in range(5)],
            make_learner=learner(graphs), **settings,
        )
        for graphs in (False, True)
    )  # fmt: skip
    assert replayed[0].history["cuda_graphs"][-1] == "captured"
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if precision is None else {"rtol": 2e-2, "atol": 1e-2}
    for one, other in zip(plain, replayed, strict=True):
        for name, tensor in one.model.state_dict().items():
            torch.testing.assert_close(other.model.state_dict()[name], tensor, **tolerance, msg=name)
    losses = [result.history["train_loss"][-1] for result in replayed]
    assert len(set(losses)) == 5


def test_members_one_by_one_draw_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(populations, "FEWEST_WEIGHTS", 0)

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 1, 8)
            self.register_buffer("drawn", torch.zeros(8))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            noise = torch.rand(len(x), 1, device=x.device)
            if self.training:
                self.drawn.index_add_(0, self.at, noise[0])
                self.at.add_(1)
            return self.layer(x).flatten(1) + noise

    members = [Noisy() for _ in range(4)]
    splits = [(list(range(600)), list(range(10)))] * 4
    settings = {"epochs": 4, "batch_size": 300, "device": "cuda", "make_learner": CapturedLearner, "monitor": None}
    results = fit_population(members, images(), WeightedBCELoss(), splits=splits, **settings)
    drawn = torch.cat([result.model.drawn.cpu() for result in results])  # up to each member's best epoch
    drawn = drawn[drawn > 0]
    assert len(drawn.unique()) == len(drawn) >= 8


def test_the_average_of_the_weights_follows_captured_steps():
    splits = [(range(700), range(700, 1000))] * 3
    settings = {"splits": splits, "steps": Steps(ema=0.9), "norm": True, "lr": [1e-12, 0.01, 0.01], "patience": 2}
    plain, _ = trained(WeightedBCELoss(), False, **settings)
    replayed, results = trained(WeightedBCELoss(), True, **settings)
    assert len(results[0].history) < len(results[1].history)
    for one, other in zip(plain, replayed, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-4)
