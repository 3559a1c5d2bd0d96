"""DecisionModule: labels and probabilities like those of the decision, saved, exported and in every precision."""

import copy
import io
import subprocess
import sys

import pytest
import torch
from torch import nn

from metricfit import Counts
from metricfit.curves import best_thresholds
from metricfit.decide import (
    Calibration,
    DecisionModule,
    LabelDecision,
    OffsetDecision,
    ThresholdDecision,
    best_decision,
)
from metricfit.metrics import PerLabel

TWO = ThresholdDecision(0.1, calibration=Calibration(2.0, torch.tensor([0.3])))
CLASSES = OffsetDecision(
    torch.tensor([0.0, 0.7, -0.4], dtype=torch.float64),
    calibration=Calibration(0.5, torch.tensor([0.1, 0.0, -0.1])),
)
LABELS = LabelDecision(torch.tensor([0.3, -0.7, 0.0]))
KINDS = pytest.mark.parametrize(
    ("decision", "outputs"), [(TWO, 1), (CLASSES, 3), (LABELS, 3)], ids=["two", "classes", "labels"]
)


def module(decision, outputs, dtype=torch.float32):
    torch.manual_seed(0)
    return DecisionModule(nn.Linear(4, outputs), decision).to(dtype).eval()


def rows(n=64, dtype=torch.float32):
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(1)).to(dtype)


@KINDS
def test_it_decides_like_the_decision(decision, outputs):
    wrapped, x = module(decision, outputs), rows()
    logits = wrapped.model(x).double()
    result = wrapped(x)
    assert torch.equal(result.labels, decision.decide(logits))
    assert torch.allclose(result.probabilities, decision.probabilities(logits).float(), atol=1e-6)
    assert result.labels.dtype == torch.int64
    assert len(result.labels.unique()) > 1


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 1, 2, 5)])
def test_two_classes_in_every_shape(shape):
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    labels, probabilities = DecisionModule(nn.Identity(), TWO)(logits)
    expected = tuple(size for axis, size in enumerate(shape) if axis != 1)
    assert labels.shape == probabilities.shape == expected
    assert torch.equal(labels.flatten(), TWO.decide(logits))


@pytest.mark.parametrize("decision", [CLASSES, LABELS], ids=["classes", "labels"])
def test_dense_logits_are_decided_pixel_by_pixel(decision):
    logits = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    pixels = logits.movedim(1, -1).reshape(-1, 3)
    labels, probabilities = DecisionModule(nn.Identity(), decision)(logits)
    assert labels.shape == ((2, 4, 5) if decision is CLASSES else (2, 3, 4, 5))
    per_pixel = labels.flatten() if decision is CLASSES else labels.movedim(1, -1).reshape(-1, 3)
    assert torch.equal(per_pixel, decision.decide(pixels.double()))
    flat = probabilities.movedim(1, -1).reshape(-1, 3)
    assert torch.allclose(flat, decision.probabilities(pixels).float(), atol=1e-6)


@KINDS
def test_a_state_dict_brings_its_decision_even_one_of_another_kind(decision, outputs):
    saved, x = module(decision, outputs), rows()
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    for other in (TWO, CLASSES, LABELS, OffsetDecision(torch.zeros(7))):
        loaded = DecisionModule(nn.Linear(4, outputs), other)
        assert str(loaded.load_state_dict(torch.load(file, weights_only=True))) == "<All keys matched successfully>"
        file.seek(0)
        assert all(map(torch.equal, loaded(x), saved(x)))
        assert loaded.state_dict().keys() == saved.state_dict().keys()


def test_the_weights_of_the_model_alone_leave_the_decision():
    wrapped = module(TWO, 1)
    wrapped.model.load_state_dict(nn.Linear(4, 1).state_dict())
    assert float(wrapped.threshold) == pytest.approx(0.1)


def test_a_state_dict_with_two_decisions_is_refused():
    state = module(TWO, 1).state_dict() | {"offsets": torch.zeros(2)}
    with pytest.raises(ValueError, match="threshold and offsets"):
        module(TWO, 1).load_state_dict(state)


