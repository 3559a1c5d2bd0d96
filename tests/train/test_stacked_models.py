"""Stacked models: dropout, the inputs of norms in mixed precision, and the number of samples evaluated at once."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from metricfit.train.engine import stacked_models
from metricfit.train.engine.stacked_models import StackedModels, runs_one_by_one
from metricfit.train.engine.stacked_tensors import unstack

CPU = torch.device("cpu")


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))


class Halved(nn.Module):
    """As convolutions on a GPU under autocast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16()


@pytest.mark.parametrize("members", [1, 3])
def test_batch_norms_of_several_members_are_given_the_type_of_their_buffers(members, monkeypatch):
    recorded: list[torch.dtype] = []
    real = nn.functional.batch_norm

    def seen(x, *args):
        recorded.append(x.dtype)
        return real(x, *args)

    monkeypatch.setattr(nn.functional, "batch_norm", seen)
    models = [nn.Sequential(Halved(), nn.BatchNorm2d(3)) for _ in range(members)]
    StackedModels(models, CPU, "bf16-mixed")(torch.randn(members, 8, 3, 8, 8))
    assert recorded == [torch.bfloat16 if members == 1 else torch.float32]


@pytest.mark.parametrize("precision", [None, "bf16-mixed"])
def test_members_one_by_one_are_the_models_and_do_without_vmap(precision, monkeypatch):
    monkeypatch.setattr(stacked_models, "vmap", None)
    models = [network() for _ in range(3)]
    x = torch.randn(3, 16, 3, 8, 8)
    stack = StackedModels(models, CPU, precision, one_by_one=True)
    logits = stack(x)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is not None):
        expected = torch.stack([model(part).float() for model, part in zip(models, x, strict=True)])
    torch.testing.assert_close(logits, expected, rtol=1e-2 if precision else 1e-5, atol=1e-2 if precision else 1e-5)
    for number, model in enumerate(models):
        torch.testing.assert_close(stack.buffers["1.running_mean"][number], model[1].running_mean, rtol=1e-2, atol=1e-3)
    assert stack.buffers["1.num_batches_tracked"].tolist() == [1, 1, 1]


