"""The streamed merge gives what peft's merge in memory gives, or refuses by name; it appears whole or not at all."""

import errno
import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import each_row, yaml_beside
from peft import LoraConfig, PeftModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_base import INSTRUCTIONS, SIZES, adapted
from training_pairs import setting
from transformers import Qwen3VLForConditionalGeneration

from editjudge.core.errors import FileError
from editjudge.core.files import sha256
from editjudge.models.chat import local_model
from editjudge.models.chat.checkpoint import Precision, load_model
from editjudge.models.chat.models import weights_hash
from editjudge.models.weights import adapter as merge_adapters
from editjudge.models.weights import merge
from editjudge.models.weights.merge import merge_adapter
from editjudge.training.lesson import lora
from tools.tiny_base import tiny

Nets = dict[str, Qwen3VLForConditionalGeneration]
Bases = dict[str, Path]
FORMS = yaml_beside(__file__)["FORMS"]
REFUSED = yaml_beside(__file__)["REFUSED"]


def save_base(folder: Path, dtype: torch.dtype, tied: bool, **sizes: int) -> Path:
    """A random Qwen3-VL of four layers in several files, with its processor."""
    tokens = tiny.tokenizer(INSTRUCTIONS)
    settings = tiny.TinySettings(**{**vars(SIZES), "text_layers": 4, **sizes})
    net = tiny.model(tokens, settings)
    tiny.save(net, tiny.processor(tokens, 64), folder, dtype)
    config = net.config
    config.tie_word_embeddings = config.text_config.tie_word_embeddings = tied
    torch.manual_seed(0)
    untied = Qwen3VLForConditionalGeneration(config).to(dtype)
    with torch.no_grad():
        for weight in untied.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    (folder / "model.safetensors").unlink()
    untied.save_pretrained(folder, max_shard_size="150KB")
    return folder


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    folder = tmp_path_factory.mktemp("bases")
    return {name: save_base(folder / name, getattr(torch, name), tied=False) for name in ("float32", "bfloat16")}


@pytest.fixture(scope="module")
def in_memory(bases: Bases) -> Nets:
    """The bases in float32; to be copied."""
    return {name: load_model(folder) for name, folder in bases.items()}


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


ONE_STEP = {"rtol": 2**-7, "atol": 2e-6}  # of bfloat16; near 0 what float32 sums of another CPU differ by


@pytest.mark.parametrize("form", FORMS)
def test_merged_is_what_peft_merges(form: str, bases: Bases, in_memory: Nets, tmp_path: Path):
    """In float32 to its rounding; in bfloat16 to one step of the float32 sum."""
    base, before = bases["bfloat16"], stored(bases["bfloat16"])
    model = adapted(in_memory["bfloat16"], tmp_path / "adapter", LoraConfig(r=4, lora_alpha=8, **FORMS[form]))
    exact = model.merge_and_unload().state_dict()
    for dtype in ("base", "float32"):
        merge_adapter(base, tmp_path / "adapter", tmp_path / dtype, dtype)
    half, full = stored(tmp_path / "base"), stored(tmp_path / "float32")
    assert list(half) == list(full) == list(before)
    assert any(not torch.equal(half[name], before[name]) for name in before)
    for name in before:
        torch.testing.assert_close(half[name], exact[name].bfloat16(), **ONE_STEP, msg=name)
        torch.testing.assert_close(full[name], exact[name], rtol=2e-6, atol=2e-6, msg=name)


@pytest.mark.parametrize("form", REFUSED)
def test_other_forms_are_refused_by_name(form: str, bases: Bases, in_memory: Nets, tmp_path: Path):
    settings, words = REFUSED[form]
    adapted(in_memory["float32"], tmp_path / "adapter", LoraConfig(r=2, **({"target_modules": ["q_proj"]} | settings)))
    refuses(bases["float32"], tmp_path / "adapter", tmp_path, words)


