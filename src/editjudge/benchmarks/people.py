"""People's yes and no about the dialogues of a suite of several turns, from a table, and how far people agree.

CSV: id (the dialogue), model, rater, and content_memory, content_understanding and version_backtracking, each yes or
no, or empty where the question does not apply. These are ImgEdit-Bench's multi-turn suite's (arXiv 2505.20275)."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from editjudge.core import reading
from editjudge.core.tables import RowError, TableError
from editjudge.statistics import clustered
from editjudge.statistics.agreement import krippendorff_alpha

ASPECTS = ("content_memory", "content_understanding", "version_backtracking")
WORDS = {"yes": "yes", "y": "yes", "1": "yes", "true": "yes", "no": "no", "n": "no", "0": "no", "false": "no"}
VALUES = ("no", "yes")
Answers = dict[tuple[str, str], dict[str, dict[str, str | None]]]  # (dialogue, model) -> rater -> aspect -> answer


def read(path: Path, dialogues: Sequence[str]) -> Answers:
    """The table's answers. Raises TableError that names file, row and field."""
    found: Answers = {}
    for record in reading.read(reading.Table(path=str(path))):
        try:
            key, model, rater = map(record.text, ("id", "model", "rater"))
            if key not in dialogues:
                raise RowError(f"field id: the suite has no dialogue {key!r:.80}")
            if missing := [name for name in ASPECTS if name not in record.values]:
                raise RowError(f"no column {', '.join(missing)}")
            if rater in (raters := found.setdefault((key, model), {})):
                raise RowError(f"{rater} has answered already about {key} by {model}")
            words = {name: (record.get(name) or "").strip().lower() for name in ASPECTS}
            for name in (name for name, word in words.items() if word and word not in WORDS):
                raise RowError(f"field {name}: yes or no expected, not {record.get(name)!r:.40}")
            raters[rater] = {name: WORDS.get(word) for name, word in words.items()}
        except RowError as error:
            raise TableError(f"{path}: row {record.number}: {error}") from error
    return found


def report(answers: Answers) -> dict[str, Any]:
    """models: for each and each aspect the share of yes (the mean over a dialogue's raters, then over dialogues) with
    its 95 % interval over dialogues, and how many answers there are and lack. agreement: Krippendorff's alpha, by
    aspect; None with one rater."""
    raters = sorted({rater for own in answers.values() for rater in own})
    asked, agreement = sorted(answers), []
    for aspect in ASPECTS:
        said = [[answers[each].get(rater, {}).get(aspect) for each in asked] for rater in raters]
        alpha = krippendorff_alpha(said, VALUES, [dialogue for dialogue, _ in asked]) if len(raters) > 1 else None
        names = ("alpha", "low", "high", "n", "scored", "unscored", "answers")
        agreement.append({"aspect": aspect} | {name: alpha and alpha[name] for name in names})
    models = [
        {"model": model, "aspects": [_share(answers, model, name) for name in ASPECTS]}
        for model in sorted({model for _, model in answers})
    ]
    return {"raters": raters, "models": models, "agreement": agreement}


def _share(answers: Answers, model: str, aspect: str) -> dict[str, Any]:
    said = {dialogue: [each[aspect] for each in own.values()] for (dialogue, by), own in answers.items() if by == model}
    known = {dialogue: [word == "yes" for word in words if word is not None] for dialogue, words in said.items()}
    shares = {dialogue: fmean(words) for dialogue, words in sorted(known.items()) if words}
    found = clustered.share(list(shares.values()), list(shares)) if shares else None
    value = {"yes": None, "low": None, "high": None} if found is None else {"yes": found.value, **found.ends()}
    given = sum(map(len, known.values()))
    counts = {"dialogues": len(shares), "answers": given, "unanswered": sum(map(len, said.values())) - given}
    return {"aspect": aspect, **value, **counts}
