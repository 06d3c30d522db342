"""LoRA fine-tuning: where the adapters sit, what the loss sees, that it learns, and that it repeats."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import training_pairs
from accelerate.data_loader import SeedableRandomSampler
from hypothesis import assume, example, given
from hypothesis import strategies as st
from judging import compare
from peft import get_peft_model
from safetensors import safe_open
from torch.nn.functional import cross_entropy
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

from editjudge.core import images
from editjudge.core.errors import UserError
from editjudge.judges.prompt import completion
from editjudge.judges.protocol import Question
from editjudge.judges.styles import style
from editjudge.models.chat.checkpoint import load_model
from editjudge.models.chat.local_model import LocalModel
from editjudge.models.chat.processor import load_processor
from editjudge.models.endpoint.pictures import PixelLimits
from editjudge.models.weights.merge import merge_adapter
from editjudge.training import data, trainer
from editjudge.training import lora as sft
from editjudge.training.settings import TrainJudgeSetting

BASE = Path(__file__).parents[2] / "models/tiny_base"
Prepare = Callable[..., data.Prepare]
Train = Callable[..., sft.Trained]
Samples = list[data.Sample]
SETTING = training_pairs.setting(
    lora_rank=4, lora_alpha=8, learning_rate=3e-3, max_steps=12, global_batch=8, batch_size=8, held_out_share=0.25,
    test_share=0.0, eval_every=6, log_every=3, save_every=300,
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


def test_each_prompt_is_held_out_by_its_own_name(samples: Samples):
    """Whatever the order and the number of the others: 2,000 prompts of two pairs, and 1,000 of these."""
    many = [replace(samples[0], key=f"k{i}", prompt=f"p{i // 2}") for i in range(4000)]
    parts = data.split(data.dataset(many), 0.1, 0.2, 1)
    prompts = [set(part["prompt"]) for part in parts]
    assert sum(map(len, prompts)) == 2000
    assert sum(map(len, parts)) == 4000
    assert [len(part) / 2000 for part in prompts] == pytest.approx([0.7, 0.2, 0.1], abs=0.02)
    fewer = data.split(data.dataset(many[1999::-1]), 0.1, 0.2, 1)
    for part, prompt in zip(fewer, prompts, strict=True):
        assert set(part["prompt"]) == prompt & {f"p{i}" for i in range(1000)}
    assert list(map(len, data.split(data.dataset(many[:9]), 0.0, 0.0, 1))) == [9, 0, 0]
    with pytest.raises(ValueError, match="too few"):
        data.split(data.dataset(many[:2]), 0.5, 0.5, 1)


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
    _, held, _ = data.split(data.dataset(samples), 0.0, settings.held_out_share, settings.seed)
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
    processor = {"chat_template.jinja", "processor_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert {p.name for p in (tmp_path / "one").iterdir()} - processor == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert [row["step"] for row in history] == [0, 3, 6, 9, 12]
    assert [row["eval_accuracy"] is None for row in history] == [False, True, False, True, False]
    assert history[-1]["loss"] < history[1]["loss"]
    assert history[-1]["eval_loss"] < history[0]["eval_loss"]


def test_a_training_that_went_on_ends_as_one_that_was_not_stopped(train: Train, samples: Samples, tmp_path: Path):
    """From the middle of the second epoch, from the end of the first, and past a checkpoint that is half-written."""
    table, folder = samples[:15], tmp_path / "checkpoints"
    settings = replace(SETTING, max_steps=6, global_batch=4, eval_every=2, log_every=1, save_every=1)
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
    for most, shape in ((0, (64, 64, 3)), (32 * 32, (32, 32, 3))):
        processor = sft.processor_of(base_dir, replace(SETTING, min_pixels=0, max_pixels=most))
        assert data.Prepare(processor, pictures.__getitem__, 0, False).shown(vars(samples[0]))[0].shape == shape


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


def test_augmentation_is_off_unless_it_is_set(base_dir: Path, samples: Samples, pictures: dict[str, bytes]):
    parts = data.split(data.dataset(samples), 0.0, 0.25, 42)
    for augmentation, views in (("none", 1), ("mirror", 4)):
        setting = replace(SETTING, augmentation=augmentation, workers=3)
        nowhere = Path("none kept")
        made, shown = sft.assemble(base_dir, parts, pictures.__getitem__, setting, nowhere, "cpu", None, print)
        prepare = next(c for c in made.callback_handler.callbacks if isinstance(c, trainer.Epochs)).prepare
        seen = set()
        for epoch in range(24):
            prepare.epoch.fill_(epoch)
            seen.add(prepare(parts[0][:1])["images"][0][0].tobytes())
        assert len(seen) == views
        assert len({shown(parts[1][:1])["images"][0][0].tobytes() for _ in range(3)}) == 1


@pytest.mark.parametrize(("workers", "processes"), [(0, 1), (3, 1), (4, 8)])
def test_all_processes_of_a_machine_keep_a_gibibyte_of_decoded_images_together(
    base_dir: Path, samples: Samples, pictures: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, workers: int,
    processes: int,
):  # fmt: skip
    """Each of the training's processes has its own of the rows to train on and of those held out, and so has each of
    its workers: a loader's workers live as long as the other loader's."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    parts = data.split(data.dataset(samples), 0.0, 0.25, 42)
    rows = (parts, pictures.__getitem__, replace(SETTING, workers=workers), Path("none kept"), "cpu", None, print)
    made, shown = sft.assemble(base_dir, *rows)
    prepare = next(c for c in made.callback_handler.callbacks if isinstance(c, trainer.Epochs)).prepare
    held = processes * (1 + workers) * (prepare.free + shown.free)
    assert 0.99 * data.CACHE_BYTES < held <= data.CACHE_BYTES == 2**30