def refuses(base: Path, adapter: Path, tmp_path: Path, words: str, error: type[Exception] = ValueError) -> None:
    with pytest.raises(error, match=words):
        merge_adapter(base, adapter, tmp_path / "out" / "merged")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def adapter_dir(in_memory: Nets, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter by the judge's training settings, for the float32 base."""
    folder = tmp_path_factory.mktemp("adapter")
    adapted(in_memory["float32"], folder, lora(setting(lora_rank=4, lora_alpha=8)))
    return folder


def test_tied_embeddings_are_refused_by_name(tmp_path: Path):
    base = save_base(tmp_path / "tied", torch.float32, tied=True)
    net = load_model(base)
    for module in ("lm_head", "embed_tokens"):
        for way in ("target_modules", "modules_to_save"):
            adapted(net, tmp_path / way, LoraConfig(r=2, **({"target_modules": ["q_proj"]} | {way: [module]})))
            refuses(base, tmp_path / way, tmp_path, f"{module}.* ties")
    adapted(net, tmp_path / "other", lora(setting(lora_rank=2)))
    merge_adapter(base, tmp_path / "other", tmp_path / "merged")
    assert "lm_head.weight" not in stored(tmp_path / "merged")


@pytest.mark.parametrize("change", [{"hidden_size": 96}, {"text_layers": 3}, {"text_layers": 5}])
def test_an_adapter_of_another_base(adapter_dir: Path, tmp_path: Path, change: dict[str, int]):
    other = save_base(tmp_path / "other", torch.float32, tied=False, **change)
    refuses(other, adapter_dir, tmp_path, r"size mismatch for model.*_proj|does not fit the base: .*layers\.[34]\.")


def edited(adapter_dir: Path, folder: Path, edit: Callable[[dict, dict], object]) -> Path:
    """A copy of an adapter, with its tensors and its settings edited."""
    shutil.copytree(adapter_dir, folder)
    tensors, config = load_file(folder / "adapter_model.safetensors"), folder / "adapter_config.json"
    settings = json.loads(config.read_text())
    edit(tensors, settings)
    save_file(tensors, folder / "adapter_model.safetensors")
    config.write_text(json.dumps(settings))
    return folder


AB = (("A", 4, 48), ("B", 48, 4))
Q = "base_model.model.model.language_model.layers.2.self_attn.q_proj"
BROKEN: dict[str, tuple[Callable[[dict, dict], object], str]] = {
    "no B": (lambda t, c: t.pop(f"{Q}.lora_B.weight"), r"layers\.2\.self_attn\.q_proj\.lora_B\.weight is missing"),
    "unknown module": (
        lambda t, c: t.update({f"{Q}x.lora_{part}.weight": torch.zeros(n, m) for part, n, m in AB}),
        r"q_projx\.lora_A\.weight is not in the adapter of its settings",
    ),
    "unknown part": (lambda t, c: t.update({f"{Q}.lora_C": torch.zeros(2)}), r"q_proj\.lora_C is not in the adapter"),
    "another kind": (lambda t, c: c.update(peft_type="IA3"), "IA3"),
    "no prefix": (lambda t, c: t.update({"q_proj.lora_A.weight": torch.zeros(2)}), r"q_proj\.lora_A\.weight"),
    "integers": (lambda t, c: t.update({f"{Q}.lora_A.weight": torch.zeros(4, 48, dtype=torch.int8)}), "I8"),
    "another rank": (lambda t, c: c.update(r=8), r"size mismatch for .*\(4, \d+\) in the adapter, \(8, \d+\)"),
    "not finite": (lambda t, c: t[f"{Q}.lora_A.weight"].fill_(torch.nan), r"q_proj\.lora_A\.weight .* not finite"),
    "one saved module too few": (lambda t, c: c.update(modules_to_save=["lm_head"]), r"lm_head\.weight is missing"),
    "a form of tomorrow": (lambda t, c: c.update(use_somelora={"a": 1}), "use_somelora"),
    "nothing": (lambda t, c: t.clear(), "is missing"),
    "an empty shard": (lambda t, c: t.update({f"{Q}.lora_A.weight": torch.zeros(0)}), r"mismatch for .* \(0,\) in the"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_adapters(fault: str, bases: Bases, adapter_dir: Path, tmp_path: Path):
    edit, words = BROKEN[fault]
    adapter = edited(adapter_dir, tmp_path / "adapter", edit)
    refuses(bases["float32"], adapter, tmp_path, words)
    if fault in ("no B", "not finite"):
        with pytest.raises(FileError, match=r"adapter does not fit the base: .* is missing|not finite"):
            local_model.load(bases["float32"], adapter=adapter)


def test_a_fault_of_the_disk(bases: Bases, adapter_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a thread, with many pieces before and after: nothing has the final name, and no thread is left."""
    monkeypatch.setattr(merge, "BLOCK", 100)
    done, works = itertools.count(), merge._merged

    def fails(*arguments: Any) -> Any:
        if next(done) == 50:
            raise OSError(errno.EIO, "the disk is broken")
        return works(*arguments)

    monkeypatch.setattr(merge, "_merged", fails)
    with pytest.raises(OSError, match="the disk is broken"):
        merge_adapter(bases["float32"], adapter_dir, tmp_path / "out" / "merged")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]
    assert list((tmp_path / "out").iterdir()) == []
    assert next(done) < 1000, "of more than a thousand: how many are under way then is the machine's"


@pytest.mark.parametrize("block", [2000, 1])
def test_blocks_of_any_size(block, bases, adapter_dir, tmp_path, monkeypatch):
    merge_adapter(bases["float32"], adapter_dir, tmp_path / "expected", "bfloat16")
    monkeypatch.setattr(merge, "BLOCK", block)
    merge_adapter(bases["float32"], adapter_dir, tmp_path / "merged", "bfloat16")
    expected = stored(tmp_path / "expected")
    for name, value in stored(tmp_path / "merged").items():
        torch.testing.assert_close(value, expected[name], **ONE_STEP, msg=name)
    records = [json.loads((tmp_path / name / "merge.json").read_text()) for name in ("expected", "merged")]
    assert records[0] == records[1]
    for file in bases["float32"].glob("*.safetensors"):
        assert records[1]["base"]["sha256"][file.name] == sha256(file)


def test_pickled_adapters_are_refused(bases: Bases, adapter_dir: Path, tmp_path: Path):
    shutil.copytree(adapter_dir, tmp_path / "adapter", ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save({}, tmp_path / "adapter" / "adapter_model.bin")
    refuses(bases["float32"], tmp_path / "adapter", tmp_path, "safetensors only", FileError)
    with pytest.raises(FileError, match="safetensors only"):
        local_model.load(bases["float32"], adapter=tmp_path / "adapter")


def broken_base(base: Path, folder: Path, name: str, edit: Callable[[dict], object]) -> Path:
    shutil.copytree(base, folder)
    content = json.loads((folder / name).read_text())
    edit(content)
    (folder / name).write_text(json.dumps(content))
    return folder


def test_broken_bases(bases: Bases, adapter_dir: Path, tmp_path: Path):
    base, index = bases["float32"], "model.safetensors.index.json"
    quantised = broken_base(base, tmp_path / "a", "config.json", lambda c: c.update(quantization_config={"bits": 4}))
    refuses(quantised, adapter_dir, tmp_path, "quantization_config")
    other = broken_base(base, tmp_path / "b", "config.json", lambda c: c.update(model_type="qwen3"))
    refuses(other, adapter_dir, tmp_path, "holds a qwen3 model")
    strange = broken_base(base, tmp_path / "s", "config.json", lambda c: c["vision_config"].update(model_type=[1]))
    refuses(strange, adapter_dir, tmp_path, r"config\.json: unhashable type")
    lost = broken_base(base, tmp_path / "c", index, lambda c: c["weight_map"].pop("lm_head.weight"))
    refuses(lost, adapter_dir, tmp_path, r"do not agree on lm_head\.weight")
    outside = broken_base(base, tmp_path / "d", index, lambda c: c["weight_map"].update({"x": "../x.safetensors"}))
    refuses(outside, adapter_dir, tmp_path, r"names \.\./x\.safetensors")
    (lost / index).unlink()
    refuses(lost, adapter_dir, tmp_path, "no weights in safetensors", FileNotFoundError)
    (other / "processor_config.json").unlink()
    broken_base(other, tmp_path / "e", "config.json", lambda c: c.update(model_type="qwen3_vl"))
    refuses(tmp_path / "e", adapter_dir, tmp_path, "no processor", FileNotFoundError)


@each_row("change, words")
def test_adapters_with_broken_settings(change, words, bases, adapter_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(merge_adapters, "SECONDS", 2.0)
    broken = broken_base(adapter_dir, tmp_path / "broken", "adapter_config.json", lambda config: config.update(change))
    refuses(bases["float32"], broken, tmp_path, words)
    with pytest.raises(FileError, match=words):
        local_model.load(bases["float32"], adapter=broken)


@pytest.mark.parametrize("field", ["rank_pattern", "alpha_pattern", "modules_to_save", "layers_pattern"])
def test_every_pattern_that_peft_matches_is_one_that_ends(field, monkeypatch):
    monkeypatch.setattr(merge_adapters, "SECONDS", 2.0)
    names = ["model.language_model.layers.2.self_attn.q_proj"]
    for good in ({"q_proj": 1}, {r"layers\.[23]\..*": 1}, {}, None):
        merge_adapters.check_patterns(Path(), {field: good if "_pattern" in field else list(good or ())}, names)
    broken = [("(q", "is no regular expression")]
    broken += [("(([a-z_.0-9])+)+!", "takes too long to match")] if field == "rank_pattern" else []
    for pattern, words in broken:
        with pytest.raises(FileError, match=f"{field}: .* {words}"):
            merge_adapters.check_patterns(Path(), {field: {"k": 1, pattern: 1}}, names)


@pytest.mark.parametrize("name", [f"{Q}.lora_C", f"{Q.replace('.2', '.99')}.lora_A.weight", f"{Q}.base_layer.weight"])
def test_a_tensor_that_is_not_the_adapters_is_refused_by_both_readers(name, bases, adapter_dir, tmp_path) -> None:
    adapter = edited(adapter_dir, tmp_path / "more", lambda tensors, _: tensors.update({name: torch.zeros(48, 48)}))
    refuses(bases["float32"], adapter, tmp_path, "is not in the adapter")
    with pytest.raises(FileError, match=r"does not fit the base: .* is not its own"):
        local_model.load(bases["float32"], adapter=adapter)


def test_what_is_dead_changes_nothing_at_all(in_memory: Nets, bases: Bases, tmp_path: Path):
    """Zeros in each lora_B, as training begins; not where a module was trained whole beside them."""
    for name, more in (("dead", {}), ("dead DoRA", {"use_dora": True}), ("alive", {"modules_to_save": ["lm_head"]})):
        config = LoraConfig(r=2, target_modules=["q_proj"], **more)
        adapted(in_memory["float32"], tmp_path / "trained", config)
        edited(tmp_path / "trained", tmp_path / name, lambda t, _: [t[n].zero_() for n in t if ".lora_B." in n])
        if name != "alive":
            refuses(bases["float32"], tmp_path / name, tmp_path, "is dead")
    merge_adapter(bases["float32"], tmp_path / "alive", tmp_path / "merged")
    before, after = stored(bases["float32"]), stored(tmp_path / "merged")
    assert [n for n in before if not torch.equal(before[n], after[n])] == ["lm_head.weight"]
    local_model.load(bases["float32"], adapter=tmp_path / "alive")


def test_a_base_that_is_not_finite_is_not_merged(bases: Bases, adapter_dir: Path, tmp_path: Path):
    shutil.copytree(bases["float32"], tmp_path / "base")
    file = max((tmp_path / "base").glob("*.safetensors"))
    name, *_ = tensors = load_file(file)
    save_file(tensors | {name: tensors[name] * float("inf")}, file, metadata={"format": "pt"})
    with pytest.raises(FileError, match=f"{name} holds values that are not finite"):
        merge_adapter(tmp_path / "base", adapter_dir, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [b"", b"\x08\0\0\0\0\0\0\0not json", b"\xff" * 64, "cut"])
def test_what_is_no_whole_safetensors_file(data: bytes | str, tmp_path: Path):
    save_file({"a": torch.zeros(4), "b": torch.ones(3, 5).half()}, tmp_path / "x")
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-1] if isinstance(data, str) else data)
    with pytest.raises(ValueError, match="no whole safetensors file"):
        merge.read_header(tmp_path / "x")


def test_the_library_reads_what_is_written(bases: Bases, adapter_dir: Path, tmp_path: Path):
    base = shutil.copytree(bases["bfloat16"], tmp_path / "base")
    (base / "LICENSE").write_text("ours")
    merge_adapter(base, adapter_dir, tmp_path / "merged")
    for file in (tmp_path / "merged").glob("*.safetensors"):
        assert int.from_bytes(file.read_bytes()[:8], "little") % 8 == 0
        with safe_open(file, "pt") as opened, safe_open(base / file.name, "pt") as before:
            assert opened.metadata() == before.metadata() == {"format": "pt"}
            assert list(opened.keys()) == list(before.keys())
    for name in ("config.json", "tokenizer.json", "generation_config.json", "chat_template.jinja", "LICENSE"):
        assert (tmp_path / "merged" / name).read_bytes() == (base / name).read_bytes()
    index = json.loads((tmp_path / "merged" / "model.safetensors.index.json").read_text())
    assert index == json.loads((base / "model.safetensors.index.json").read_text())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtype_of_the_result(dtype: Precision, bases: Bases, adapter_dir: Path, tmp_path: Path):
    other = "bfloat16" if dtype == "float32" else "float32"
    base = bases[other]
    merge_adapter(base, adapter_dir, tmp_path / "merged", dtype)
    assert json.loads((base / "config.json").read_text())["dtype"] == other, "the base stays as it is"
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert config["dtype"] == dtype
    exact = PeftModel.from_pretrained(load_model(base), str(adapter_dir)).merge_and_unload().state_dict()
    merged = stored(tmp_path / "merged")
    size = sum(value.nbytes for value in merged.values())
    index = json.loads((tmp_path / "merged" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == size
    for name, value in merged.items():
        torch.testing.assert_close(value.float(), exact[name], rtol=2e-6 if dtype == "float32" else 1e-2, atol=2e-6)
    assert load_model(tmp_path / "merged", dtype).dtype == merged[name].dtype


def test_card_and_provenance_are_the_same_from_any_place(bases: Bases, adapter_dir: Path, tmp_path: Path):
    for place in ("a", "b"):
        shutil.copytree(bases["float32"], tmp_path / place / "base")
        shutil.copytree(adapter_dir, tmp_path / place / "adapter")
        config = tmp_path / place / "adapter" / "adapter_config.json"
        (config.parent / "train_settings.json").write_text('{"rank": 4}')
        (config.parent / "trainer_state.json").write_text('{"best_metric": NaN}')  # of the transformers' trainer
        merge_adapter(tmp_path / place / "base", tmp_path / place / "adapter", tmp_path / place / "merged")
    assert weights_hash(tmp_path / "a" / "merged") == weights_hash(tmp_path / "b" / "merged")
    card = (tmp_path / "a" / "merged" / "README.md").read_text()
    record = json.loads((tmp_path / "a" / "merged" / "merge.json").read_text())
    assert "rank 4, alpha 8" in card
    assert record["tensors"]["all"] == len(stored(bases["float32"])) > record["tensors"]["changed"] > 0
    assert str(tmp_path) not in card + json.dumps(record)
    assert record["adapter"]["training"] == {"train_settings.json": {"rank": 4}}
    assert record["base"]["sha256"]["config.json"] == sha256(bases["float32"] / "config.json")
    shards = {file.name for file in bases["float32"].glob("*.safetensors")}
    assert shards < set(record["base"]["sha256"])


def test_the_bases_questions_are_merged_where_the_adapter_has_none(bases, adapter_dir, tmp_path):
    base, adapter = (shutil.copytree(each, tmp_path / each.name) for each in (bases["float32"], adapter_dir))
    (base / "rater_rubrics").mkdir()
    for name in ("rater_rubrics/any.yaml", "judge_prompt.yaml"):
        (base / name).write_text(name)
    for own in (False, True):
        if own:
            (adapter / "judge_prompt.yaml").write_text("the adapter's")
        merge_adapter(base, adapter, tmp_path / "merged")
        read = json.loads((tmp_path / "merged" / "merge.json").read_text())
        rubrics = "rater_rubrics/any.yaml" in read["base"]["sha256"]
        assert (tmp_path / "merged" / "rater_rubrics" / "any.yaml").is_file() == rubrics == (not own)
        words = (tmp_path / "merged" / "judge_prompt.yaml").read_text()
        assert words == ("the adapter's" if own else "judge_prompt.yaml")
        assert "judge_prompt.yaml" in read["adapter" if own else "base"]["sha256"]


def test_an_existing_result_is_replaced_and_nothing_else(bases: Bases, adapter_dir: Path, tmp_path: Path):
    base, out = bases["float32"], tmp_path / "merged"
    out.mkdir()
    merge_adapter(base, adapter_dir, out)
    (out / "stale.safetensors").touch()
    merge_adapter(base, adapter_dir, out)
    assert not (out / "stale.safetensors").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    for place in (tmp_path / "home", tmp_path / "home" / "letter", base, base.parent, adapter_dir):
        with pytest.raises(FileExistsError):
            merge_adapter(base, adapter_dir, place)
    assert (tmp_path / "home" / "letter").exists()


def test_a_disk_that_is_too_small(bases: Bases, adapter_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(OSError, match=r"GB free") as raised:
        merge_adapter(bases["float32"], adapter_dir, tmp_path / "out" / "merged")
    assert raised.value.errno == errno.ENOSPC
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("before", [False, True])
def test_killed_in_the_middle(before: bool, bases: Bases, adapter_dir: Path, tmp_path: Path, monkeypatch):
    """SIGKILL while it writes: the old result stays, or none; meanwhile no other may write; the next run works."""
    merged = merge._merged
    base, out = bases["float32"], tmp_path / "merged"
    if before:
        merge_adapter(base, adapter_dir, out, "bfloat16")
    kept = weights_hash(out) if before else None
    monkeypatch.setattr(merge, "_merged", lambda *given: time.sleep(0.2) or merged(*given))
    process = get_context("fork").Process(target=merge_adapter, args=(base, adapter_dir, out))
    process.start()
    monkeypatch.undo()
    new = tmp_path / ".merged.merge-new"
    while not list(new.glob("*.safetensors")):
        assert process.is_alive()
        time.sleep(0.05)
    with pytest.raises(BlockingIOError, match="another process"):
        merge_adapter(base, adapter_dir, out)
    process.kill()
    process.join()
    assert list(new.glob("*.safetensors"))
    assert not (new / "README.md").exists()
    assert (weights_hash(out) == kept) if before else not out.exists()
    merge_adapter(base, adapter_dir, out)
    assert (out / "README.md").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"merged"}


@each_row("file, content")
def test_a_broken_file_beside_an_adapter_is_named(file, content, bases, adapter_dir, tmp_path):
    shutil.copytree(adapter_dir, tmp_path / "adapter")
    (tmp_path / "adapter" / file).write_text(content)
    with pytest.raises(FileError, match=file):
        merge_adapter(bases["float32"], tmp_path / "adapter", tmp_path / "out")
    assert not (tmp_path / "out").exists()
