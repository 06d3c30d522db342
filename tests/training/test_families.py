"""A model is what transformers can load: each family is asked, trained, merged, served and made a scorer alike."""

import copy
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import lessons
import numpy as np
import pytest
import tiny_families
import torch
import transformers
from cases import each_row
from peft import LoraConfig, PeftModel, get_peft_model
from pictures import png
from pixel_scorer import Served
from ruamel.yaml import YAML
from safetensors.torch import load_file, save_file
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.core.settings import read
from editjudge.engine.resume import RecordCache
from editjudge.judges.protocol import Edit, Score
from editjudge.judges.scorers.checkpoint import CheckpointScorer
from editjudge.judges.settings import CheckpointSetting, JudgeSetting, RaterSetting, ScorerEntry
from editjudge.judges.styles import style
from editjudge.models.chat import checkpoint, models
from editjudge.models.chat.checkpoint import PatchProduct, bound, decode, load_model, load_processor, sized
from editjudge.models.chat.forms import Inquiry, InquiryForm, RawReply
from editjudge.models.chat.local_model import Chat, ChatModel, Reply, load
from editjudge.models.chat.settings import LocalSetting, ServedSetting
from editjudge.models.endpoint.spending import Account
from editjudge.models.families import qwen_vl
from editjudge.models.families.whole import WholeChats
from editjudge.models.serve import launch, server
from editjudge.models.serve.launch import Serving
from editjudge.models.weights.merge import merge_adapter
from editjudge.training import trainer
from editjudge.training.lesson import lora, processor_of
from editjudge.training.samples import Sample
from editjudge.training.settings import SingleEdits, TrainJudgeSetting
from tools import settings

ROOT = Path(__file__).parents[2]
READY = "configs/judges.yaml"
PROFILES = [None, *sorted(file.stem for file in (ROOT / "profiles").iterdir()), READY]
PUBLISHED = {  # bounds on pixels in the repositories of two families
    "qwen3_vl": {"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}},
    "qwen2_5_vl": {"min_pixels": 3_136, "max_pixels": 12_845_056},
}
SIDES = ((512, 512), (1024, 1024), (1600, 1200), (300, 40), (40, 96))
BRIEF = {"max_steps": 1, "held_out_share": 0.0, "min_pixels": 0, "max_pixels": 0}


@pytest.fixture(scope="module", params=tiny_families.FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_families.save(request.param, tmp_path_factory.mktemp("families") / request.param)


def replies(model: ChatModel, pictures: dict[str, bytes], alone: bool = False) -> list[Reply]:
    """To a question in both orders, one over another source, and one without images."""
    asked = [("Remove the cup", "012"), ("Remove the cup", "021"), ("Make the whole picture look old", "312"), ("", "")]
    why = [{"role": "user", "content": [{"type": "text", "text": "Why"}]}]
    chats = [
        Chat(model.render(style("pvc").messages(words) if words else why), tuple(pictures[name] for name in shown), 5)
        for words, shown in asked
    ]
    pixels = {image: images.decode(image) for chat in chats for image in chat.images}
    assert [model.chats.length(chat, pixels) for chat in chats] == [r.tokens_in for r in model.reply(chats, pixels)]
    return [model.reply([chat], pixels)[0] for chat in chats] if alone else model.reply(chats, pixels)


def assert_same(some: list[Reply], others: list[Reply]) -> None:
    for one, other in zip(some, others, strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


def test_chats_in_a_batch_are_answered_as_alone_and_as_whole(family: Path, pictures: dict[str, bytes]) -> None:
    model = load(family)
    found = replies(model, pictures)
    assert_same(found, replies(model, pictures, alone=True))
    assert abs(found[0].logprobs - found[1].logprobs).max() > 1e-3, "the order of the edits is seen"
    for reply in found:
        assert b"".join(map(model.piece, reply.tokens)).decode(errors="replace") == model.processor.decode(reply.tokens)
    assert isinstance(model.chats, qwen_vl.SharedBeginnings) == (family.name in qwen_vl.KINDS)
    model.chats = WholeChats(model.model, model.processor)
    assert_same(found, replies(model, pictures))


def test_patches_are_embedded_by_a_product_under_the_same_names(family, pictures, monkeypatch) -> None:
    """Where the tower is large: a tiny one, such as the embedded base's, gives the same bytes as ever."""
    plain = load(family)
    monkeypatch.setattr(checkpoint, "LARGE", 0)
    product = load(family)
    kinds = [{type(part) for part in each.model.modules()} for each in (plain, product)]
    assert [PatchProduct in each for each in kinds] == [False, family.name.startswith(("qwen", "glm"))]
    assert_same(replies(plain, pictures), replies(product, pictures))
    before, after = plain.model.state_dict(), product.model.state_dict()
    assert {name: weight.shape for name, weight in before.items()} == {n: w.shape for n, w in after.items()}


def test_a_judge_is_trained_merged_and_served(family, pairs, pictures, tmp_path) -> None:
    """Only the language model is adapted; merged, it is what peft merges, and it answers as base and adapter do."""
    made = trainer.train(lessons.judge(**BRIEF), pairs, family, pictures, tmp_path / "lora", tmp_path / "c")
    assert made.steps == 1
    adapted = PeftModel.from_pretrained(load_model(family), str(tmp_path / "lora"))
    with torch.no_grad():  # one step moves too little to be seen
        names = [name for name, _ in adapted.named_parameters() if "lora_" in name]
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(name))))
    assert names
    assert all(".language_model." in name for name in names)
    adapted.save_pretrained(str(tmp_path / "lora"))
    answers = replies(load(family, adapter=tmp_path / "lora"), pictures)
    merge_adapter(family, tmp_path / "lora", tmp_path / "merged")
    expected = copy.deepcopy(adapted).merge_and_unload().state_dict()
    for name, weight in load_model(tmp_path / "merged").state_dict().items():
        torch.testing.assert_close(weight, expected[name], atol=1e-4, rtol=0)
    merged = load(tmp_path / "merged")
    assert_same(answers, replies(merged, pictures))
    asked = {"model": "judge", "messages": [{"role": "user", "content": "Why"}], "max_tokens": 5, "temperature": 0}
    with Served(server.Server(merged, "judge", 4, 4096, 3).app()) as running:
        said = httpx2.post(f"{running.url}/v1/chat/completions", json=asked, timeout=60).json()
    assert said["choices"][0]["message"]["content"] == answers[3].text


