"""Editing models of random weights, run by the real pipeline classes of diffusers, from a folder to an image."""

import functools
import io
import json
import math
import shutil
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import diffusers
import huggingface_hub
import numpy as np
import pytest
import tiny_hub
import tiny_pipelines
import torch
import yaml
from cases import each_row
from diffusers.pipelines.joyimage.image_processor import BUCKETS
from diffusers.pipelines.longcat_image import pipeline_longcat_image_edit
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.editors.diffusers import editor as editor_module
from editjudge.editors.diffusers.editor import LAST, SEVERAL, DiffusersEditor, call_arguments, check, size_of_edit
from editjudge.editors.diffusers.mends import mark_picture_tokens, quoted_parts
from editjudge.editors.protocol import LASTING, Edited, EditFailed, Request
from editjudge.editors.settings import DiffusersSetting, Resolution

CHRONO = "ChronoEditPipeline"
KONTEXT, FLUX2, QWEN, PIX2PIX, LONGCAT = (
    "FluxKontextPipeline", "Flux2Pipeline", "QwenImageEditPipeline", "StableDiffusionInstructPix2PixPipeline",
    "LongCatImageEditPipeline",
)  # fmt: skip
PIPELINES = list(tiny_pipelines.MODELS)
OF_A_MEGAPIXEL: list[Any] = [
    pipeline_longcat_image_edit, pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus, editor_module,
]  # fmt: skip
SEE = ("JoyImageEditPipeline", "JoyImageEditPlusPipeline", "QwenImage21Pipeline", "DreamLitePipeline")
# A pipeline that chooses the size by itself gets a picture whose sides are then multiples of 64, see small_sizes.
SOURCES = {LONGCAT: (256, 64)}
OWN_SIZE = {LONGCAT: (128, 512)}
HARD = """ 
..Don't "repaint" the cat's 'sign';
write {“a/b”} %s\t\\n on it — 把杯子变成红色 🐱‍👤 ../../etc/passwd C:\\x <|x|> $HOME..
 """
LONG = " cup" * 2500

TABLE = yaml.safe_load((Path(__file__).parents[2] / "configs/editors.yaml").read_text())
SIDES = st.integers(16, 9000)
Load = Callable[..., DiffusersEditor]
Entry = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def fresh(entry: Entry) -> Load:
    """fresh(pipeline class, **fields): its tiny model, loaded anew with other fields."""

    def load(pipeline_class: str, /, **fields: Any) -> DiffusersEditor:
        return DiffusersEditor(read("editors.tiny", DiffusersSetting, entry(pipeline_class, **fields)), "cpu")

    return load


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megapixel, to which pipelines take pictures by themselves, costs a CPU seconds: a sixteenth of it, and of
    JoyAI's sizes two small ones."""
    monkeypatch.setitem(BUCKETS, 1024, [(96, 128), (128, 96)])
    for module in OF_A_MEGAPIXEL:
        own = module.calculate_dimensions
        small = functools.partial(lambda size, area, ratio: size(area / 16 if area == 1024**2 else area, ratio), own)
        monkeypatch.setattr(module, "calculate_dimensions", small)


@pytest.fixture(scope="module")
def editor(fresh: Load) -> Load:
    """editor(pipeline class): its tiny model, loaded once."""
    torch.set_num_threads(1)
    return functools.cache(fresh)


def ask(pipeline: str, size: tuple[int, int] | None = None, **fields: Any) -> Request:
    width, height = size or SOURCES.get(pipeline, (128, 96))
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    source = io.BytesIO()
    Image.fromarray(pixels).save(source, "PNG")
    given = {"key": "k", "instruction": "Make the cup red", "edit": None, "use": "data", "seed": 5}
    return Request(**{"image": source.getvalue(), **given, **fields})