def test_the_accuracy_is_that_of_greedy_decoding(samples: Samples, tmp_path: Path, png: Callable[..., bytes]):
    """The template puts words behind the reply's end that the base would never say, and decoding never reaches."""
    base = tmp_path / "base"
    shutil.copytree(BASE, base)
    template = (base / "chat_template.jinja").read_text()
    behind = "<|im_end|>{{ 'Remove the cup' if message.role == 'assistant' }}"
    (base / "chat_template.jinja").write_text(template.replace("<|im_end|>", behind))
    rng = np.random.default_rng(0)
    pictures = {sample.source: png(n, 96, 96) for n, sample in enumerate(samples)}
    noise = {
        name: images.decode(data).astype(int) + rng.integers(-9, 9, (96, 96, 3)) for name, data in pictures.items()
    }
    pictures |= {f"1{int(name):02}": images.encode_png(a.clip(0, 255).astype(np.uint8)) for name, a in noise.items()}
    parts = data.split(data.dataset(samples), 0.0, 0.25, 42)
    rows = (base, parts, pictures.__getitem__, SETTING, tmp_path / "none", "cpu", None, print)
    made, shown = sft.assemble(*rows)
    made.model.eval()
    judge = LocalModel(load_model(BASE), load_processor(BASE), style("pvc"))
    asked = [Question(s.key, s.instruction, *(pictures[name] for name in (s.source, s.a, s.b))) for s in samples]
    right = [answer.winner == s.winner for answer, s in zip(compare(judge, asked), samples, strict=True)]
    assert 0 < sum(right) < len(right)
    assert made.right(data.dataset(samples).with_transform(shown)) == right


def test_a_test_set_apart_from_the_rows_that_choose(train: Train, samples: Samples, tmp_path: Path):
    settings = replace(SETTING, test_share=0.25, held_out_share=0.1)
    trained = train(samples, tmp_path / "adapter", settings)
    assert trained.rows == (8, 4, 4)
    assert len(trained.tested) == 4
    assert not any(row[1] for row in trained.tested), "the base is untrained, and says nothing that can be read"
    ruined = train(samples, tmp_path / "ruined", replace(settings, max_steps=2, eval_every=1, learning_rate=100.0))
    assert [row[1:] for row in ruined.tested] == [(False, False)] * 4
    assert train(samples, tmp_path / "none", replace(SETTING, max_steps=1)).tested == []


