"""Loops that others have written, around a model compiled for them."""

import copy

import pytest
import torch
from foreign import installed, load
from steps import OPTIMIZERS, assert_same, batches, eager_step, pair
from torch import nn
from torch.utils.data import DataLoader


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", ["momentum", "adamw"])
def test_a_loop_of_ones_own(kind):
    mine, theirs = pair()
    optimizer, reference = (OPTIMIZERS[kind](m.parameters()) for m in (mine, theirs))
    fast = torch.compile(mine, backend="nimble")
    for x, y in batches(10):
        loss = eager_step(fast, optimizer, x, y)
        torch.testing.assert_close(loss, eager_step(theirs, reference, x, y), rtol=1e-9, atol=1e-9)
    assert_same(mine, theirs)


@pytest.mark.skipif(not installed("lightning"), reason="lightning is not installed")
@pytest.mark.filterwarnings("ignore")  # It has advice about loaders and loggers.
def test_lightning(tmp_path):
    lightning = load("lightning")

    class Lit(lightning.LightningModule):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model
            self.losses: list[float] = []

        def training_step(self, batch, number):
            x, y = batch
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return OPTIMIZERS["momentum"](self.parameters())

    mine, theirs = pair(torch.float32)
    data = [(x[0], y[0]) for x, y in batches(24, torch.float32, size=1)]
    losses = []
    for model in (torch.compile(mine, backend="nimble"), theirs):
        module = Lit(model)
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(module, DataLoader(data, batch_size=6))
        losses.append(module.losses)
    assert len(losses[0]) == 8
    torch.testing.assert_close(*map(torch.tensor, losses), rtol=1e-4, atol=1e-5)
    assert_same(mine, theirs, 1e-4)


def texts():
    torch.manual_seed(2)
    return [
        {"input_ids": torch.randint(0, 50, (12,)), "labels": torch.randint(0, 3, ())}
        for _ in range(16)
    ]


@pytest.mark.skipif(not installed("accelerate"), reason="accelerate is not installed")
@pytest.mark.filterwarnings("ignore")  # It has advice about pinned memory.
def test_trainer_of_transformers(tmp_path):
    transformers = load("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=3,
    )
    first = transformers.BertForSequenceClassification(config)
    models = [first, copy.deepcopy(first)]
    losses = []
    # The Trainer's own option takes the backends that accelerate has a list of.
    models[0].compile(backend="nimble")
    for model in models:
        arguments = transformers.TrainingArguments(
            tmp_path,
            use_cpu=True,
            max_steps=6,
            per_device_train_batch_size=4,
            logging_steps=1,
            learning_rate=1e-3,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, train_dataset=texts())
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert len(losses[0]) == 6
    torch.testing.assert_close(*map(torch.tensor, losses), rtol=1e-3, atol=1e-3)
    assert_same(*models, 1e-3)
