"""UniREditBench (arXiv 2511.01295): edits that need reasoning, in the real world and in games, with a reference image.

eval/gpt_eval_uniredit.py leaves out, as is done here, what has no edit or no readable reply. No board is mended."""

from editjudge.benchmarks.suites import rise
from editjudge.benchmarks.suites.suite import Case, Scores, SuiteBoard, percent, read
from editjudge.core.keys import plain
from editjudge.core.reading import Record

WEIGHTS = {"consistency": 0.3, "reasoning": 0.5, "quality": 0.2}


def cases(record: Record) -> list[Case]:
    """{name, idx, original_image_path, reference_image_path, instruction, rules?, reference_effect}; games have rules,
    which stand before the instruction."""
    name, number = record.text("name"), record.identifier("idx")
    words = [str(record.get("rules") or ""), record.text("instruction")]
    texts = {"reference": str(record.get("reference_effect") or "")}
    image, images = record["original_image_path"], {"truth": record["reference_image_path"]}
    about = "\n".join(filter(None, words))
    return [Case(plain(f"{name}-{number}"), name, about, image, file=f"{name}/{number}", images=images, texts=texts)]


def figures(scores: Scores) -> Scores:
    """In percent: the weighted score, whether all numbers are at their best, and each dimension."""
    score = sum(weight * scores[key] for key, weight in WEIGHTS.items())
    own = {key: percent(value, rise.SPAN) for key, value in scores.items()}
    return {"score": percent(score, rise.SPAN), "accuracy": 100.0 * (min(own.values()) == 100), **own}


UNIREDIT = read("uniredit", cases, SuiteBoard({"scores": "published"}, figures))