@KINDS
def test_a_copy_is_independent_and_decisions_can_be_replaced(decision, outputs):
    wrapped, x = module(decision, outputs), rows()
    other = copy.deepcopy(wrapped)
    other.set_decision(LabelDecision(torch.full((outputs,), 1e9)))
    assert not other(x).labels.any()
    assert wrapped(x).labels.any()


@KINDS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_leaves_the_decision_and_counts_in_float32(decision, outputs, dtype):
    wrapped, x = module(decision, outputs, dtype), rows(dtype=dtype)
    assert wrapped.model.weight.dtype == dtype
    assert all(buffer.dtype == torch.float32 for buffer in wrapped.buffers())
    labels, probabilities = wrapped(x)
    assert torch.equal(labels, decision.decide(wrapped.model(x).double()))
    assert probabilities.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_threshold_between_neighbouring_logits_separates_them(dtype):
    lower = torch.tensor([1.1, -3.3, 1e-30, 0.0], dtype=dtype)
    upper = torch.nextafter(lower, torch.full_like(lower, torch.inf))
    for low, high in zip(lower, upper, strict=True):
        model = nn.Linear(1, 1, bias=False, dtype=dtype)
        nn.init.ones_(model.weight)
        for threshold in (float(low) * 0.5 + float(high) * 0.5, float(high)):
            wrapped = DecisionModule(model, ThresholdDecision(threshold))
            expected = [int(float(low) >= threshold), int(float(high) >= threshold)]
            assert wrapped(torch.stack([low, high])[:, None]).labels.tolist() == expected


@KINDS
def test_vmap_over_rows_and_over_members(decision, outputs):
    wrapped, x = module(decision, outputs), rows()
    labels, probabilities = torch.vmap(wrapped)(x)
    expected = wrapped(x)
    assert torch.equal(labels.reshape(expected.labels.shape), expected.labels)
    assert torch.allclose(probabilities.reshape(expected.probabilities.shape), expected.probabilities)
    members = [wrapped, module(decision, outputs)]
    nn.init.normal_(members[1].model.weight)
    members[1].set_decision(copy.deepcopy(decision))
    state = torch.func.stack_module_state(members)
    stacked = torch.vmap(lambda p, b: torch.func.functional_call(wrapped, (p, b), (x,)))(*state)
    for number, member in enumerate(members):
        assert torch.equal(stacked[0][number], member(x).labels)


@KINDS
def test_an_exported_program_takes_batches_of_any_size(decision, outputs):
    wrapped = module(decision, outputs)
    n = torch.export.Dim("n", min=2)
    program = torch.export.export(wrapped, (rows(),), dynamic_shapes=(({0: n},),))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    labels, probabilities = torch.export.load(file).module()(rows(9))
    assert torch.equal(labels, wrapped(rows(9)).labels)
    assert torch.allclose(probabilities, wrapped(rows(9)).probabilities)


@KINDS
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.onnx with this torch
def test_onnx(decision, outputs, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    wrapped, path = module(decision, outputs), tmp_path / "model.onnx"
    n = torch.export.Dim("n", min=2)
    torch.onnx.export(wrapped, (rows(),), path, dynamo=True, dynamic_shapes=(({0: n},),), verbose=False)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    labels, probabilities = session.run(None, {session.get_inputs()[0].name: rows(9).numpy()})
    expected = wrapped(rows(9))
    assert labels.tolist() == expected.labels.tolist()
    assert torch.allclose(torch.from_numpy(probabilities), expected.probabilities, atol=1e-6)


def test_compile_gives_the_same_without_a_graph_break():
    wrapped, x = module(CLASSES, 3), rows()
    compiled = torch.compile(wrapped, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x).labels, wrapped(x).labels)


def test_an_object_with_logits_is_read():
    class Output:
        logits = torch.tensor([-1.0, 1.0])

    class Model(nn.Module):
        def forward(self, x):
            return Output()

    assert DecisionModule(Model(), TWO)(None).labels.tolist() == [0, 1]


