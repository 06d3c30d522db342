"""WiseEdit (arXiv 2512.00387): edits that need knowledge or imagination, of one to four photos, in English and Chinese.

A metric is the mean over a category's cases, on a scale of 0 to 100 with one digit; a category the mean of its metrics,
the suite the mean of its categories. The hardest cases stand apart, `complex`, the mean over both languages.

Defects of run_eval.py and statistic.py at the pinned commit, which the boards `published` have too: a case without a
reply or an edit in one language leaves the other as well; a folder of cases without any edit counts as rated, with the
lowest scores; and the judge is told the English instruction of a Chinese case, which `wiseedit_mended` tells as the
editing model was. The boards `mended` leave out what has no reply, and nothing else. A score with a fraction, which the
script cuts, is unscored."""

import json
import re
from functools import partial
from itertools import product

from editjudge.benchmarks.suites.suite import Case, Rated, SuiteBoard, mean_first, read
from editjudge.core.keys import plain
from editjudge.core.reading import Record
from editjudge.core.tables import RowError

BASIC, COMPLEX = ("Awareness", "Interpretation", "Imagination"), "Complex"
LANGUAGES = {"en": "prompt", "cn": "promptcn"}  # the columns of what editing models are told
SHORT = ("DP", "IF", "VQ", "KF", "CF")
OF = {name: ("DP", "IF", "VQ", "CF" if name == "Imagination" else "KF") for name in BASIC} | {COMPLEX: SHORT}
MOST = 5  # photos, and references, of a case
NUMBERED = [f"_{n}" if n > 1 else "" for n in range(1, MOST + 1)]


def cases(record: Record) -> list[Case]:
    """{idx, prompt, promptcn, hint, ref, input_1 to input_n} in <category>_<n>.csv; image paths are relative to the
    data set's folder. A case of each language."""
    subset = record.file.stem
    if not (found := re.fullmatch(r"(?:WiseEdit_)?(\w+?)_(\d)", subset)) or found[1] not in OF:
        raise RowError("no case", f"{subset}.csv is none of {', '.join(f'{name}_N.csv' for name in OF)}")
    number, given = record.identifier("idx"), (record.get(f"input_{n}") for n in range(1, int(found[2]) + 1))
    source, *more = [each for each in given if each] or [record["input_1"]]
    if max(len(more) + 1, len(right := references(record.get("ref") or ""))) > MOST:
        raise RowError("too many images", f"{len(more) + 1} photos, {len(right)} references: {MOST} of each at most")
    shown = dict(zip((f"source{each}" for each in NUMBERED[1:]), more, strict=False))
    shown |= dict(zip((f"truth{each}" for each in NUMBERED), right, strict=False))
    texts = {"english": record.text("prompt"), "kind": f"{found[1]}_{'multi' if more else 'single'}"}
    texts |= {"hint": hint} if (hint := (record.get("hint") or "").strip()) else {}

    def case(tongue: str, column: str) -> Case:
        kind = f"{COMPLEX}_{tongue}" if found[1] == COMPLEX else found[1]
        key, file, words = plain(f"{subset}-{number}.{tongue}"), f"{subset}/{tongue}/{number}", record.text(column)
        return Case(key, kind, words, source, file=file, language=tongue, images=shown, texts=texts)

    return [case(*each) for each in LANGUAGES.items()]


def references(cell: str) -> list[str]:
    """Paths in a cell: a list or a text in JSON, or texts with | or ; between them."""
    try:
        said = json.loads(cell)
    except (ValueError, RecursionError):
        said = cell.split("|" if "|" in cell else ";")
    return [each for one in (said if isinstance(said, list) else [said]) if (each := str(one).strip())]


def among(part: str, published: bool, rated: list[Rated]) -> list[Rated]:
    """What counts for a language, or for `complex`. published: a case counts in both languages or in none, and a folder
    without any edit as rated with the lowest scores."""
    folder, of = (lambda row: row["key"].rpartition("-")[0]), lambda row: (row["run"], row["key"].rpartition(".")[0])
    if published:
        edited = {folder(row) for row, _ in rated if not (row["reason"] or "").startswith("no edit")}
        lost = {of(row) for row, scores in rated if not scores and folder(row) in edited}
        lowest = {name: mean_first(dict.fromkeys(metrics, 1.0)) for name, metrics in OF.items()}
        rated = [(row, s or lowest[row["type"].partition("_")[0]]) for row, s in rated if of(row) not in lost]
    return [(row, s) for row, s in rated if part == (row["language"] if row["type"] in BASIC else COMPLEX.lower())]


def percent_of(mean: float) -> float:
    """In the script's order of steps, so that the rounding which follows sees the same bits."""
    return (mean - 1.0) / 9.0 * 100.0


BOARDS = tuple(
    SuiteBoard({"scores": scores, "part": part}, mean_first, partial(among, part, scores == "published"))
    for scores, part in product(("published", "mended"), (*LANGUAGES, COMPLEX.lower()))
)
WISEEDIT = read("wise", cases, *BOARDS, scale=percent_of)
MENDED = read("wise", cases, *BOARDS[3:], mended=True, scale=percent_of)