@each_row("name, now, then")
def test_an_adapter_whose_parts_had_other_names_when_it_was_trained(name, now, then, pictures, tmp_path) -> None:
    """As adapters on the hub of transformers before 4.52 have them."""
    base = tiny_families.save(name, tmp_path / "base")
    settings = LoraConfig(r=2, target_modules=r".*language_model.*\.[qv]_proj", init_lora_weights=False)
    get_peft_model(load_model(base), settings).save_pretrained(str(tmp_path / "now"))
    shutil.copytree(tmp_path / "now", tmp_path / "then")
    file = tmp_path / "then/adapter_model.safetensors"
    tensors = {key.replace(f".{now}", f".{then}"): tensor for key, tensor in load_file(file).items()}
    assert not set(tensors) & set(load_file(file))
    save_file(tensors, file, {"format": "pt"})
    for which in ("now", "then"):
        merge_adapter(base, tmp_path / which, tmp_path / f"{which}-merged")
    assert_same(*(replies(load(base, adapter=tmp_path / which), pictures) for which in ("now", "then")))
    merged, expected = (load_model(tmp_path / f"{which}-merged").state_dict() for which in ("then", "now"))
    assert all(torch.equal(merged[key], weight) for key, weight in expected.items())
    assert any(not torch.equal(weight, expected[key]) for key, weight in load_model(base).state_dict().items())


def test_a_scorer_of_any_family(family: Path, scored: list[Sample], pictures: dict[str, bytes], tmp_path: Path) -> None:
    """What was trained scores the same when it is loaded, as a plain checkpoint of the family with a head."""
    lesson = lessons.scorer(**BRIEF)
    made = trainer.train(lesson, scored, family, pictures, tmp_path / "scorer", tmp_path / "c")
    kept = json.loads((tmp_path / "scorer/config.json").read_text())["architectures"]
    assert kept == [type(load_model(tmp_path / "scorer")).__name__]
    edits = [Edit(row.instruction, pictures[row.source], pictures[row.a]) for row in scored[8:]]
    found = CheckpointScorer.load(tmp_path / "scorer", batch_size=3).score(edits)
    answers = torch.tensor(made.answers[1])
    for score, answer in zip(found, answers, strict=True):
        assert isinstance(score, Score)
        assert [*score.dimensions.values()] == pytest.approx(answer[0, 0].tolist(), abs=1e-4)