def same(one: Edited, other: Edited) -> bool:
    return np.array_equal(one.image, other.image)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_edits_depend_on_the_request_alone(pipeline: str, editor: Load) -> None:
    model = editor(pipeline)
    first = model.edit(ask(pipeline))
    assert first.image.shape == (*OWN_SIZE.get(pipeline, (96, 128)), 3)
    assert first.image.dtype == np.uint8
    assert first.image.std() > 5
    assert first.damage is None
    assert not same(first, model.edit(ask(pipeline, seed=2**63 - 1)))
    assert not same(first, model.edit(ask(pipeline, use="benchmark")))
    assert not same(first, model.edit(ask(pipeline, instruction="Remove the cup")))
    assert same(first, model.edit(ask(pipeline)))


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("instruction", [HARD, LONG], ids=["hard", "long"])
def test_instruction_reaches_the_tokenizer_unchanged(pipeline, instruction, editor, monkeypatch) -> None:
    read, tokenize = [], PreTrainedTokenizerBase.__call__

    def spy(self: PreTrainedTokenizerBase, text: str | list[str], *rest: Any, **named: Any) -> Any:
        read.extend([text] if isinstance(text, str) else text)
        return tokenize(self, text, *rest, **named)

    monkeypatch.setattr(PreTrainedTokenizerBase, "__call__", spy)
    editor(pipeline).edit(ask(pipeline, instruction=instruction))
    asked = json.dumps(instruction, ensure_ascii=False)[1:-1] if pipeline == "BriaFiboEditPipeline" else instruction
    assert asked in "".join(read)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_each_of_several_sources_counts_and_the_first_decides_the_size(pipeline: str, editor: Load) -> None:
    model, pictures = editor(pipeline), [np.full((160, 64, 3), (255, 20, 20)), np.full((96, 160, 3), (10, 10, 200))]
    others = tuple(images.encode_png(each.astype(np.uint8)) for each in pictures)
    if pipeline not in SEVERAL:
        with pytest.raises(EditFailed, match="3 source images: this editor takes 1") as failed:
            model.edit(ask(pipeline, more=others))
        assert failed.value.kind in LASTING
        return
    made = [model.edit(ask(pipeline, more=more)).image for more in ((), others[:1], others[1:], others)]
    assert [each.shape for each in made] == [(96, 128, 3)] * 4
    assert len({each.tobytes() for each in made}) == 4


@pytest.mark.parametrize("pipeline", LAST)
def test_a_pipeline_that_follows_the_last_source_is_told_the_size_of_the_first(pipeline, fresh, monkeypatch) -> None:
    """And JoyAI, whose text encoder keeps the last 4,096 tokens, to keep those of all pictures."""
    model, told = fresh(pipeline, resolution={"rule": "pipeline"}), []
    call = type(model.pipe).__call__
    monkeypatch.setattr(type(model.pipe), "__call__", lambda pipe, **given: told.append(given) or call(pipe, **given))
    tall = ask(pipeline, (64, 128)).image
    alone, several = (model.edit(ask(pipeline, (128, 64), more=more)) for more in ((), (tall,) * 4))
    assert alone.image.shape == several.image.shape
    assert [given.get("max_sequence_length") for given in told] == [None, 10240 if "Joy" in pipeline else None]


def test_longcat_reads_quoted_text_by_the_letter() -> None:
    text = "Don't write 'it', write \"the cat's\" and “é”"
    assert quoted_parts(text) == [
        ("Don't write ", False), ("'it'", True), (", write ", False), ('"the cat\'s"', True), (" and ", False),
        ("“é”", True),
    ]  # fmt: skip
    assert quoted_parts("") == []


@pytest.mark.parametrize("pipeline", [QWEN, "QwenImageEditPlusPipeline", LONGCAT, *SEE])
def test_the_text_encoder_places_the_picture_in_rows_and_columns(pipeline, editor, monkeypatch) -> None:
    encoder, seen = editor(pipeline).pipe.text_encoder, []
    positions = encoder.model.get_rope_index

    def spy(*given: Any, **named: Any) -> Any:
        seen.append(positions(*given, **named)[0])
        return positions(*given, **named)

    monkeypatch.setattr(encoder.model, "get_rope_index", spy)
    editor(pipeline).edit(ask(pipeline))
    assert seen
    for each in seen:  # (3, 1, tokens): time, row and column
        assert not torch.equal(each[1], each[2]), "picture tokens lie in one line, as words do"


def test_picture_tokens_are_marked_as_the_processor_marks_them(editor: Load) -> None:
    pipe = editor(QWEN).pipe
    picture = Image.open(io.BytesIO(ask(QWEN).image))
    text = "<|vision_start|><|image_pad|><|vision_end|>Make the cup red"
    said = pipe.processor(text=[text], images=[picture], return_tensors="pt")
    _, named = mark_picture_tokens(pipe.text_encoder, (), {"input_ids": said["input_ids"]})
    assert torch.equal(named["mm_token_type_ids"], said["mm_token_type_ids"])
    assert 0 < named["mm_token_type_ids"].sum() < said["input_ids"].numel()
    given = {**said, "mm_token_type_ids": torch.zeros(1)}
    _, kept = mark_picture_tokens(pipe.text_encoder, (), given)
    assert kept["mm_token_type_ids"] is given["mm_token_type_ids"]


