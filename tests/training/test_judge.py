"""The judge's lesson and its data: where the adapters sit, what the loss sees, how rows are shown and split."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lessons
import numpy as np
import pytest
import torch
from accelerate.data_loader import SeedableRandomSampler
from datasets import Dataset
from hypothesis import assume, example, given
from hypothesis import strategies as st
from peft import get_peft_model
from pictures import png
from tiny_base import compare
from torch.nn.functional import cross_entropy
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

from editjudge.core import images
from editjudge.judges import opening
from editjudge.judges.asking import ChatJudge
from editjudge.judges.protocol import Question
from editjudge.judges.styles import completion, style
from editjudge.models.chat.checkpoint import decode, load_model, load_processor, sized
from editjudge.models.chat.local_model import load
from editjudge.models.endpoint.pictures import PixelLimits
from editjudge.models.weights.merge import merge_adapter
from editjudge.training import lesson, trainer
from editjudge.training.samples import Sample

BASE = Path(__file__).parents[2] / "models/tiny_base"
Prepare = Callable[..., lesson.Prepare]
Train = Callable[..., trainer.Trained]
Pairs = list[Sample]
LESSON = lessons.judge()


@pytest.fixture
def prepare(base_dir: Path, pictures: dict[str, bytes]) -> Prepare:
    """prepare(flipped, cache_bytes)"""

    def make(flipped: bool = False, cache_bytes: int = lesson.CACHE_BYTES) -> lesson.Prepare:
        return lesson.Prepare(load_processor(base_dir), LESSON.columns, pictures, 0, flipped, cache_bytes)

    return make


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
        linears = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
        expected = {name for name in linears if name.startswith("model.language_model.")}
        assert len(expected) == 36 * 7
        adapted = [name for name, _ in get_peft_model(model, lesson.lora(LESSON.setting)).named_parameters()]
    found = {name.split(".lora_A")[0] for name in adapted if "lora_A" in name}
    assert found == {f"base_model.model.{name}" for name in expected}


def test_loss_on_the_reply_only_and_mm_token_types(base_dir: Path, pairs: Pairs, prepare: Prepare):
    processor, several = load_processor(base_dir), replace(pairs[0], more=("3", "104"))
    rows = lesson.dataset([several, *pairs[1:3]]).with_transform(prepare())
    batch = DataCollatorForVisionLanguageModeling(processor, completion_only_loss=True)([*rows])
    for labels, sample in zip(batch["labels"], pairs, strict=False):
        text = processor.tokenizer.decode(labels[labels >= 0])
        assert text == completion(sample.winner) + "<|im_end|>\n"
    assert batch["mm_token_type_ids"].sum(1).tolist() == [5 * 4, 3 * 4, 3 * 4]


@pytest.mark.parametrize("shape", [(64, 64), (100, 75), (31, 200), (3, 9)])
def test_images_are_resized_as_the_processor_resizes_them(base_dir: Path, shape: tuple[int, int]):
    processor = load_processor(base_dir)
    ours = sized(processor, decode(png(1, *shape)))
    shown = [images.decode(png(1, *shape))]
    theirs = processor.image_processor(shown, input_data_format="channels_last", return_tensors="pt")
    processor.image_processor.do_resize = False
    mine = processor.image_processor([ours], return_tensors="pt")
    assert torch.equal(mine["image_grid_thw"], theirs["image_grid_thw"])
    torch.testing.assert_close(mine["pixel_values"], theirs["pixel_values"], rtol=0, atol=1e-6)


def test_each_prompt_is_held_out_by_its_own_name(pairs: Pairs):
    """Whatever the order and the number of the others: 2,000 prompts of two pairs, and 1,000 of these."""
    many = [replace(pairs[0], key=f"k{i}", prompt=f"p{i // 2}") for i in range(4000)]
    parts = lesson.split(lesson.dataset(many), 0.1, 0.2, 1)
    prompts = [set(part["prompt"]) for part in parts]
    assert sum(map(len, prompts)) == 2000
    assert sum(map(len, parts)) == 4000
    assert [len(part) / 2000 for part in prompts] == pytest.approx([0.7, 0.2, 0.1], abs=0.02)
    fewer = lesson.split(lesson.dataset(many[1999::-1]), 0.1, 0.2, 1)
    for part, prompt in zip(fewer, prompts, strict=True):
        assert set(part["prompt"]) == prompt & {f"p{i}" for i in range(1000)}
    assert list(map(len, lesson.split(lesson.dataset(many[:9]), 0.0, 0.0, 1))) == [9, 0, 0]
    with pytest.raises(ValueError, match=r"^1 prompts are too few to hold out 0\.6 and 0\.4"):
        lesson.split(lesson.dataset(many[:2]), 0.4, 0.6, 1)


def test_augmentation_is_alike_for_all_three_and_depends_on_the_epoch_alone(prepare: Prepare, pairs: Pairs):
    row = vars(pairs[0])
    first, again = (prepare(True) for _ in range(2))
    drawn = []
    for epoch in range(8):
        first.epoch.fill_(epoch)
        drawn.append(first.shown(row))
        assert np.array_equal(drawn[-1][0], drawn[-1][1])  # A is the source here
    for plain, *seen in zip(prepare().shown(row), *drawn, strict=True):
        mirrored = {plain[::down, ::across].tobytes() for down in (1, -1) for across in (1, -1)}
        assert 1 < len({image.tobytes() for image in seen} & mirrored) == len({image.tobytes() for image in seen})
    for epoch in reversed(range(8)):
        again.epoch.fill_(epoch)
        for _ in range(2):
            assert all(np.array_equal(x, y) for x, y in zip(drawn[epoch], again.shown(row), strict=True))


def test_decoded_images_are_kept_up_to_so_many_bytes(prepare: Prepare, pairs: Pairs):
    image = 64 * 64 * 3
    limited = prepare(cache_bytes=4 * image + image // 2)
    for _ in range(2):
        for sample in pairs[:4]:
            limited.shown(vars(sample))
    assert list(limited.cache) == ["0", "100", "1", "101"]  # a pair's winner is its source


def test_processes_that_share_an_epoch_out_see_its_batches(base_dir: Path, pairs: Pairs, prepare: Prepare):
    """Thirteen rows, four a step: the last step has one row and three fillers, on which there is no loss."""
    rows = lesson.dataset(pairs[:13])
    assert lesson.filled(rows, 1) is rows
    table = lesson.filled(rows, 4)
    assert table["key"][:13] == rows["key"][:]
    order = lesson.EpochOrder(prepare(), len(rows), len(table) - len(rows))
    theirs = SeedableRandomSampler(rows, generator=torch.Generator(), data_seed=0)
    for epoch in range(3):
        order.prepare.epoch.fill_(epoch)
        assert list(order) == [*theirs, 13, 14, 15]
    processor = load_processor(base_dir)
    shown = table.with_transform(prepare())
    collate = DataCollatorForVisionLanguageModeling(processor, completion_only_loss=True)
    labels = lesson.collated(collate, [shown[i] for i in (12, 13, 14, 15)])["labels"]
    assert (labels >= 0).any(1).tolist() == [True, False, False, False]


def test_what_fillers_are_made_of_moves_no_weight(train, pairs, tmp_path, monkeypatch):
    """Dropout draws by a batch's shape, so a filler's reply must not depend on its row; the draws after it would."""
    real, weights = lesson.filled, []
    for winner in ("Image A", "Tie"):

        def filled(rows: Dataset, _multiple: int, winner: str = winner) -> Dataset:
            return real(rows, 4).map(lambda row: row | {"winner": winner} if row["filler"] else row)

        monkeypatch.setattr(lesson, "filled", filled)
        setting = {"max_steps": -1, "epochs": 2.0, "batch_size": 1, "lora_dropout": 0.5, "held_out_share": 0.0}
        assert train(lessons.judge(**setting), pairs[:13], tmp_path / winner).steps == 8
        weights.append((tmp_path / winner / "adapter_model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_the_loss_is_that_of_the_reply(base_dir: Path, prepare: Prepare, train: Train, pairs: Pairs, tmp_path: Path):
    """The trainer's loss of the untrained adapter, against transformers' own of the base over the reply's tokens."""
    trained = train(lessons.judge(max_steps=1, eval_every=1, log_every=1), pairs, tmp_path / "adapter")
    processor, model = load_processor(base_dir), load_model(base_dir)
    _, held, _ = lesson.split(lesson.dataset(pairs), 0.0, 0.25, LESSON.setting.seed)
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


