"""DataLoaders whose length is unknown, too small or too large: they are read to their end."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, Checkpoints, Hardware, evaluate, fit
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.data.sources import FromLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on a single core
N = 200
CPU = torch.device("cpu")


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 3, generator=generator)
    return x, (x[:, 0] + 0.5 * torch.randn(N, generator=generator) > 0).long()


class Stream(IterableDataset):
    """Samples without a length, shared out over the workers that read them."""

    def __init__(self, samples=N):
        self.x, self.y = data()
        self.samples = samples

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter([(self.x[index], self.y[index]) for index in range(first, self.samples, step)])


class Announced(Stream):
    """The same samples with any announced length."""

    def __init__(self, announced, samples=N):
        super().__init__(samples)
        self.announced = announced

    def __len__(self):
        return self.announced


LOADERS = {
    "shared out over workers": lambda: DataLoader(Announced(N), batch_size=16, num_workers=2),
    "no length": lambda: DataLoader(Stream(), batch_size=16),
    "too long a length": lambda: DataLoader(Announced(10 * N), batch_size=16),
    "too short a length": lambda: DataLoader(Announced(N // 2), batch_size=16),
    "no batches of its own": lambda: DataLoader(Announced(N // 2), batch_size=None),
}
BATCHES = {"shared out over workers": 14, "no batches of its own": N}


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 1))


def one_by_one(kind):
    """Without automatic batches a batch is what the dataset gives; here it needs a batch axis."""
    loader = LOADERS[kind]()
    if loader.batch_size is None:
        loader.collate_fn = lambda sample: (sample[0].unsqueeze(0), sample[1].unsqueeze(0))
    return loader


@pytest.mark.parametrize("kind", LOADERS)
def test_every_sample_of_a_stream_is_evaluated_whatever_its_length_says(kind):
    x, y = data()
    expected = evaluate(model(), (x, y), ["f1", "auroc"])
    result = evaluate(model(), one_by_one(kind), ["f1", "auroc"])
    assert len(result.target) == N
    assert result.values == pytest.approx(expected.values)


class Watched(Callback):
    """Notes the plan and every loss, and stops the run at a step."""

    def __init__(self, stop_at=None):
        self.losses, self.stop_at = [], stop_at

    def started(self, plan, step):
        self.plan = plan

    def stepped(self, step, losses):
        self.losses.append(losses.item())
        if step == self.stop_at:
            raise RuntimeError("stop")


def trained(loader, folder=None, watched=None, every=None, **settings):
    usual = {"epochs": 3, "lr": 0.01, "hardware": Hardware(accelerator="cpu"), "progress": False, "validation": data()}
    callbacks = [] if watched is None else [watched]
    return fit(
        model(),
        loader,
        WeightedBCELoss(),
        **(usual | settings),
        callbacks=callbacks,
        checkpoint_dir=folder and Checkpoints(folder, every),
        resume=folder is not None,
    )


@pytest.mark.parametrize("kind", LOADERS)
def test_an_epoch_of_a_stream_ends_where_the_stream_ends(kind):
    watched = Watched()
    rows = trained(one_by_one(kind), watched=watched).history.rows
    per_epoch = BATCHES.get(kind, 13)
    assert [row["step"] for row in rows] == [per_epoch, 2 * per_epoch, 3 * per_epoch]
    for epoch, row in enumerate(rows):
        losses = watched.losses[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert row["train_loss"] == pytest.approx(sum(losses) / per_epoch)
    assert watched.plan.steps_per_epoch == FromLoader(LOADERS[kind]()).expected_batches


@pytest.mark.parametrize("kind", ["no length", "too long a length", "too short a length"])
@pytest.mark.parametrize("every", [4, 13, None])
def test_a_run_on_a_stream_resumes_to_the_same_weights_and_history(tmp_path, kind, every):
    whole = trained(LOADERS[kind](), tmp_path / "whole", every=every)
    stop = Watched(stop_at=23)
    with pytest.raises(RuntimeError, match="stop"):
        trained(LOADERS[kind](), tmp_path / "stopped", stop, every=every)
    newest = RunFolder(tmp_path / "stopped").checkpoints()[0].name
    assert newest.startswith({4: "step-0000000020", 13: "step-0000000013", None: "step-0000000013"}[every])
    resumed = trained(LOADERS[kind](), tmp_path / "stopped", every=every)
    assert resumed.history == whole.history
    for mine, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_stream_that_ends_before_the_checkpoint_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="stop"):
        trained(LOADERS["no length"](), tmp_path, Watched(stop_at=11), every=5)
    with pytest.raises(ValueError, match=r"ended after 4 batches, but the checkpoint was written after 10 batches"):
        trained(DataLoader(Stream(64), batch_size=16), tmp_path, every=5)


class Once(IterableDataset):
    """A generator, which gives its samples only once."""

    def __init__(self):
        x, y = data()
        self.samples = iter(list(zip(x, y, strict=True)))

    def __iter__(self):
        return self.samples


def test_streams_without_batches_are_refused_with_the_reason():
    with pytest.raises(ValueError, match="gives no batches, so there is nothing to train on"):
        trained(DataLoader(Stream(0), batch_size=16))
    with pytest.raises(ValueError, match="epoch 1 of stage 0: the DataLoader gives no batches, although an earlier"):
        trained(DataLoader(Once(), batch_size=16))
    with pytest.raises(ValueError, match="gives no batches, so there is nothing to measure on"):
        trained(data(), validation=DataLoader(Stream(0), batch_size=16))
    with pytest.raises(ValueError, match="gives no batches, so there is nothing to measure on"):
        evaluate(model(), DataLoader(Stream(0), batch_size=16))


def test_the_expected_number_of_batches_is_the_loaders_own_or_none():
    assert FromLoader(DataLoader(TensorDataset(*data()), batch_size=16)).expected_batches == 13
    assert FromLoader(DataLoader(Announced(N), batch_size=16)).expected_batches == 13
    assert FromLoader(DataLoader(Announced(N), batch_size=16, drop_last=True)).expected_batches == 12
    assert FromLoader(DataLoader(Announced(N), batch_size=None)).expected_batches == N
    assert FromLoader(DataLoader(Stream(), batch_size=16)).expected_batches is None


def test_a_run_that_diverges_on_a_stream_says_where():
    x, y = data()
    x[40] = torch.nan

    class Broken(Stream):
        def __iter__(self):
            return iter(zip(x, y, strict=True))

    with pytest.raises(ArithmeticError, match=r"at step 3 \(stage 0, epoch 0, batch 2\)\. Likely causes"):
        trained(DataLoader(Broken(), batch_size=16))


def test_a_schedule_made_for_the_announced_length_holds_where_there_are_more_batches():
    rates = []

    class Noted(SGD):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    schedule = partial(OneCycleLR, max_lr=0.1)
    result = trained(LOADERS["too short a length"](), optimizer=Noted, scheduler=schedule)
    assert result.history.rows[-1]["step"] == 39
    assert rates[-1] == rates[-18] == pytest.approx(min(rates))  # 3 epochs of 7 announced batches, and 18 more
    assert max(rates) == pytest.approx(0.1, rel=0.05)