def test_bounds_on_pixels(family: Path) -> None:
    """They are obeyed, or refused where a processor shows all images at one size."""
    shown = images.decode(png(0, 200, 140))
    text = "x" + load_processor(family).apply_chat_template(style("pvc").messages("x"), tokenize=False)

    def tokens(least: int, most: int) -> int:
        processor = bound(load_processor(family), least, most)
        return int(processor(text=[text], images=[[shown] * 3], return_tensors="pt")["input_ids"].shape[1])

    if family.name == "gemma3":
        with pytest.raises(FileError, match="shows all images at one size"):
            tokens(0, 4096)
        return
    assert tokens(0, 64 * 64) < tokens(0, 400 * 400)
    if family.name not in ("internvl", "gemma4"):  # which take the number of tiles, or of tokens, that fits best
        assert tokens(256 * 256, 512 * 512) > tokens(0, 160 * 160)


def entries(profile: str | None) -> Iterator[tuple[str, LocalSetting, Any]]:
    """Each checkpoint that a judge, a scorer or a rater has: what it is called, its setting, and its training here."""
    values, made = YAML().load((ROOT / (READY if profile == READY else "params.yaml")).read_text()), dict[str, Any]()
    if profile not in (None, READY):
        settings.apply(values, str(profile))
    values = {"scorers": {}, "train_scorer": {}} | json.loads(json.dumps(values))
    if profile != READY:
        made = {"models/judge": read("train_judge", TrainJudgeSetting, values["train_judge"])}
    for name, given in values["train_scorer"].items():
        made[f"models/scorers/{name}"] = read(f"train_scorer.{name}", SingleEdits, given)
    for section, kind in (("judges", JudgeSetting), ("raters", RaterSetting), ("scorers", ScorerEntry)):
        for name, given in values[section].items():
            entry = read(f"{section}.{name}", kind, given)
            setting = getattr(entry, "model", None)
            if isinstance(entry, CheckpointSetting):
                setting = LocalSetting(model=entry.model)
            if isinstance(setting, LocalSetting):
                yield f"{section}.{name}", setting, made.get(setting.model)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny checkpoints of two families with the bounds on pixels that the published ones have."""
    folder, found = tmp_path_factory.mktemp("published"), dict[str, Path]()
    for kind, bounds in PUBLISHED.items():
        found[kind] = tiny_families.save(kind, folder / kind)
        file = found[kind] / "preprocessor_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | bounds))
    return found


@pytest.mark.parametrize("backend", ["pil", "torchvision"])
@pytest.mark.parametrize("profile", PROFILES)
def test_each_entry_is_asked_and_served_at_the_sizes_of_its_training(
    profile, backend, published, tmp_path, monkeypatch
) -> None:
    """In tokens of an image: as the training shows it, as it is asked in this process, and by what vLLM is told."""
    monkeypatch.chdir(ROOT)
    if backend == "torchvision" and not find_spec("torchvision"):
        pytest.skip("`make test-torchvision` runs it")
    classes = {"pil": Qwen2VLImageProcessorPil, "torchvision": transformers.Qwen2VLImageProcessor}
    whole, counted = [np.zeros((height, width, 3), np.uint8) for width, height in SIDES], dict[str, list[int]]()

    def tokens(processor: Any, shown: Sequence[np.ndarray], **told: Any) -> list[int]:
        how = processor.image_processor.to_dict()
        same = repr((how, told, [image.shape for image in shown]))  # most entries have the processor of another
        if same not in counted:
            show, given = (
                classes[backend](**how),
                {"input_data_format": "channels_last", "return_tensors": "pt", **told},
            )
            counted[same] = [int(show(images=[image], **given)["image_grid_thw"].prod()) // 4 for image in shown]
        return counted[same]

    found = dict[str, list[int]]()
    for name, setting, training in entries(profile):
        base = ROOT / (training.base if training else setting.model)
        kind = "qwen2_5_vl" if "Qwen2.5" in setting.model or "ImgEdit" in setting.model else "qwen3_vl"
        folder = base = base if base.is_dir() else published[kind]
        if training:
            processor = processor_of(base, training)
            processor.save_pretrained(tmp_path / name)
            folder = tmp_path / name
            if training.where == "train_judge":
                settings = lora(training)
                settings.init_lora_weights = False  # zeros would be refused
                adapted = get_peft_model(load_model(base), settings)
                adapted.save_pretrained(str(folder))
                folder = tmp_path / f"{name}-merged"
                merge_adapter(base, tmp_path / name, folder)
            shown = [sized(processor, decode(images.encode_png(image))) for image in whole]
            processor.image_processor.do_resize = False
            found[name] = tokens(processor, shown)
        lora_dir = None
        if setting.lora:  # of a larger size than the base's, which its repository says in the older file alone
            lora_dir = tmp_path / name
            some = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
            get_peft_model(load_model(base), some).save_pretrained(str(lora_dir))
            content = json.loads((base / "preprocessor_config.json").read_text())
            larger = {"min_pixels": 300 * 300, "max_pixels": 600 * 600}
            (lora_dir / "preprocessor_config.json").write_text(json.dumps(content | larger))
        processor = load(folder, adapter=lora_dir).processor if lora_dir else load_processor(folder)
        asked = tokens(bound(processor, setting.min_pixels, setting.max_pixels), whole)
        assert found.setdefault(name, asked) == asked, name
        served = replace(setting, model=str(folder), adapter=str(lora_dir or "none"))
        words = launch.command(served, Serving("vllm", program=sys.executable), 1)
        flag = "--mm-processor-kwargs"
        told = json.loads(words[words.index(flag) + 1]) if flag in words else {}
        assert tokens(load_processor(folder), whole, **told) == asked, name
    if profile == "paper":
        assert found["raters.imgedit_judge"][0] > 900, "of 512 x 512 pixels"
        assert found["judges.pvc_judge"] == found["judges.base"]
    if profile == READY:
        assert len(found) == 11
        assert found["raters.imgedit_judge_published"][0] > 1200
        assert found["raters.editscore_7b"][0] < 500, "the adapter's sizes, not its base's"


def test_thinking_that_the_template_opens_stands_in_the_reply(tmp_path, pictures, monkeypatch) -> None:
    """Else nothing in a reply that is cut says that it is no answer."""
    model = load(tiny_families.save("qwen3_5", tmp_path / "qwen3_5"))
    chat = Chat(model.render([{"role": "user", "content": [{"type": "text", "text": "Why"}]}]), (), 4)
    thinking = replace(chat, text=f"{chat.text}<think>\n")
    for asked, begin in ((chat, ""), (thinking, "<think>")):
        [reply] = model.reply([asked], {})
        assert reply.text == begin + model.processor.decode(reply.tokens)
        assert not reply.finished
    form = InquiryForm((), 4, {})
    inquiry = Inquiry("k", "Why", {}, lambda said: (said, None))
    assert form.answer(inquiry, RawReply(reply.text)).reason == "the reply ends before its thinking does"
    assert form.answer(inquiry, RawReply(f"{reply.text}</think>so")).value == "so"
    monkeypatch.setattr(models.params, "load", lambda: {"serve": {"engine": "vllm"}})
    unless = "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}"
    rendered = model.processor.chat_template
    for opening, enabled, disabled in (("", False, False), (unless, True, False), ("<think>\n", True, True)):
        model.processor.chat_template = f"{rendered}{opening}"
        model.processor.save_pretrained(tmp_path / "qwen3_5")
        for enable, opens in ((True, enabled), (False, disabled)):
            setting = ServedSetting(model=str(tmp_path / "qwen3_5"), enable_thinking=enable)
            with RecordCache(tmp_path / "kept") as kept, models.Model(setting, kept, Account()) as served:
                assert served._opened is opens, (opening, enable)
    [said] = model.ask_many(form, [(inquiry, {"temperature": 0.0, "max_tokens": 7})], 1)
    assert isinstance(said, RawReply)
    assert said.usage is not None
    assert said.usage.tokens_out == 7
    assert said.text.startswith("<think>")
