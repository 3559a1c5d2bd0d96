"""Sources of data: tensors, arrays, tables, lists, Datasets and DataLoaders give the same batches."""

import random

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from metricfit.losses import WeightedBCELoss
from metricfit.train import evaluate, fit
from metricfit.train.data.batches import make_batch
from metricfit.train.data.sources import FromDataset, FromLoader, InMemory, as_source, get_weight_dtype

CPU = torch.device("cpu")
X = torch.arange(20.0).reshape(10, 2)
Y = torch.arange(10) % 2


class LikePolars:
    """What has nothing but to_numpy."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


KINDS = {
    "tensor": (X, Y),
    "numpy": (X.numpy(), Y.numpy()),
    "float64": (X.double().numpy(), Y.numpy().astype("int32")),
    "pandas": (pd.DataFrame(X.numpy(), columns=["a", "b"]), pd.Series(Y.numpy(), index=range(5, 15))),
    "polars_like": (LikePolars(X.numpy()), LikePolars(Y.numpy())),
    "reversed": (X.flip(0).numpy()[::-1], Y.numpy()),
    "lists": (X.tolist(), Y.tolist()),
    "bool": (X, Y.bool()),
    "uint8": (X, Y.byte()),
    "float_labels": (X, Y.double().numpy()),
}


@pytest.mark.parametrize("arrays", KINDS.values(), ids=KINDS)
def test_arrays_tables_and_lists_are_tensors(arrays):
    data = as_source(arrays, "train").with_dtype(torch.float32)
    assert isinstance(data, InMemory)
    assert torch.equal(data.x, X)
    assert torch.equal(data.y.long(), Y)
    assert data.weight is None


def test_inputs_take_the_type_asked_for_and_whole_numbers_stay():
    assert as_source((X.double().numpy(), Y), "train").x.dtype == torch.float64
    assert as_source((X, Y), "train").with_dtype(torch.float64).x.dtype == torch.float64
    assert as_source((X.long(), Y), "train").with_dtype(torch.float64).x.dtype == torch.int64
    assert get_weight_dtype(nn.Linear(2, 1).double()) == torch.float64
    assert get_weight_dtype(nn.ReLU()) == torch.get_default_dtype()


def test_weights_are_of_the_inputs_type():
    weight = np.linspace(0.1, 1.0, 10)
    data = as_source((X.double(), Y, weight), "train")
    assert data.weight.dtype == torch.float64
    assert data.weight.tolist() == weight.tolist()
    assert as_source((X, Y, weight), "train").weight.dtype == torch.float32
    assert as_source((X.long(), Y, torch.ones(10, dtype=torch.long)), "train").weight.dtype == torch.get_default_dtype()


def test_batches_in_memory_hold_the_samples_asked_for_and_their_numbers():
    weight = torch.arange(10.0)
    batches = list(as_source((X, Y, weight), "train").batches([torch.tensor([3, 1]), torch.tensor([0])], CPU))
    assert torch.equal(batches[0].x, X[[3, 1]])
    assert torch.equal(batches[0].y, Y[[3, 1]])
    assert batches[0].weight.tolist() == [3.0, 1.0]
    assert batches[0].index.tolist() == [3, 1]
    assert [len(batch) for batch in batches] == [2, 1]


class Noisy(Dataset):
    """Items with random augmentation from all three generators."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        noise = torch.rand(1) + random.random() + np.random.rand()  # noqa: NPY002 (what users' datasets draw from)
        return X[index] + noise.float(), int(Y[index])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_datasets_items_are_read_in_the_order_asked_for(workers):
    order = [torch.tensor([5, 2, 9]), torch.tensor([0])]
    batches = list(FromDataset(TensorDataset(X, Y), workers).batches(order, CPU))
    assert torch.equal(batches[0].x, X[order[0]])
    assert torch.equal(batches[0].y, Y[order[0]])
    assert batches[1].index.tolist() == [0]


def test_augmentation_is_a_function_of_seed_and_sample_alone():
    data = FromDataset(Noisy())

    def read(order, seed):
        batches = list(data.batches(order, CPU, seed))
        return {int(number): row for batch in batches for number, row in zip(batch.index, batch.x, strict=True)}

    one = read([torch.tensor([0, 1]), torch.tensor([2, 3])], seed=4)
    other = read([torch.tensor([3, 2, 0])], seed=4)
    assert all(torch.equal(one[number], other[number]) for number in other)
    assert not torch.equal(read([torch.tensor([0])], seed=5)[0], one[0])


def test_reading_labels_and_the_first_sample_draws_no_random_numbers():
    torch.manual_seed(0)
    random.seed(0)
    before = torch.get_rng_state(), random.getstate()
    data = FromDataset(Noisy())
    assert torch.equal(data.target, Y)
    assert data.first().shape == (1, 2)
    list(data.batches([torch.arange(10)], CPU))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