def test_gradients_of_members_one_by_one_are_those_of_each():
    models = [network() for _ in range(3)]
    x = torch.randn(3, 16, 3, 8, 8)
    stack = StackedModels(models, CPU, one_by_one=True)
    weights = [weight.requires_grad_() for weight in stack.trainable_weights]
    together = torch.autograd.grad(stack(x).square().sum(), weights)
    for number, model in enumerate(models):
        alone = torch.autograd.grad(model(x[number]).square().sum(), list(model.parameters()))
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one[number], other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change", ["renorm_", "data", "clamp_"])
def test_weights_that_a_model_changes_in_forward_are_refused_one_by_one(change):
    class Constrained(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                if change == "renorm_":
                    self.weight.renorm_(2, 0, 0.2)
                elif change == "clamp_":
                    self.bias.clamp_(-0.1, 0.1)
                else:
                    self.weight.data = torch.renorm(self.weight, 2, 0, 0.2)
            return super().forward(x)

    models = [nn.Sequential(Constrained(3, 4, 3), nn.Flatten(), nn.Linear(144, 1)) for _ in range(2)]
    stack = StackedModels(models, CPU, one_by_one=True)
    for weight in stack.trainable_weights:
        weight.requires_grad_()
    with pytest.raises(RuntimeError, match="train them one by one with fit"):
        stack(torch.randn(2, 4, 3, 8, 8))


def test_an_error_of_a_model_names_the_remedy():
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 1, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("only in training")

    stack = StackedModels([Fails(), Fails()], CPU, one_by_one=True)
    with pytest.raises(RuntimeError, match=r"Fails cannot be .* train them one by one .* only in training") as caught:
        stack(torch.randn(2, 4, 3, 8, 8))
    assert "vmap" not in str(caught.value)


@pytest.mark.parametrize("fails", [False, True])
def test_streams_start_after_the_current_one_and_are_joined_even_after_an_error(fails, monkeypatch):
    events: list[tuple[str, str]] = []

    class Stream:
        def __init__(self, name: object) -> None:
            self.name = name if name == "current" else f"member {len(made)}"
            made.append(self)

        def wait_stream(self, other: "Stream") -> None:
            events.append((self.name, other.name))

    made: list[Stream] = []
    current = Stream("current")
    made.clear()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    models = [network() for _ in range(3)]
    stack = StackedModels(models, CPU, one_by_one=True)
    inputs = torch.randn(3, 4, 3, 8, 8)
    calls = list(zip(stack.skeletons, unstack(stack.weights), unstack(stack.buffers), inputs, strict=True))
    if fails:
        calls[2] = (*calls[2][:3], torch.zeros(4, 2, 8, 8))
        with pytest.raises(RuntimeError, match="channels"):
            stack._run_on_streams(calls)
    else:
        logits = stack._run_on_streams(calls)
        expected = [model(x) for model, (*_, x) in zip(models, calls, strict=True)]
        torch.testing.assert_close(torch.stack(logits), torch.stack(expected))
    names = [f"member {number}" for number in range(3)]
    assert events == [(name, "current") for name in names] + [("current", name) for name in names]
    stack._run_on_streams(calls[:2])
    assert len(made) == 3


def test_networks_of_some_size_run_one_by_one_on_a_gpu_within_graphs():
    small, large, dense = nn.Conv2d(3, 8, 3), nn.Conv2d(32, 64, 3), nn.Linear(500, 500)
    cuda = torch.device("cuda")
    assert [runs_one_by_one(model, CPU, cuda_graphs=False) for model in (small, large, dense)] == [False, True, False]
    assert [runs_one_by_one(large, cuda, cuda_graphs=graphs) for graphs in (False, True)] == [False, True]


def test_mixed_precision_with_batch_norm_is_near_the_whole_one():
    models = [network() for _ in range(3)]
    x = torch.randn(3, 64, 3, 8, 8)
    whole, mixed = StackedModels(models, CPU), StackedModels(models, CPU, "bf16-mixed")
    assert 0 < (whole(x) - mixed(x)).abs().max() < 0.05
    assert torch.allclose(whole.buffers["1.running_var"], mixed.buffers["1.running_var"], rtol=0.02)


def test_large_samples_are_evaluated_few_at_a_time(monkeypatch):
    models = [network() for _ in range(2)]
    stack = StackedModels(models, CPU)
    x = torch.randn(50, 3, 8, 8)
    numbers = torch.stack([torch.arange(50), torch.arange(50).flip(0)])
    expected = torch.stack([model.eval()(x[row]) for model, row in zip(models, numbers, strict=True)])
    sizes: list[int] = []
    monkeypatch.setattr(stacked_models, "VALUES_AT_ONCE", 2 * 7 * 3 * 8 * 8)
    monkeypatch.setattr(
        stack, "_forward", lambda x, shared: sizes.append(x.shape[1]) or StackedModels._forward(stack, x, shared)
    )
    assert torch.allclose(stack.evaluate(x, numbers, shared=False), expected, atol=1e-5)
    assert sizes == [7] * 7 + [1]
    both = stack.outputs([0, 1], [x[row] for row in numbers])
    assert torch.allclose(torch.stack(both), expected, atol=1e-5)
    monkeypatch.setattr(stacked_models, "SAMPLES_AT_ONCE", 20)
    sizes.clear()
    monkeypatch.setattr(stacked_models, "VALUES_AT_ONCE", 2**24)
    stack.evaluate(x, numbers, shared=False)
    assert sizes == [20, 20, 10]


def test_dropout_drops_its_share_scales_the_rest_and_rests_in_evaluation():
    torch.manual_seed(0)
    stack = StackedModels([nn.Sequential(nn.Dropout(0.3), nn.Linear(1, 1, bias=False)) for _ in range(3)], CPU)
    stack.weights = {name: torch.ones_like(weight) for name, weight in stack.weights.items()}
    ones = torch.ones(3, 20_000, 1)
    dropped = stack(ones)
    assert (dropped == 0).double().mean((1, 2)).tolist() == pytest.approx([0.3] * 3, abs=0.02)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert not torch.equal(dropped[0], dropped[1])
    assert torch.equal(stack.outputs([0, 1, 2], list(ones))[0], ones[0])