def test_model_of_the_hub(fresh, editor, model_dir, workdir, monkeypatch) -> None:
    """From the hub's cache, which is as far as a machine without the hub goes."""
    shutil.copytree(model_dir(QWEN), tiny_hub.cached(workdir, "owner/name"), dirs_exist_ok=True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(workdir))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for revision in ("", f"@{tiny_hub.COMMIT}"):
        from_hub = fresh(QWEN, model=f"owner/name{revision}")
        assert same(from_hub.edit(ask(QWEN)), editor(QWEN).edit(ask(QWEN)))


def test_sigmas_of_the_turbo_entry_reach_the_pipeline(fresh: Load) -> None:
    steps = {"num_inference_steps": 2}
    model = fresh(FLUX2, data=steps | {"sigmas": [1.0, 0.2]}, benchmark=steps)
    assert not same(model.edit(ask(FLUX2)), model.edit(ask(FLUX2, use="benchmark")))


@pytest.mark.parametrize("size", [(128, 96), (64, 160), (160, 160)], ids=["wide", "tall", "square"])
def test_kontext_edits_in_the_source_s_shape(size: tuple[int, int], fresh: Load) -> None:
    """Left to itself it makes every edit a square of 1024."""
    model = fresh(KONTEXT, resolution={"rule": "at_most", "multiple": 32})
    assert model.edit(ask(KONTEXT, size)).image.shape[1::-1] == size