def test_it_holds_what_best_decision_chose():
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(400, generator=generator) < 0.2).long()
    x = torch.randn(400, 4, generator=generator) + y[:, None]
    model = nn.Linear(4, 1)
    with torch.no_grad():
        logits = model(x)
        decision = best_decision(logits, y, "f1")
        labels, probabilities = DecisionModule(model, decision)(x)
    assert torch.equal(labels, decision.decide(logits.double()))
    assert float(probabilities.mean()) == pytest.approx(float(y.float().mean()), abs=0.01)  # calibrated


@pytest.mark.parametrize(
    ("decision", "logits", "message"),
    [
        (TWO, torch.zeros(4, 2), r"\(n, 1\).*two classes.*\(4, 2\)"),
        (CLASSES, torch.zeros(4, 2), r"c = 3.*3 classes.*\(4, 2\)"),
        (LABELS, torch.zeros(4), r"c = 3.*3 labels.*\(4,\)"),
        (CLASSES, torch.tensor(0.0), "3 classes"),
    ],
)
def test_logits_of_another_shape_are_refused(decision, logits, message):
    with pytest.raises(ValueError, match=message):
        DecisionModule(nn.Identity(), decision)(logits)


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        DecisionModule(lambda x: x, TWO)
    with pytest.raises(TypeError, match="best_decision"):
        DecisionModule(nn.Identity(), 0.5)
    with pytest.raises(TypeError, match=r"floating-point.*int64"):
        DecisionModule(nn.Identity(), TWO)(torch.tensor([1, 2]))
    with pytest.raises(TypeError, match="returned a tuple"):
        DecisionModule(nn.LSTM(4, 1), TWO)(torch.zeros(2, 4))


def test_it_needs_torch_and_numpy_alone():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['scipy', 'sklearn'])); import warnings; "
        "warnings.simplefilter('ignore'); import torch; "
        "from metricfit.decide import ThresholdDecision, DecisionModule; "
        "module = DecisionModule(torch.nn.Identity(), ThresholdDecision(0.0)); "
        "print(module(torch.tensor([-1.0, 1.0])).labels.tolist())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.stdout.strip() == "[0, 1]", ended.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_thresholds_of_probabilities_decide_as_hard_counts_do(dtype):
    """Also the logits whose probability is the threshold itself, which rounded log-odds would miss."""
    logits = 6 * torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    target = (logits + 3 * torch.randn(400, 3, generator=torch.Generator().manual_seed(1)) > 2).long()
    model = nn.Linear(3, 3).to(dtype)
    best = best_thresholds(logits.sigmoid(), target, "f1")
    for thresholds in (PerLabel(best.thresholds), PerLabel([0.3, 1e-9, 0.5]), PerLabel([0.0, 1.0, float("inf")])):
        decide = DecisionModule(model, thresholds)
        decide.model = nn.Identity()
        labels = decide(logits).labels
        expected = Counts.hard(logits, target, threshold=thresholds)
        assert (labels * target).sum(0).tolist() == expected.tp.tolist()
        assert labels.sum(0).tolist() == expected.predicted.tolist()
    assert labels.double().mean(0)[[0, 2]].tolist() == [1.0, 0.0]


def test_thresholds_of_probabilities_are_saved_compiled_and_refused_for_other_outputs():
    wrapped, x = module(LABELS, 3), rows()
    wrapped.set_decision(PerLabel([0.2, 0.5, 0.7]))
    loaded = module(LABELS, 3)
    loaded.load_state_dict(wrapped.state_dict())
    assert all(map(torch.equal, loaded(x), wrapped(x)))
    probabilities = wrapped.model(x).sigmoid()
    assert torch.equal(wrapped(x).labels, (probabilities >= torch.tensor([0.2, 0.5, 0.7])).long())
    wrapped.set_decision(PerLabel([0.2, 0.5]))
    with pytest.raises(ValueError, match="c = 2, because its decision is for 2 labels"):
        wrapped(x)
