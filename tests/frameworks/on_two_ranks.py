"""Run by torchrun: both ranks train on unequal parts, and rank 0 compares with one process on the whole."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist

RANK = int(os.environ.get("RANK", 0))


def with_lightning():
    import test_lightning as single

    class Part(single.Classifier):
        def training_step(self, batch, at):
            part = slice(0, 30) if RANK == 0 else slice(30, None)
            return super().training_step([given[part] for given in batch], at)

        def on_validation_epoch_end(self):
            assert sum(self.counts).sum_over_ranks().n.sum() == 2 * 600

    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(600, generator=generator) < 0.15).long()
    x = torch.randn(600, 4, generator=generator) + 1.5 * y[:, None]
    module = Part()
    runner = single.trainer(epochs=3, strategy="ddp", devices=2, use_distributed_sampler=False, num_sanity_val_steps=0)
    runner.fit(module, single.loader(x, y, 100), single.loader(x, y, 128))
    expected = single.by_hand(x, y, batch_size=100, epochs=3)
    for ours, theirs in zip(module.network.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def with_torchmetrics():
    """Counts of both ranks add up, also if one of them has seen no batch."""
    import warnings

    from metricfit.integrations import as_torchmetrics
    from metricfit.metrics import Accumulator

    dist.init_process_group("gloo")
    warnings.filterwarnings("ignore", "The ``compute`` method", UserWarning)
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    target = torch.arange(50) % 3
    for name in ("f1", "weighted_kappa(power=2)"):
        alone = Accumulator(name)
        alone.update(logits, target)
        for parts in ([slice(0, 30), slice(30, None)], [slice(None), None]):
            metric = as_torchmetrics(Accumulator(name))
            if (rows := parts[RANK]) is not None:
                metric.update(logits[rows], target[rows])
            for _ in range(2):  # the ranks' own counts are back after the first
                assert abs(metric.compute() - alone.compute()) < 1e-12
                metric._computed = None


def with_hf_trainer():
    import test_hf_trainer as single

    from metricfit import MetricLoss

    ids, y = single.data(64)
    first = single.network()
    whole = single.network()
    MetricLoss("f1")(whole(ids).logits, y).backward()
    settings = {"per_device_train_batch_size": 32, "num_train_epochs": 1, "learning_rate": 0.1, "optim": "sgd"}
    for average, factor in ((False, 1), (True, 2)):
        model = single.network()
        with tempfile.TemporaryDirectory() as folder:
            single.trained(
                model,
                folder,
                ids,
                y,
                single.loss_function(),
                ddp_backend="gloo",
                ddp_find_unused_parameters=False,
                average_tokens_across_devices=average,
                **settings,
            )
        for ours, theirs, start in zip(model.parameters(), whole.parameters(), first.parameters(), strict=True):
            expected = start - 0.1 * factor * theirs.grad
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    {"lightning": with_lightning, "hf": with_hf_trainer, "torchmetrics": with_torchmetrics}[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
    print("the same")