def test_flux2_sees_the_whole_source(fresh: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cuts what goes beyond a multiple of 16; a source resized before loses nothing."""
    model, seen = fresh(FLUX2, resolution={"rule": "at_most", "multiple": 16}), []
    check = model.pipe.image_processor.check_image_input
    looked = lambda image: (seen.append(image.size), check(image))  # noqa: E731
    monkeypatch.setattr(model.pipe.image_processor, "check_image_input", looked)
    assert model.edit(ask(FLUX2, (110, 75))).image.shape == (64, 96, 3)
    assert seen == [(96, 64)]


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # of the safety checker
@pytest.mark.parametrize(
    ("pipeline", "part", "value", "kind"),
    [
        (PIX2PIX, "safety_checker.concept_embeds_weights", -2.0, "safety_checker"),  # any picture is beyond the limit
        *((pipeline, "vae.decoder.conv_in.weight", math.nan, "not_finite") for pipeline in (KONTEXT, QWEN, PIX2PIX)),
    ],
)
def test_nan_and_the_safety_checker_s_black_are_failures(pipeline, part, value, kind, fresh) -> None:
    model = fresh(pipeline)
    with torch.no_grad():
        attrgetter(part)(model.pipe).fill_(value)
    with pytest.raises(EditFailed, match=kind.replace("_", " ")) as failed:
        model.edit(ask(pipeline))
    assert failed.value.kind == kind


def test_a_failed_edit_leaves_no_trace(editor: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    model, freed = editor(FLUX2), []
    before = model.edit(ask(FLUX2))
    monkeypatch.setattr(type(model.pipe), "maybe_free_model_hooks", lambda pipe: freed.append(pipe))
    with pytest.raises(ValueError, match="too small"):
        model.edit(ask(FLUX2, (60, 50)))
    assert freed, "offloaded parts come back after an error of any kind"
    assert "prompt" not in model.setting.data, "an edit changed the setting's own arguments"
    assert same(before, model.edit(ask(FLUX2)))


@pytest.fixture(scope="module")
def lora_dir(model_dir: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LoRAs of random weights for the tiny FLUX.1 Kontext and FLUX.2."""
    folder = tmp_path_factory.mktemp("lora")
    for kind in (KONTEXT, FLUX2):
        tiny_pipelines.save_lora(kind, model_dir(kind), folder, f"{kind}.safetensors")
    return folder


@pytest.mark.parametrize("pipeline", [KONTEXT, FLUX2])
def test_lora_acts_by_its_weight(pipeline: str, editor: Load, fresh: Load, lora_dir: Path) -> None:
    lora = {"model": str(lora_dir), "file": f"{pipeline}.safetensors"}
    plain = editor(pipeline).edit(ask(pipeline))
    full = fresh(pipeline, lora=lora).edit(ask(pipeline))
    assert not same(plain, full)
    assert not same(full, fresh(pipeline, lora=lora | {"weight": 0.5}).edit(ask(pipeline)))
    assert same(plain, fresh(pipeline, lora=lora | {"weight": 0.0}).edit(ask(pipeline)))


def test_lora_that_does_not_fit_and_offload_without_a_gpu_are_refused(fresh: Load, lora_dir: Path) -> None:
    with pytest.raises(ParamsError, match="LongCatImageEditPipeline takes none"):
        fresh(LONGCAT, lora={"model": str(lora_dir), "file": f"{KONTEXT}.safetensors"})
    save_file({"unet.mid_block.to_q.lora_A.weight": torch.zeros(2, 4)}, lora_dir / "other.safetensors")
    with pytest.raises(ParamsError, match=r"other\.safetensors has no weights for FluxKontextPipeline"):
        fresh(KONTEXT, lora={"model": str(lora_dir), "file": "other.safetensors"})
    for offload in ("model", "sequential"):
        with pytest.raises(ParamsError, match=f"offload: {offload} needs a GPU"):
            fresh(PIX2PIX, offload=offload)


@pytest.fixture
def folder(model_dir: Callable[[str], Path], tmp_path: Path) -> Path:
    """A tiny model, of which the test may change what it likes."""
    return shutil.copytree(model_dir(PIX2PIX), tmp_path / "model")


@pytest.mark.parametrize("file", ["vae/diffusion_pytorch_model", "text_encoder/model"])
def test_pickled_weights_are_refused(file: str, fresh: Load, folder: Path) -> None:
    weights = folder / f"{file}.safetensors"
    name = "pytorch_model.bin" if weights.name == "model.safetensors" else "diffusion_pytorch_model.bin"
    torch.save({"weight": torch.zeros(1)}, weights.with_name(name))
    weights.unlink()
    with pytest.raises(OSError, match="safetensors"):
        fresh(PIX2PIX, model=str(folder))


@pytest.mark.parametrize(("part", "field"), [("unet", "unet"), (".", "_class_name")], ids=["component", "pipeline"])
def test_code_of_a_model_is_never_run(part, field, fresh, folder, tmp_path) -> None:
    ran = tmp_path / "ran"
    index = json.loads((folder / "model_index.json").read_text())
    code = f"from diffusers import *\nopen({str(ran)!r}, 'w').close()\nclass Mine(UNet2DConditionModel):\n    pass\n"
    (folder / part / "mine.py").write_text(code)
    (folder / "model_index.json").write_text(json.dumps(index | {field: ["mine", "Mine"]}))
    with pytest.raises(ValueError, match="custom code"):
        fresh(PIX2PIX, model=str(folder))
    assert not ran.exists()


@pytest.mark.parametrize("part", ["text_encoder/model", "unet/diffusion_pytorch_model"])
@pytest.mark.parametrize("broken", [{}, {"half": True}], ids=["nan", "half"])
def test_weights_that_are_missing_or_not_finite_are_refused(part, broken, fresh, folder) -> None:
    weights = load_file(folder / f"{part}.safetensors")
    first, *_ = sorted(weights)
    kept = {name: weights[name] for name in sorted(weights)[::2]} if broken else weights
    kept[first] = kept[first] if broken else torch.full_like(kept[first], float("nan"))
    save_file(kept, folder / f"{part}.safetensors", {"format": "pt"})
    nan = rf"{part.partition('/')[0]}\.\S+ holds values that are not finite"
    with pytest.raises(FileError, match=r"lacks \d+ weights: \w+\.\w+" if broken else nan):
        fresh(PIX2PIX, model=str(folder))


def test_a_model_is_loaded_in_the_settings_precision_and_spread_over_its_gpus(fresh, monkeypatch) -> None:
    for dtype in ("bfloat16", "float32"):
        parts = fresh(FLUX2, dtype=dtype).pipe.components.values()
        weights = [next(part.parameters()) for part in parts if isinstance(part, torch.nn.Module)]
        assert {weight.dtype for weight in weights} == {getattr(torch, dtype)}
    told: dict[str, Any] = {}

    def load(*_folder: object, **options: Any) -> None:
        told.update(options)
        raise OSError("it has no GPUs")

    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", load)
    for gpus, spread in ((2, "balanced"), (1, None)):
        with pytest.raises(OSError, match="no GPUs"):
            fresh(FLUX2, gpus_per_worker=gpus)
        assert told["device_map"] == spread


@pytest.mark.parametrize("entry", [entry for entry in TABLE.values() if entry["kind"] == "diffusers"])
def test_every_ready_entry_fits_its_pipeline(entry: dict[str, Any]) -> None:
    assert issubclass(getattr(diffusers, entry["pipeline"]), diffusers.DiffusionPipeline)
    known = call_arguments(entry["pipeline"])
    assert {*entry["data"], *entry["benchmark"], "prompt", "generator", "output_type"} <= set(known)
    assert {"image", "images"} & set(known)


def test_chronoedit_gives_its_last_frame_by_its_own_transformer_and_parts_in_their_precision(fresh, entry) -> None:
    """Its published files name Wan's transformer, to which frames lie elsewhere in time."""
    folder, chrono = Path(entry(CHRONO)["model"]), fresh(CHRONO, dtype="bfloat16")
    index = json.loads((folder / "model_index.json").read_text())
    wan = index | {"transformer": ["diffusers", "WanTransformer3DModel"], "_class_name": "WanImageToVideoPipeline"}
    (folder / "model_index.json").write_text(json.dumps(wan))
    try:
        other = fresh(CHRONO, pipeline=CHRONO, dtype="bfloat16")
    finally:
        (folder / "model_index.json").write_text(json.dumps(index))
    weights = [next(other.pipe.components[name].parameters()) for name in ("vae", "image_encoder", "text_encoder")]
    assert [each.dtype for each in weights] == [torch.float32, torch.float32, torch.bfloat16]
    assert other.pipe.transformer.blocks[0].attn1.to_q.weight.dtype == torch.bfloat16
    assert type(other.pipe.transformer).__name__ == "ChronoEditTransformer3DModel"
    video = other.pipe.vae.decode
    frames: list[torch.Tensor] = []

    def spy(*given: Any, **named: Any) -> Any:
        frames.append(video(*given, **named)[0])
        return (frames[0],)

    other.pipe.vae.decode = spy
    made = other.edit(ask(CHRONO)).image
    last = (frames[0][0, :, -1].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1).numpy()
    assert frames[0].shape[2] == 5
    assert np.abs(made / 255 - last).max() < 0.01
    assert chrono.takes >= {"height", "width"}, "else it is 832 x 480"


def test_a_transparent_edit_lies_over_white(fresh: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("QwenImage21Pipeline")
    clear = np.zeros((1, 8, 8, 4), np.float32)
    clear[:, :4] = (-0.5, 0, 1.5, 1)
    monkeypatch.setattr(type(model.pipe), "__call__", lambda *_given, **_named: {"images": clear})
    image = model.edit(ask("QwenImage21Pipeline")).image
    assert image.shape == (8, 8, 3)
    assert (image[:4] == (0, 0, 255)).all()
    assert (image[4:] == 255).all()


def looked_up(entry: dict[str, Any]) -> None:
    check("editors.x", read("editors.x", DiffusersSetting, entry))


@each_row("fields, says")
def test_what_cannot_be_run_is_named_before_any_weight_is_loaded(fields, says, entry) -> None:
    if says is None:
        looked_up(entry(KONTEXT, **fields))
        return
    with pytest.raises(ParamsError, match=rf"editors\.x.*{says}"):
        looked_up(entry(KONTEXT, **fields))


@each_row("text, says")
def test_model_index_that_cannot_be_used(text: str | None, says: str, entry: Entry, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "model_index.json").write_text(text)
    with pytest.raises(ParamsError, match=rf"editors\.x\.model: .*{says}"):
        looked_up(entry(KONTEXT, model=str(tmp_path)))


@each_row("rule, source, size")
def test_size_of_an_edit(rule: Any, source: list[int], size: list[int] | None) -> None:
    found = size_of_edit(Resolution(rule=rule, pixels=1024 * 1024, multiple=16), *source)
    assert found == (size and tuple(size))


@given(SIDES, SIDES, st.sampled_from(["area", "at_most"]), st.sampled_from([8, 16, 32, 64]))
def test_sizes_are_multiples_within_the_pixels_and_of_the_source_s_shape(width, height, rule, multiple) -> None:
    pixels = 1024 * 1024
    wide, high = size_of_edit(Resolution(rule=rule, pixels=pixels, multiple=multiple), width, height) or (0, 0)
    assert wide > 0 < high
    assert wide % multiple == high % multiple == 0
    scale = math.sqrt(pixels / (width * height))
    scale = scale if rule == "area" else min(scale, 1.0)
    assert abs(wide - width * scale) <= multiple
    assert abs(high - height * scale) <= multiple
    assert wide * high <= pixels or multiple in (wide, high)
