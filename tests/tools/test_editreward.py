"""EditReward as published: what the importer makes of its file layout gives the numbers of the public code."""

import json
from io import BytesIO
from math import ceil, floor, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tiny_families
import torch
from pictures import png
from PIL import ExifTags, Image
from safetensors.torch import load_file, save_file
from torch.nn.functional import linear, relu
from transformers import Qwen2_5_VLForConditionalGeneration

from editjudge import api
from editjudge.core import prompts
from editjudge.core.errors import UserError
from editjudge.judges.protocol import Edit, Score
from editjudge.judges.scorers.checkpoint import CheckpointScorer, Description
from editjudge.models.chat.checkpoint import load_processor
from tools.import_editreward import import_editreward, import_scorer, weights_of

RUBRICS = ("\nIs it done? {{1-4}}\n\nText - {text_prompt}\n", "\nIs it clean?\nText - {text_prompt}\n")
CLOSING = "\nNow the rating: <|Reward|>\n\nEND\n"


@pytest.fixture(autouse=True)
def words(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the public code that are read, with other words, which are taken for theirs."""
    monkeypatch.setattr(prompts, "sha256", lambda _: mock.ANY)
    made = {"prompts": f"INSTRUCTION_EDIT_FOLLOWING = {RUBRICS[0]!r}\nINSTRUCTION_EDIT_QUALITY = {RUBRICS[1]!r}\n"}
    made["data_collator_qwen_edit"] = f"import os\nprompt_with_special_token = {CLOSING!r}\nraise SystemExit\n"
    folder = workdir / "models/prompts/editreward"
    folder.mkdir(parents=True)
    for name, text in made.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_families.save("qwen2_5_vl", tmp_path_factory.mktemp("base") / "base")
    processor = load_processor(folder)
    processor.image_processor.size = {"shortest_edge": 56 * 56, "longest_edge": 12845056}  # of the bases
    processor.save_pretrained(folder)
    # More rows than tokens, as the bases have: they shrink.
    net = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)
    net.resize_token_embeddings(len(processor.tokenizer) + 40, mean_resizing=False)
    net.save_pretrained(folder)
    return folder


def older(name: str) -> str:
    return name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")


@pytest.fixture(scope="module")
def published(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The state dict that the public code saves: a model whose embeddings have a row for each token, and the heads."""
    net = Qwen2_5_VLForConditionalGeneration.from_pretrained(base)
    net.resize_token_embeddings(len(load_processor(base).tokenizer) + 1, mean_resizing=False)
    draw = torch.Generator().manual_seed(1)
    heads = {
        f"rm_heads.head_{n}.{layer}.{part}": torch.randn(*size, generator=draw) / 8
        for n in (0, 1)
        for layer, (out, inside) in {0: (1024, 48), 3: (16, 1024), 5: (2, 16)}.items()
        for part, size in (("weight", (out, inside)), ("bias", (out,)))
    }
    return {name: weight.detach().clone() for name, weight in net.state_dict().items()} | heads


def sized(image: bytes) -> Image.Image:
    """As the public code resizes: to 256 * 28 * 28 pixels, in steps of 28, by PIL."""
    given = Image.open(BytesIO(image)).convert("RGB")
    wide, high = (max(28, round(side / 28) * 28) for side in given.size)
    ratio = sqrt(given.width * given.height / 200704)
    if wide * high != 200704:
        to = floor if wide * high > 200704 else ceil
        wide, high = (to(side / ratio / 28) * 28 for side in given.size)
    return given.resize((wide, high), Image.Resampling.BICUBIC)


@torch.inference_mode()
def reference(base: Path, weights: dict[str, torch.Tensor], edit: Edit, grid: bool = False) -> list[list[float]]:
    """(mean, log sigma) of each head, as the public code's forward has them: the images' embeddings are put among the
    tokens' outside of the model, which so knows neither ids nor grids. grid: with the positions of an image instead."""
    processor = load_processor(base)
    processor.tokenizer.add_special_tokens({"additional_special_tokens": ["<|Reward|>"]})
    net = Qwen2_5_VLForConditionalGeneration.from_pretrained(base).eval()
    net.resize_token_embeddings(len(processor.tokenizer), mean_resizing=False)
    net.load_state_dict({name: weight for name, weight in weights.items() if "rm_head" not in name})
    found = []
    for n, rubric in enumerate(RUBRICS):
        words = [{"type": "text", "text": rubric.format(text_prompt=edit.instruction) + CLOSING}]
        turn = [{"role": "user", "content": [{"type": "image"}, {"type": "image"}, *words]}]
        chat = processor.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        shown = [sized(edit.source), sized(edit.edited)]  # type: ignore[arg-type]
        given = processor(text=[chat], images=shown, return_tensors="pt")
        ids, token = given["input_ids"], processor.tokenizer.convert_tokens_to_ids("<|Reward|>")
        embedded = net.get_input_embeddings()(ids)
        seen = torch.cat(net.model.get_image_features(given["pixel_values"], given["image_grid_thw"]).pooler_output)
        embedded[ids == net.config.image_token_id] = seen
        places = None
        if grid:
            kinds = (ids == net.config.image_token_id).int()
            places = net.model.get_rope_index(ids, kinds, image_grid_thw=given["image_grid_thw"])[0]
        mask = given["attention_mask"]
        out = net.model(input_ids=None, inputs_embeds=embedded, attention_mask=mask, position_ids=places)
        assert net.model.rope_deltas is None
        state = out.last_hidden_state[ids == token]
        for layer in (0, 3, 5):
            own = [weights[f"rm_heads.head_{n}.{layer}.{part}"] for part in ("weight", "bias")]
            state = linear(relu(state) if layer else state, *own)
        found.append(state[0].tolist())
    return found


@pytest.fixture
def edits() -> list[Edit]:
    return [Edit("Remove the cup", png(0, 300, 210), png(1, 90, 120)), Edit("Make it {red}", png(2, 600, 500), png(3))]


@pytest.mark.parametrize(("form", "names"), [("model.pth", str), ("model.safetensors", older)])
def test_its_numbers_are_those_of_the_public_code(form, names, base, published, edits, tmp_path) -> None:
    given = {names(name): weight for name, weight in published.items()}
    tokens = load_processor(base).tokenizer
    tokens.add_tokens(["<|Reward|>"], special_tokens=True)
    tokens.save_pretrained(tmp_path / "c/tokenizer")
    file = tmp_path / "c" / form
    torch.save({"model": given}, file) if form == "model.pth" else save_file(given, file)
    import_scorer(checkpoint="c", base=str(base), out=Path("out"))
    rows = load_file(tmp_path / "out/model.safetensors")["lm_head.weight"]
    assert len(rows) == len(tokens) < json.loads((base / "config.json").read_text())["text_config"]["vocab_size"]
    scores = CheckpointScorer.load(tmp_path / "out", device="cpu").score(edits)
    for edit, score in zip(edits, scores, strict=True):
        assert isinstance(score, Score)
        expected = reference(base, published, edit)
        said = np.array([[*score.dimensions.values()], [*np.log([*score.std.values()])]]).T
        np.testing.assert_allclose(said, expected, atol=1e-4)
        assert score.overall == pytest.approx(np.mean(expected, 0)[0], abs=1e-4), "their pooling, the first of the two"
        other = reference(base, published, edit, grid=True)
        assert np.abs(said - other).max() > 1e-2, "positions of a grid would give other numbers"
    with api.load_judge(str(tmp_path / "out")) as judge:
        found = judge.score(edits[0].source, edits[0].edited, edits[0].instruction)
    assert found.overall == pytest.approx(scores[0].overall, abs=1e-5)  # type: ignore[union-attr]


WORDS, FILE = "models/prompts/editreward", "c/model.safetensors"
LAYER = "model.language_model.layers.2.input_layernorm.weight"
FAULTS: dict[str, tuple[str, Any, str]] = {
    "no rubrics": (f"{WORDS}/prompts.py", None, rf"curl --create-dirs -o {WORDS}/prompts\.py https://raw.*edb027e"),
    "no closing line": (f"{WORDS}/data_collator_qwen_edit.py", "x = 1", "has no text prompt_with_special_token"),
    "no weights": (FILE, None, "cannot be read"),
    "a head too few": (FILE, {"rm_heads.head_1.5.bias": None}, r"head\.safetensors cannot be loaded"),
    "a weight too few": (FILE, {"lm_head.weight": None}, r"lacks 1 weights of a .*lm_head\.weight"),
    "a layer too many": (FILE, {LAYER: torch.ones(48)}, "has 1 weights that a model like .* has not"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_named_and_nothing_is_written(fault, base, published, tmp_path) -> None:
    name, by, words = FAULTS[fault]
    (tmp_path / "c").mkdir()
    weights = published | (by if isinstance(by, dict) else {})
    save_file({name: weight for name, weight in weights.items() if weight is not None}, tmp_path / FILE)
    if by is None:
        (tmp_path / name).unlink()
    elif isinstance(by, str):
        (tmp_path / name).write_text(by)
    with pytest.raises(UserError, match=words):
        import_editreward(tmp_path / "c", base, tmp_path / "made/out")
    assert not (tmp_path / "made/out").exists()


def test_hostile_files_are_named(tmp_path: Path) -> None:
    """Pickles of anything but weights."""
    bad: list[Any] = [[1], {"a": 1}, {"model": [1]}, {1: torch.ones(1)}, {}, torch.ones(1)]
    for number, found in enumerate(bad):
        torch.save(found, tmp_path / "model.pth")
        with pytest.raises(UserError, match=r"model\.pth cannot be read"):
            weights_of(tmp_path)
        whole = (tmp_path / "model.pth").read_bytes()
        (tmp_path / "model.pth").write_bytes([b"", b"x", b"PK\3\4", whole[:200], b"\x80\x02.", b"\x80\x02]]]"][number])
        with pytest.raises(UserError, match=r"model\.pth cannot be read"):
            weights_of(tmp_path)


def test_code_of_another_commit_is_refused(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "sha256", lambda _: "0" * 64)
    with pytest.raises(UserError, match=rf"{WORDS}/prompts\.py: not there, or another: .*: curl "):
        import_editreward(tmp_path, base, tmp_path / "out")


def test_images_are_shown_as_they_are_stored(base: Path) -> None:
    """As the public code opens them: without transparency, and not turned upright."""
    turned, clear, exif = BytesIO(), BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    image = Image.open(BytesIO(png(0, 90, 60)))
    image.save(turned, "PNG", exif=exif)
    image.putalpha(0)
    image.save(clear, "PNG")
    how: dict[str, Any] = {"head": "gaussian", "head_sizes": (), "head_shared": False, "aggregation": "mean"}
    how |= {"dimensions": ("a",), "questions": ("q",), "reply": "", "token": "t", "calibration": ()}
    how |= {"resize": "bicubic"}
    described = Description(**how, min_pixels=200704, max_pixels=200704)
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: None))  # it is not asked
    scorer = CheckpointScorer(model, load_processor(base), described)  # type: ignore[arg-type]
    for stored in (turned, clear):
        np.testing.assert_array_equal(scorer.shown(stored.getvalue()), np.asarray(sized(png(0, 90, 60))))


def test_the_tokenizer_of_another_base_is_refused(base: Path, published: dict, tmp_path: Path) -> None:
    tiny_families.tokenizer(("a", "b")).save_pretrained(tmp_path / "c/tokenizer")
    save_file(published, tmp_path / FILE)
    with pytest.raises(UserError, match="it was trained from another base"):
        import_editreward(tmp_path / "c", base, tmp_path / "out")
