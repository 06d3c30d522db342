"""LoRA fine-tuning: where the adapters sit, what the loss sees, that it learns, and that it repeats."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import training_pairs
from accelerate.data_loader import SeedableRandomSampler
from peft import get_peft_model
from safetensors import safe_open
from torch.nn.functional import cross_entropy
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

from editjudge.core import images
from editjudge.qwen.checkpoint import load_model
from editjudge.qwen.processor import load_processor
from editjudge.qwen.prompt import completion
from editjudge.training import data
from editjudge.training import lora as sft
from editjudge.training.settings import TrainJudgeSetting

Prepare = Callable[..., data.Prepare]
Train = Callable[..., sft.Trained]
Samples = list[data.Sample]
SETTING = training_pairs.setting(
    lora_rank=4, lora_alpha=8, learning_rate=3e-3, max_steps=12, batch_size=8, held_out_share=0.25, eval_every=6,
    log_every=3, save_every=300,
)  # fmt: skip


@pytest.fixture(scope="module")
def pictures(png: Callable[..., bytes]) -> dict[str, bytes]:
    return {str(i): png(i) for i in (*range(16), *range(100, 116))} | {"nothing": b"nothing"}


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Sixteen pairs of eight prompts; the winner is the source."""
    made = []
    for i in range(16):
        source, other, first = str(i), str(100 + i), i % 2 == 0
        a, b = (source, other) if first else (other, source)
        winner = "Image A" if first else "Image B"
        made.append(data.Sample(f"k{i}", f"p{i // 2}", "Remove the cup", source, a, b, winner))
    return made


@pytest.fixture
def train(base_dir: Path, pictures: dict[str, bytes]) -> Train:
    """train(samples, folder, setting, checkpoints)"""

    def run(samples: Samples, folder: Path, setting: TrainJudgeSetting, checkpoints: Path | None = None) -> sft.Trained:
        kept = checkpoints or folder.with_name("none kept")
        return sft.train_adapter(base_dir, data.dataset(samples), pictures.__getitem__, folder, setting, kept)

    return run


@pytest.fixture
def prepare(base_dir: Path, pictures: dict[str, bytes]) -> Prepare:
    """prepare(flipped, cache_bytes)"""

    def make(flipped: bool = False, cache_bytes: int = data.CACHE_BYTES) -> data.Prepare:
        return data.Prepare(load_processor(base_dir), pictures.__getitem__, 0, flipped, cache_bytes)

    return make


def adapted_modules(model: torch.nn.Module) -> set[str]:
    peft = get_peft_model(model, sft.lora(SETTING))
    return {
        name.split(".lora_A")[0].removeprefix("base_model.model.")
        for name, _ in peft.named_parameters()
        if "lora_A" in name
    }


def language_linears(model: torch.nn.Module) -> set[str]:
    return {
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name.startswith("model.language_model.")
    }


