"""The reward benchmarks of 2025 and 2026 in their published layout, and what 300 made-up replies come to by their
public scripts' rules, which are written down here once more."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from benchmark_files import mmrb2, save
from pictures import picture as png
from scipy import stats
from table_files import jsonl, parquet

from editjudge.benchmarks import report
from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import Item
from editjudge.core.tables import TableError
from editjudge.judges.protocol import BothOrders, Verdict

N = 300
OTHER = {"A": "B", "B": "A"}
SOURCE = Path(report.__file__).parent
Figures = dict[str, float | None]


def pictures(folder: Path) -> None:
    save(folder, **{str(seed): seed for seed in range(6)})


def load(form: str, path: Path, **more) -> list[Item]:
    return forms.load("bench", {"form": form, "path": str(path)} | more)


def figures(form: str, items: list[Item], said: dict[str, dict], column: str = "value") -> Figures:
    rows = report.to_verdicts("j", items, said)
    [judge] = report.summarised(form, items, {"j": rows})["judges"]
    for row in judge["published"]:
        assert row["low"] is None or row["low"] <= row["value"] <= row["high"]
    return {row["name"]: row[column] for row in judge["published"]}


def scored(items: list[Item], better: np.ndarray, other: np.ndarray) -> dict[str, dict]:
    """Answers by scores of the edit that is published first, and of the other one."""
    said = {}
    for item, scores in zip(items, zip(better.tolist(), other.tolist(), strict=True), strict=True):
        a, b = reversed(scores) if item.a == png(2) else scores
        said[item.key] = report._said(None, a, b)
    return said


def test_compass_counts_as_its_script_would(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    of, labels = rng.choice(["IA", "VC", "VQ"], N, p=[0.66, 0.27, 0.07]), rng.choice(["preference", "tie"], N)
    same = {"source_image": "0.png", "prompt": "Go.", "winner": "1.png", "loser": "2.png"}
    rows = [same | {"dimension": str(d), "label": str(label)} for d, label in zip(of, labels, strict=True)]
    pictures(tmp_path)
    (tmp_path / "reward_eval.json").write_text(json.dumps(rows))
    items = load("compass", tmp_path / "reward_eval.json")
    assert {item.verdict for item in items} == {"Image A", "Image B", "Tie"}, "the better one is not always A"
    assert {item.dimension for item in items} == {"prompt_following", "visual_consistency", "visual_quality"}
    first, second = rng.integers(1, 5, N) / 2, rng.integers(1, 5, N) / 2 + rng.choice([0, 5e-6, 2e-5], N)
    found = figures("compass", items, scored(items, first, second))
    right: dict[str, list[bool]] = {"IA": [], "VC": [], "VQ": []}
    for row, one, two in zip(rows, first, second, strict=True):
        right[row["dimension"]].append(one > two + 1e-5 if row["label"] == "preference" else abs(one - two) < 1e-5)
    share = {name: sum(own) / len(own) for name, own in right.items()}
    named = {f"EditReward-Compass accuracy, {report.COMPASS[of]}": value for of, value in share.items()}
    named["EditReward-Compass accuracy, mean over pairs"] = sum(map(sum, right.values())) / N
    named["EditReward-Compass accuracy, mean over dimensions"] = sum(share.values()) / 3
    assert found == pytest.approx(named, abs=1e-6)
    assert sorted(figures("compass", items, scored(items, first, second), "n").values()) == sorted(
        [*map(len, right.values()), N, N]
    ), "each figure tells of how many pairs it is"
    near = {item.key: BothOrders(*[Verdict(item.key)] * 3, (0.99994, 0.99991)).score_columns() for item in items}
    a = {item.key: item.verdict == "Image A" for item in items if item.verdict != "Tie" and item.task == "VC"}
    found = figures("compass", items, {key: report._said(None, *near[key].values()) for key in a})
    named = {f"EditReward-Compass accuracy, {name}" for name in ("visual consistency", "mean over pairs")}
    assert {*found} == named | {"EditReward-Compass accuracy, mean over dimensions"}, "what was not asked is no zero"
    of_vc = [item for item in items if item.task == "VC"]
    assert set(found.values()) == {sum(a.values()) / len(of_vc)}, "a hair's difference is one"


def test_mmrb2_counts_each_order_and_says_which_prompts_have_several_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [mmrb2(f"p{n}", str(chosen), 2 if n % 10 == 0 else 1) for n, chosen in enumerate(rng.choice(["A", "B"], N))]
    pictures(tmp_path)
    (tmp_path / "edit.json").write_text(json.dumps({"pairs": rows}))
    (tmp_path / "t2i.json").write_text("[]")
    items = load("mmrb2", tmp_path)
    assert (items[0].failed, items[0].verdict) == ("prompt has 2 images: a judge is shown one", None)
    assert (items[1].source, items[1].a, items[1].b, items[1].instruction) == (png(0), png(1), png(2), "Go.")
    words = {"A": "Image A", "B": "Image B", "T": "Tie", "": None}
    replies = rng.choice(list(words), (N, 2), p=[0.4, 0.4, 0.1, 0.1]).tolist()  # of the second order as it was shown
    said = {
        item.key: {"forward": words[one], "backward": words[OTHER.get(two, two)], "winner": None}
        for item, (one, two) in zip(items, replies, strict=True) if item.failed is None
    }  # fmt: skip
    correct = total = asked = 0
    for row, (one, two) in zip(rows, replies, strict=True):
        if len(row["prompt_content"]) == 2:
            asked += 2
            for judgement in (one, OTHER.get(two, two)):
                total += bool(judgement)
                correct += judgement == row["chosen"]
    name = "MMRB2 editing accuracy of each order, one image"
    expected = {name: correct / total, f"{name}, unread ones wrong": correct / asked}
    assert figures("mmrb2", items, said) == pytest.approx(expected, abs=1e-6)


TIEDIT = {"perceptual_quality": "visual_quality", "editing_alignment": "prompt_following"}
TIEDIT |= {"content_preservation": "visual_consistency"}
RESPECTS = {"firm": {"execution": "prompt_following", "consistency": "visual_consistency"}, "tiedit": TIEDIT}
SPEARMAN = {"SRCC": stats.spearmanr, "KRCC": stats.kendalltau, "PLCC": stats.pearsonr}


@pytest.mark.parametrize("form", ["firm", "tiedit"])
def test_scores_are_held_against_peoples_over_all_edits(tmp_path: Path, form: str) -> None:
    """A third of the edits is alone with its prompt. FIRM-Bench: also a scorer in 0..1, and one on another scale."""
    rng, names = np.random.default_rng(2), list(RESPECTS[form])
    people = rng.integers(1, 6, (N, len(names))).astype(float) + (0 if form == "firm" else 20)
    prompts = [n if n % 3 else N + n for n in range(N)]
    rows = [
        {"source": f"{k // 3 % 2}.png", "edited": f"{1 + n % 5}.png", "instruction": f"Go {k // 3}.", "model": f"m{n}"}
        | dict(zip(names, own, strict=True)) for n, (k, own) in enumerate(zip(prompts, people.tolist(), strict=True))
    ]  # fmt: skip
    pictures(tmp_path)
    items = load(form, jsonl(tmp_path / "rows.jsonl", *rows))
    assert {item.size for item in items} >= {1, 2}
    files = [row | {name: (tmp_path / row[name]).read_bytes() for name in ("source", "edited")} for row in rows]
    inside = load(form, parquet(tmp_path / "rows.parquet", files))
    assert Counter(item.size for item in inside) == Counter(item.size for item in items)
    assert {item.task: item.dimension for item in items} == RESPECTS[form]
    given = np.clip(people + rng.normal(0, 2, people.shape), 1, 5 if form == "firm" else None)

    def found(scores: np.ndarray) -> Figures:
        of = {(names[k], f"m{n}"): scores[n, k] for n in range(N) for k in range(len(names))}
        both = {item.key: [float(of[item.task, model]) for model in item.models or ()] for item in items}
        return figures(form, items, {key: report._said(None, *sides) for key, sides in both.items()})

    expected = {}
    for k, name in enumerate(names):
        if form == "tiedit":
            expected |= {f"TIEdit {w}, {name}": of(given[:, k], people[:, k])[0] for w, of in SPEARMAN.items()}
            continue
        expected |= {f"FIRM-Bench MAE, {name}": np.abs(given[:, k] - people[:, k]).mean()}
    assert found(given) == pytest.approx(expected, abs=1e-6)
    if form == "firm":
        assert found((given - 1) / 4) == pytest.approx(expected, abs=1e-6)
        assert not found(given * 10)
        assert found(np.full(people.shape, 3.0))["FIRM-Bench MAE, execution"] == np.abs(3 - people[:, 0]).mean()


def test_pairs_of_ones_own(tmp_path: Path) -> None:
    pictures(tmp_path)
    row = {"prompt": "Go.", "image": "0.png", "chosen": "1.png", "rejected": "2.png"}
    rows = [row | {"id": n, "subset": "easy" if n % 4 else "hard"} for n in range(N)]
    items = load("rewardbench", jsonl(tmp_path / "rows.jsonl", *rows, row | {"chosen": "none.png"}))
    assert items[-1].failed == "image missing: none.png"
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 4, (2, N))
    found = figures("rewardbench", items[:-1], scored(items[:-1], first, second))
    hard, right = np.arange(N) % 4 == 0, first > second
    expected = {"mean over subsets": (right[hard].mean() + right[~hard].mean()) / 2, "of all pairs": right.mean()}
    assert found == pytest.approx({f"RewardBench accuracy, {name}": own for name, own in expected.items()}, abs=1e-6)


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    for form, rows, error in (
        ("mmrb2", {"rows": []}, r"edit\.json: no list `pairs`"),
        ("mmrb2", {"pairs": [mmrb2("p", "A") | {"prompt_content": 0}]}, "prompt: a list of .kind, value. expected"),
        ("firm", [{"instruction": "Go."}], "row 0: missing field: none of exec"),
    ):
        (tmp_path / "edit.json").write_text(json.dumps(rows))
        with pytest.raises(TableError, match=error):
            load(form, tmp_path)


def test_every_published_figure_has_its_source_and_a_figure_of_ours() -> None:
    given = yaml.safe_load((SOURCE / "published.yaml").read_text())
    code = "".join((SOURCE / name).read_text() for name in ("report.py", "figures.yaml"))
    for form, entries in given.items():
        assert form in forms.FORMS
        for entry in entries:
            assert entry["source"], entry
            assert entry["protocol"], entry
            assert entry["figure"].rpartition(", ")[0].partition(" all")[0] in code, entry
            assert all(0 < value < 1 for value in entry["judges"].values())