class Named(Dataset):
    """Items as dictionaries."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {"x": X[index], "y": Y[index], "weight": float(index)}


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (TensorDataset(X, Y), Y),
        (Subset(TensorDataset(X, Y), [1, 1, 2]), Y[[1, 1, 2]]),
        (Named(), Y),
        ([(X[0], 1), (X[1], 0)], torch.tensor([1, 0])),
    ],
    ids=["tensors", "subset", "dictionaries", "list"],
)
def test_the_labels_of_a_dataset(dataset, expected):
    assert torch.equal(FromDataset(dataset).target, expected)


def test_dictionaries_carry_weights():
    (batch,) = FromDataset(Named()).batches([torch.tensor([4, 2])], CPU)
    assert batch.weight.tolist() == [4.0, 2.0]
    assert torch.equal(batch.x, X[[4, 2]])


def test_a_loader_gives_its_own_batches_shuffled_by_the_seed():
    data = as_source(DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True), "train")
    assert isinstance(data, FromLoader)
    assert data.expected_batches == 4

    def numbers(seed, skip=0):
        return [row[0].item() for batch in data.batches(CPU, seed, skip=skip) for row in batch.x]

    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert sorted(numbers(1)) == X[:, 0].tolist()
    assert torch.equal(torch.get_rng_state(), before)
    assert numbers(1) == numbers(1)
    assert numbers(1) != numbers(2)
    assert numbers(1, skip=2) == numbers(1)[6:]


def test_nested_inputs_go_to_the_device_as_they_are():
    nested = {"a": torch.ones(2), "b": [torch.zeros(2), "text"]}
    batch = make_batch((nested, torch.tensor([0, 1])), torch.device("meta"))
    assert batch.x["a"].device.type == "meta"
    assert batch.x["b"][0].device.type == "meta"
    assert batch.x["b"][1] == "text"


class Stream(IterableDataset):
    """Samples without numbers."""

    def __iter__(self):
        return iter(zip(X, Y, strict=True))


NAN = X.clone()
NAN[3, 1] = torch.nan
NAN[7, 0] = torch.inf
WRONG = {
    "lengths": ((X, Y[:5]), ValueError, "train has parts of different lengths: 10, 5"),
    "weights": ((X, Y, torch.ones(3)), ValueError, "different lengths: 10, 10, 3"),
    "empty": ((X[:0], Y[:0]), ValueError, "train is empty"),
    "empty_dataset": (TensorDataset(X[:0], Y[:0]), ValueError, "train is empty"),
    "nan": ((NAN, Y), ValueError, "NaN or infinity in 2 of 10 rows, the first is row 3; fill in or drop them"),
    "text": ((X, ["yes"] * 10), TypeError, "train's labels must be numbers"),
    "negative_weight": ((X, Y, -torch.ones(10)), ValueError, r"weights must be finite and at least 0; 10 .* row 0"),
    "nan_weight": ((X, Y, torch.tensor([1.0] * 9 + [torch.nan])), ValueError, "1 are not, the first is in row 9"),
    "four": ((X, Y, Y, Y), TypeError, r"a Dataset's items must be \(x, y\)"),
    "number": (
        5,
        TypeError,
        r"train must be \(X, y\), \(X, y, weight\), a dictionary with x and y, a Dataset or a DataLoader; got int",
    ),
    "stream": (Stream(), TypeError, "IterableDataset, whose samples have no numbers; wrap it in a DataLoader"),
    "inputs_alone": (TensorDataset(X), TypeError, r"items must be \(x, y\).*got a tuple of 1"),
}


@pytest.mark.parametrize(("train_data", "error", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_trained_on_is_refused_with_the_reason(train_data, error, message):
    with pytest.raises(error, match=message):
        as_source(train_data, "train").target  # noqa: B018 (a property that reads the labels)


@pytest.mark.parametrize(
    ("item", "message"),
    [({"inputs": X, "labels": Y}, "needs 'x' and 'y', got"), (X, r"must be \(x, y\) or \(x, y, weight\), got Tensor")],
)
def test_a_batch_of_another_form_is_refused(item, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make_batch(item, CPU)


@pytest.mark.parametrize("kind", ["dataset", "loader"])
def test_fractions_take_the_models_type(kind):
    dataset = TensorDataset(torch.randn(20, 3, dtype=torch.float64), torch.arange(20) % 2)
    source = dataset if kind == "dataset" else DataLoader(dataset, batch_size=5)
    model = nn.Linear(3, 1)
    fit(model, source, WeightedBCELoss(), validation=source, epochs=1, progress=False)
    assert evaluate(model, source, "f1").logits.dtype == torch.float32