def test_the_bounds_on_pixels_and_the_base_go_with_the_adapter(
    base_dir: Path, samples: Samples, pictures: dict[str, bytes], tmp_path: Path, png: Callable[..., bytes]
):
    """Trained at 1 to 3 patches an image, merged into a base in the hub's cache whose processor is published Qwen's."""
    base = tmp_path / "models--own--tiny/snapshots" / ("a" * 40)
    shutil.copytree(base_dir, base)
    both = json.loads((base / "processor_config.json").read_text())
    (base / "preprocessor_config.json").write_text(json.dumps(both["image_processor"] | {"max_pixels": 9}))
    settings = replace(SETTING, max_steps=1, held_out_share=0.0, min_pixels=1024, max_pixels=3 * 1024)
    made, judge = tmp_path / "adapter", tmp_path / "judge"
    sft.train_adapter(base, data.dataset(samples), pictures.__getitem__, made, settings, tmp_path / "none")
    config = json.loads((made / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("own/tiny", "a" * 40)
    merge_adapter(base, made, judge)
    assert json.loads((judge / "merge.json").read_text())["base"]["name"] == f"own/tiny@{'a' * 40}"
    for file in ("processor_config.json", "preprocessor_config.json"):
        content = json.loads((judge / file).read_text())
        size = content.get("image_processor", content)["size"]
        assert size == {"shortest_edge": 1024, "longest_edge": 3 * 1024}, file
    assert "max_pixels" not in content
    for height, width in ((64, 64), (31, 200), (3, 9), (300, 100)):
        image = png(1, height, width)
        trained = data.Prepare(sft.processor_of(base, settings), dict, 0, False).load(image).shape[:2]
        for folder in (made, judge):
            show = load_processor(folder).image_processor
            grid = show([images.decode(image)], input_data_format="channels_last", return_tensors="pt")
            assert tuple(16 * side for side in grid["image_grid_thw"][0, 1:].tolist()) == trained, folder


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 300_000), st.integers(10_000, 4_000_000))
@example(1300, 900, 262_144, 1_310_720)
def test_an_image_is_resized_once_and_alike_everywhere(width: int, height: int, least: int, most: int):
    """What a client sends, the server's processor shows as training did."""
    assume(max(width, height) <= 200 * min(width, height))
    assume(most >= 4 * least)

    def processor(width: int, height: int) -> tuple[int, int]:
        return smart_resize(height, width, factor=32, min_pixels=least, max_pixels=most)[::-1]

    trained = images.shown_size(width, height, least, most)
    assert trained == processor(width, height)
    sent = PixelLimits(least, most).size(width, height)
    assume(max(sent) <= 200 * min(sent))
    assert processor(*sent) == trained
    assert sent in ((width, height), trained)


def test_attention_and_kernels_that_cannot_run_here_are_named(train: Train, samples: Samples, base_dir: Path):
    assert load_model(base_dir, attention="eager").config._attn_implementation == "eager"
    for change, message in (
        ({"attn_implementation": "flash_attention_2"}, r"attn_implementation: flash_attention_2: .*[Ff]lash"),
        ({"liger": True}, "train_judge.liger: its kernels need a GPU"),
    ):
        with pytest.raises(UserError, match=message):
            train(samples, Path("none"), replace(SETTING, **change))


@pytest.mark.parametrize(
    ("processes", "most", "found"),
    [(1, 16, (16, 1)), (1, 2, (2, 8)), (2, 16, (8, 1)), (8, 2, (2, 1)), (4, 3, (2, 2)), (16, 2, (1, 1))],
)
def test_the_same_pairs_a_step_for_any_number_of_processes(processes: int, most: int, found: tuple[int, int]):
    assert replace(SETTING, global_batch=16, batch_size=most).shares(processes) == found


@pytest.mark.parametrize("processes", [3, 32])
def test_pairs_that_cannot_be_shared_out_are_an_error_that_says_what_to_do(processes: int):
    with pytest.raises(UserError, match=f"16 pairs cannot be shared out evenly over {processes} processes: give a mul"):
        replace(SETTING, global_batch=16, batch_size=2).shares(processes)
