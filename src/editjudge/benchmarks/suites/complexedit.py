"""Complex-Edit (arXiv 2504.13143): each photo, real or synthetic, with instructions of one to eight operations at once.

A rating is asked for twenty times (`--runs 20`), and a case's numbers are the means: instruction following, identity
preservation and perceptual quality, 0 to 10, and `score`, the mean of these three, which is the `Final overall` of
eval.py's log. Defects of eval.py at the pinned commit that move no mean, so that no board is mended: the cases come
back in the order in which they end, so that `overall/*.json` has one case's quality beside another one's alignment;
and `overall/final_result.json` has the quality alone. The script takes all *.png of a folder, in order, for the
cases of one level."""

from editjudge.benchmarks.suites.suite import Case, SuiteBoard, mean_first, read
from editjudge.core import reading
from editjudge.core.reading import Record
from editjudge.core.tables import RowError

LEVELS = range(1, 9)


def cases(record: Record) -> list[Case]:
    """{image, edit: {compound: [{compound_instruction}, ...]}} in files named after test_real or test_syn; a case of
    each level, `real_8/00000` and so on."""
    images = next((each for each in ("real", "syn") if f"test_{each}" in record.name), None)
    said = record["edit"].get("compound") if isinstance(record["edit"], dict) else None
    if images is None or not isinstance(said, list) or not all(isinstance(each, dict) for each in said):
        raise RowError("no case", "edit.compound is no list of objects, or the file is not of test_real or test_syn")
    key, shown, origin = f"{record.within:05d}", record["image"], f"{images}-{record.within}"
    words = [reading.text(each.get("compound_instruction"), "compound_instruction") for each in said[: len(LEVELS)]]
    levels = [(f"{images}_{level}", text) for level, text in zip(LEVELS, words, strict=False)]
    return [Case(f"{kind}-{key}", kind, text, shown, origin, f"{kind}/{key}") for kind, text in levels]


COMPLEX_EDIT = read("complexedit", cases, SuiteBoard({"scores": "published"}, mean_first))