def test_a_broken_sample_is_named(train: Train, pairs: Pairs, tmp_path: Path):
    broken = [*pairs[:-1], replace(pairs[-1], key="bad", b="nothing")]
    for faulty, message in (
        (broken, "training sample bad: b: not a PNG"),
        ([replace(sample, winner="A") for sample in pairs], "winner must be one of"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=message):
            train(LESSON, faulty, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_the_accuracy_is_that_of_greedy_decoding(pairs: Pairs, tmp_path: Path):
    """The template puts words behind the reply's end that the base would never say, and decoding never reaches."""
    base = tmp_path / "base"
    shutil.copytree(BASE, base)
    template = (base / "chat_template.jinja").read_text()
    behind = "<|im_end|>{{ 'Remove the cup' if message.role == 'assistant' }}"
    (base / "chat_template.jinja").write_text(template.replace("<|im_end|>", behind))
    rng = np.random.default_rng(0)
    pictures = {sample.source: png(n, 96, 96) for n, sample in enumerate(pairs)}
    for name, data in list(pictures.items()):
        noisy = images.decode(data).astype(int) + rng.integers(-9, 9, (96, 96, 3))
        pictures[f"1{int(name):02}"] = images.encode_png(noisy.clip(0, 255).astype(np.uint8))
    parts = lesson.split(lesson.dataset(pairs), 0.0, 0.25, 42)
    made = trainer.Trainer(LESSON, parts, base, pictures, tmp_path / "none")
    asked = [Question(s.key, s.instruction, *(pictures[name] for name in (s.source, s.a, s.b))) for s in pairs]
    said = compare(load(BASE), style("pvc"), asked)
    right = [answer.winner == s.winner for answer, s in zip(said, pairs, strict=True)]
    assert 0 < sum(right) < len(right)
    rows = lesson.dataset(pairs).with_transform(made.shown)
    assert made.lesson.right(made.answers(rows), rows) == right


def test_a_test_set_apart_from_the_rows_that_choose(train: Train, pairs: Pairs, tmp_path: Path):
    small = {"test_share": 0.25, "held_out_share": 0.1}
    trained = train(lessons.judge(**small), pairs, tmp_path / "adapter")
    assert trained.rows == [8, 4, 4]
    assert len(trained.tested) == 4
    assert trained.answers[0] == [[0.0]] * 4, "the base is untrained, and says nothing that can be read"
    ruined = lessons.judge(**small, max_steps=2, eval_every=1, learning_rate=100.0)
    assert train(ruined, pairs, tmp_path / "ruined").answers == [[[0.0]] * 4] * 2
    assert train(lessons.judge(max_steps=1), pairs, tmp_path / "none").answers == []


def test_the_question_the_bounds_on_pixels_and_the_base_go_with_the_adapter(base_dir, pairs, pictures, tmp_path):
    """Trained at 1 to 3 patches an image, merged into a base in the hub's cache whose processor is published Qwen's."""
    base = tmp_path / "models--own--tiny/snapshots" / ("a" * 40)
    shutil.copytree(base_dir, base)
    both = json.loads((base / "processor_config.json").read_text())
    (base / "preprocessor_config.json").write_text(json.dumps(both["image_processor"] | {"max_pixels": 9}))
    taught = lessons.judge(max_steps=2, held_out_share=0.0, min_pixels=1024, max_pixels=3 * 1024, prompt="full")
    made, judge = tmp_path / "adapter", tmp_path / "judge"
    trainer.train(taught, pairs, base, pictures, made, tmp_path / "none")
    processor = {"chat_template.jinja", "processor_config.json", "tokenizer.json", "tokenizer_config.json"}
    adapter = {"adapter_config.json", "adapter_model.safetensors", "judge_prompt.yaml"}
    assert {file.name for file in made.iterdir()} - processor == adapter
    config = json.loads((made / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("own/tiny", "a" * 40)
    merge_adapter(base, made, judge)
    for model in ({"model": str(judge)}, {"model": str(base), "adapter": str(made)}):
        given = {"backend": "transformers", "rule": "probability"} | model
        opened = opening.open_judge("judges.j", given, tmp_path / "store")
        assert isinstance(opened, ChatJudge)
        assert style(opened.form, task="sref") == style("full", task="sref"), "asked as it was trained"
    assert json.loads((judge / "merge.json").read_text())["base"]["name"] == f"own/tiny@{'a' * 40}"
    for file in ("processor_config.json", "preprocessor_config.json"):
        content = json.loads((judge / file).read_text())
        size = content.get("image_processor", content)["size"]
        assert size == {"shortest_edge": 1024, "longest_edge": 3 * 1024}, file
    assert "max_pixels" not in content
    for height, width in ((64, 64), (31, 200), (3, 9), (300, 100)):
        image = png(1, height, width)
        trained = sized(lesson.processor_of(base, taught.setting), decode(image)).shape[:2]
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