def test_adapters_of_the_8b_model():
    """Qwen3-VL-8B-Instruct's sizes, on the meta device: 36 layers of 7 linear modules."""
    config = Qwen3VLConfig(
        text_config={
            "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        vision_config={"out_hidden_size": 4096},
    )  # fmt: skip
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(config)
        expected = language_linears(model)
        assert len(expected) == 36 * 7
        assert adapted_modules(model) == expected


def test_loss_on_the_reply_only_and_mm_token_types(base_dir: Path, samples: Samples, prepare: Prepare):
    processor = load_processor(base_dir)
    rows = data.dataset(samples[:3]).with_transform(prepare())
    batch = DataCollatorForVisionLanguageModeling(processor, completion_only_loss=True)([*rows])
    for labels, sample in zip(batch["labels"], samples, strict=False):
        text = processor.tokenizer.decode(labels[labels >= 0])
        assert text == completion(sample.winner) + "<|im_end|>\n"
    assert (batch["mm_token_type_ids"].sum(1) == 3 * 4).all()


@pytest.mark.parametrize("shape", [(64, 64), (100, 75), (31, 200), (3, 9)])
def test_images_are_resized_as_the_processor_resizes_them(
    base_dir: Path, prepare: Prepare, png: Callable[..., bytes], shape: tuple[int, int]
):
    processor = load_processor(base_dir)
    ours = prepare().load(png(1, *shape))
    theirs = processor.image_processor(
        [images.decode(png(1, *shape))], input_data_format="channels_last", return_tensors="pt"
    )
    processor.image_processor.do_resize = False
    mine = processor.image_processor([ours], return_tensors="pt")
    assert torch.equal(mine["image_grid_thw"], theirs["image_grid_thw"])
    torch.testing.assert_close(mine["pixel_values"], theirs["pixel_values"], rtol=0, atol=1e-6)


def test_split_keeps_prompts_together_whatever_the_order(samples: Samples):
    train, held = data.split(data.dataset(samples), 0.25, 1)
    assert held is not None
    assert len(set(held["prompt"])) == 2
    assert not set(train["prompt"]) & set(held["prompt"])
    assert len(train) + len(held) == 16
    again = data.split(data.dataset(samples[::-1]), 0.25, 1)[1]
    assert again is not None
    assert set(again["key"]) == set(held["key"])
    assert data.split(data.dataset(samples), 0.0, 1)[1] is None
    with pytest.raises(ValueError, match="too few"):
        data.split(data.dataset(samples[:2]), 0.5, 1)


def test_augmentation_is_alike_for_all_three_and_depends_on_the_epoch_alone(prepare: Prepare, samples: Samples):
    row = vars(samples[0])
    first, again = (prepare(True) for _ in range(2))
    drawn = []
    for epoch in range(8):
        first.epoch.fill_(epoch)
        drawn.append(first.shown(row))
        assert np.array_equal(drawn[-1][0], drawn[-1][1])  # A is the source here
    assert len({shown[0].tobytes() for shown in drawn}) > 1
    for epoch in reversed(range(8)):
        again.epoch.fill_(epoch)
        for _ in range(2):
            assert all(np.array_equal(x, y) for x, y in zip(drawn[epoch], again.shown(row), strict=True))


def test_decoded_images_are_kept_up_to_so_many_bytes(prepare: Prepare, samples: Samples):
    image = 64 * 64 * 3
    limited = prepare(cache_bytes=4 * image + image // 2)
    for _ in range(2):
        for sample in samples[:4]:
            limited.shown(vars(sample))
    assert list(limited.cache) == ["0", "100", "1", "101"]  # a pair's winner is its source


def test_processes_that_share_an_epoch_out_see_its_batches(base_dir: Path, samples: Samples, prepare: Prepare):
    """Thirteen rows, four a step: the last step has one row and three fillers, on which there is no loss."""
    rows = data.dataset(samples[:13])
    assert data.filled(rows, 1) is rows
    table = data.filled(rows, 4)
    assert table["key"][:13] == rows["key"][:]
    order = data.EpochOrder(len(rows), len(table) - len(rows), seed=5)
    theirs = SeedableRandomSampler(rows, generator=torch.Generator(), data_seed=5)
    for epoch in range(3):
        order.epoch = epoch
        assert list(order) == [*theirs, 13, 14, 15]
    processor = load_processor(base_dir)
    shown = table.with_transform(prepare())
    collate = DataCollatorForVisionLanguageModeling(processor, completion_only_loss=True)
    labels = data.collated(collate, [shown[i] for i in (12, 13, 14, 15)])["labels"]
    assert (labels >= 0).any(1).tolist() == [True, False, False, False]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def test_the_loss_is_that_of_the_reply(
    base_dir: Path, prepare: Prepare, train: Train, samples: Samples, tmp_path: Path
):
    """The trainer's loss of the untrained adapter, against transformers' own of the base over the reply's tokens."""
    settings = replace(SETTING, max_steps=1, eval_every=1)
    trained = train(samples, tmp_path / "adapter", settings)
    processor, model = load_processor(base_dir), load_model(base_dir)
    _, held = data.split(data.dataset(samples), settings.held_out_share, settings.seed)
    assert held is not None
    rows = [*held.with_transform(prepare())]
    batch = DataCollatorForVisionLanguageModeling(processor, completion_only_loss=True)(rows)
    reply = len(processor.tokenizer(completion("Image A") + "<|im_end|>\n").input_ids)
    with torch.no_grad():
        logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
    losses = []
    for tokens, mask, scores in zip(batch["input_ids"], batch["attention_mask"], logits, strict=True):
        end = int(mask.sum())
        losses.append(cross_entropy(scores[end - reply - 1 : end - 1], tokens[end - reply : end]))
    assert trained.history[0]["eval_loss"] == pytest.approx(float(torch.stack(losses).mean()), abs=1e-5)


def test_training_learns_and_repeats(train: Train, samples: Samples, tmp_path: Path):
    table = samples
    one, two = (train(table, tmp_path / name, SETTING) for name in ("one", "two"))
    history = one.history
    assert (history, one.tokens) == (two.history, two.tokens)
    assert {p.name for p in (tmp_path / "one").iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert [row["step"] for row in history] == [0, 3, 6, 9, 12]
    assert [row["eval_accuracy"] is None for row in history] == [False, True, False, True, False]
    assert history[-1]["loss"] < history[1]["loss"]
    assert history[-1]["eval_loss"] < history[0]["eval_loss"]


def test_a_training_that_went_on_ends_as_one_that_was_not_stopped(train: Train, samples: Samples, tmp_path: Path):
    """From the middle of the second epoch, from the end of the first, and past a checkpoint that is half-written."""
    table, folder = samples[:15], tmp_path / "checkpoints"
    settings = replace(SETTING, max_steps=6, batch_size=4, eval_every=2, log_every=1, save_every=1)
    settings = replace(settings, keep_checkpoints=9)
    plain = train(table, tmp_path / "plain", replace(settings, save_every=300))
    saved = train(table, tmp_path / "saved", settings, folder)
    assert (saved.history, saved.tokens) == (plain.history, plain.tokens), "saving changes nothing"
    assert not (folder / "checkpoint-6").exists()
    for step in (5, 3):
        (folder / f"checkpoint-{step + 1}" / "whole").unlink(missing_ok=True)
        again = train(table, tmp_path / f"from{step}", settings, folder)
        assert again.resumed_from == step
        assert (again.history, again.tokens) == (plain.history, plain.tokens)
        assert 0 < again.tokens_now < again.tokens
        for path in (tmp_path / "plain").iterdir():
            assert path.read_bytes() == (tmp_path / f"from{step}" / path.name).read_bytes()
        for later in range(step, 6):
            (folder / f"checkpoint-{later}" / "whole").unlink(missing_ok=True)


def test_the_best_adapter_is_kept_also_by_a_training_that_went_on(train: Train, samples: Samples, tmp_path: Path):
    """The learning rate is ruinous, so the best adapter is the untrained one: its B matrices are zero."""
    settings = replace(SETTING, max_steps=4, eval_every=2, log_every=1, save_every=1, learning_rate=100.0)
    whole = train(samples, tmp_path / "whole", settings, tmp_path / "checkpoints")
    untrained, *later = [row["eval_loss"] for row in whole.history if row["eval_loss"] is not None]
    assert len(later) == 2
    assert untrained < min(later)
    again = train(samples, tmp_path / "again", settings, tmp_path / "checkpoints")
    assert again.resumed_from == 3
    for name in ("whole", "again"):
        assert all(not value.any() for key, value in weights(tmp_path / name).items() if "lora_B" in key)


def test_images_are_bounded_by_the_settings(base_dir: Path, samples: Samples, pictures: dict[str, bytes]):
    processor, row = load_processor(base_dir), vars(samples[0])
    before = data.Prepare(processor, pictures.__getitem__, 0, False).shown(row)[0].shape
    sft.bound_pixels(processor, 0, 32 * 32)
    assert before == (64, 64, 3)
    assert data.Prepare(processor, pictures.__getitem__, 0, False).shown(row)[0].shape == (32, 32, 3)


def test_a_broken_sample_is_named(train: Train, samples: Samples, tmp_path: Path, pictures: dict[str, bytes]):
    broken = [*samples[:-1], replace(samples[-1], key="bad", b="nothing")]
    for faulty, message in (
        (broken, "training sample bad: b: not a PNG"),
        ([replace(sample, winner="A") for sample in samples], "winner must be one of"),  # type: ignore[arg-type]
        ([*samples, samples[0]], "1 of 17 training samples repeat a key"),
    ):
        with pytest.raises(ValueError, match=message):
            train(faulty, tmp_path / "adapter", SETTING)
    assert not (tmp_path / "adapter").exists()


def test_no_held_out_rows_with_bf16_and_checkpointing(train: Train, samples: Samples, tmp_path: Path):
    settings = replace(SETTING, held_out_share=0.0, max_steps=2, log_every=1, bf16=True, gradient_checkpointing=True)
    history = train(samples, tmp_path / "a", settings).history
    assert [row["step"] for row in history] == [1, 2]
    assert history[0]["eval_loss"] is None
    silent = train(samples, tmp_path / "b", replace(settings, log_every=10))
    assert (silent.steps, silent.history) == (2, [])
