"""Hugging Face Trainer: docs/frameworks.md."""

import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from metricfit import Counts, MetricLoss, metrics
from metricfit.losses.accumulation import backward_in_chunks
from metricfit.metrics import Accumulator, BinnedScores

transformers = pytest.importorskip("transformers")


def data(n=128):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 20, (n, 8), generator=generator)
    return ids, (ids[:, 0] < 6).long()


def network():
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=8,
        num_labels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(config)


def loss_function(scale=1.0):
    loss = MetricLoss("f1")

    def compute_loss(outputs, labels, num_items_in_batch=None):
        return loss(outputs.logits, labels) / scale

    return compute_loss


def trained(model, folder, ids, y, compute_loss, **settings):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **settings,
    )
    rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, y, strict=True)]
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows, compute_loss_func=compute_loss)
    trainer.train()
    return trainer


def assert_same_weights(model, expected):
    for (name, ours), theirs in zip(model.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_trainer_learns(tmp_path):
    ids, y = data()
    model = network()
    settings = {"per_device_train_batch_size": 32, "num_train_epochs": 12, "learning_rate": 1e-2}
    trained(model, tmp_path, ids, y, loss_function(), **settings)
    model.eval()
    with torch.no_grad():
        assert metrics.f1(Counts.hard(model(ids).logits, y)).item() > 0.8


def test_training_is_that_of_a_plain_loop(tmp_path):
    ids, y = data()
    model, expected, loss = network(), network(), MetricLoss("f1")
    settings = {"per_device_train_batch_size": len(y), "num_train_epochs": 4, "learning_rate": 0.1, "optim": "sgd"}
    trained(model, tmp_path, ids, y, loss_function(), **settings)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        loss(expected(ids).logits, y).backward()
        optimizer.step()
    assert_same_weights(model, expected)


def test_accumulation_adds_up_the_losses_of_the_parts_undivided(tmp_path):
    ids, y = data(64)
    once = {
        "gradient_accumulation_steps": 4,
        "per_device_train_batch_size": 16,
        "num_train_epochs": 1,
        "learning_rate": 0.1,
        "optim": "sgd",
        "train_sampling_strategy": "sequential",
    }
    added, whole, loss = network(), network(), MetricLoss("f1")
    trained(added, tmp_path, ids, y, loss_function(), **once)
    divided = network()
    trained(divided, tmp_path, ids, y, loss_function(scale=4), **once)
    for model, scale in ((added, 1), (divided, 4)):
        expected = network()
        for part, target in zip(ids.split(16), y.split(16), strict=True):
            (loss(expected(part).logits, target) / scale).backward()
        torch.optim.SGD(expected.parameters(), lr=0.1).step()
        assert_same_weights(model, expected)
    loss(whole(ids).logits, y).backward()
    torch.optim.SGD(whole.parameters(), lr=0.1).step()
    with pytest.raises(AssertionError):
        assert_same_weights(divided, whole)


def test_batch_eval_metrics_measure_a_stream(tmp_path):
    ids, y = data(50)
    model, quality, scores, calls = network(), Accumulator("f1"), BinnedScores(limit=0.02), []

    def compute_metrics(prediction, compute_result):
        calls.append(len(prediction.label_ids))
        logits, target = map(torch.as_tensor, (prediction.predictions, prediction.label_ids))
        quality.update(logits, target)
        scores.update(logits, target)
        if not compute_result:
            return {}
        measured = {"f1": quality.compute().item(), "auroc": scores.auroc().item()}
        quality.reset()
        scores.reset()
        return measured

    settings = {"per_device_eval_batch_size": 16, "batch_eval_metrics": True, "disable_tqdm": True}
    arguments = transformers.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, **settings)
    rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, y, strict=True)]
    trainer = transformers.Trainer(
        model, arguments, eval_dataset=rows, compute_loss_func=loss_function(), compute_metrics=compute_metrics
    )
    with torch.no_grad():
        logits = model.eval()(ids).logits.squeeze(1)
    for _ in range(2):  # a second evaluation starts from nothing
        measured = trainer.evaluate()
        assert measured["eval_f1"] == pytest.approx(f1_score(y, logits >= 0))
        assert measured["eval_auroc"] == pytest.approx(roc_auc_score(y, logits), abs=5e-3)
    assert calls == [16, 16, 16, 2] * 2


def test_chunks_give_the_large_batch():
    ids, y = data(64)
    model, expected, loss = network(), network(), MetricLoss("f1")
    loss(expected(ids).logits, y).backward()
    chunks = list(zip(ids.split(16), y.split(16), strict=True))
    backward_in_chunks(lambda part: model(part).logits, loss, chunks)
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
