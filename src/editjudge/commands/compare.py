"""Which of two edits kept better what had to stay? One comparison by judges of params.yaml, without the graph.

    python -m editjudge.commands.compare --source s.png --a a.png --b b.png --instruction "Make the car red"
    python -m editjudge.commands.compare ... --judge measures --task color_alter --box 30 20 66 52

A judge is asked in both orders of the edits; p(A) is its probability that A wins. --task or --measures prints region
measures of both edits, too. --html writes all of it, with the images, as one page. What was asked is kept in work/ and
not asked again.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from editjudge.core import images, params
from editjudge.core.errors import UserError
from editjudge.core.files import write_bytes
from editjudge.core.main import guarded
from editjudge.core.settings import known, section
from editjudge.judges import asking
from editjudge.judges.protocol import BothOrders, Context, Question, mirrored
from editjudge.measures.annotation import batch, direct, seen, slot_settings
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.names import DIRECTIONS
from editjudge.report.single import one_pair

Values: TypeAlias = Mapping[str, tuple[float | None, float | None]]


def compare(question: Question, judge: str, given: dict[str, Any]) -> BothOrders:
    """The verdicts of a judge on one question, as asked, with A and B exchanged, and the one over both.

    given: what `judges.<judge>` of params.yaml says. A verdict that there is none of has winner None and a reason.
    ParamsError and EndpointError: a judge that cannot be asked.
    """
    with asking.open_judge(f"judges.{judge}", given) as opened:
        [answer] = opened.compare([question])
    return answer


def compare_files(
    source: str | Path,
    a: str | Path,
    b: str | Path,
    instruction: str,
    judge: str,
    task: str | None = None,
    boxes: batch.Boxes = (),
    settings: Path = Path("params.yaml"),
) -> BothOrders:
    """`compare` of image files (PNG, JPEG or WebP) by a judge that `settings` names.

    task, boxes: what a judge by measures needs: whose recipe, and where the edit is, (x0, y0, x1, y1) in pixels, x1 and
    y1 exclusive. Raises ParamsError, EndpointError and OSError.
    """
    values = params.load(settings)
    judges = params.leaf(values, "judges")
    if judge not in judges:
        raise params.ParamsError(f"no judge {judge!r}; {known(judge, judges)}")
    setting = section(values, "measures", SlotSetting)
    context = None
    if task is not None:
        context = Context(slot_settings.configured(direct.recipe_of(task), setting), tuple(boxes), setting)
    question = Question("compared", instruction, *(Path(file).read_bytes() for file in (source, a, b)), context=context)
    return compare(question, judge, judges[judge])


def lines_of(judge: str, answer: BothOrders) -> Iterator[str]:
    """The verdict over both orders, and beneath it each order's, all winners in terms of the question."""
    asked = {"A, B": answer.forward, "B, A": mirrored(answer.backward)}
    for what, verdict in {
        judge: answer.combined,
        **{f"  asked as {order}": each for order, each in asked.items()},
    }.items():
        sure = "" if verdict.p_a is None else f"  p(A) {verdict.p_a:.3f}"
        yield f"{what:16}  {verdict.winner or f'no verdict: {verdict.reason}'}{sure}"


def measured(question: Question, names: Sequence[str], boxes: batch.Boxes, setting: SlotSetting) -> Values:
    """Each measure's values of A and B, None where there is none. UserError: nothing can be measured."""
    try:
        source, *edits = (images.decode(bytes(image)) for image in question.images.values())
        first, second = (direct.measure(source, edit, names, boxes, setting=setting) for edit in edits)
    except ValueError as error:
        raise UserError(f"measures: {error}") from None
    return {name: (value, second[name]) for name, value in first.items()}


def measure_lines(values: Values) -> Iterator[str]:
    """A line a measure: its values of A and B, and whose is better."""
    for name, (a, b) in values.items():
        if a is None or b is None:
            yield f"{name}  not measured of {'both' if a is b else 'A' if a is None else 'B'}"
            continue
        gain = DIRECTIONS[name.rpartition(".")[2]] * (a - b)
        yield f"{name}  A {a:.4f}  B {b:.4f}  {'equal' if gain == 0 else 'Image A' if gain > 0 else 'Image B'}"


def measured_rows(values: Values) -> list[dict[str, Any]]:
    """The measures as a page of the pair takes them."""
    names = [(*name.rpartition(".")[::2], two) for name, two in values.items()]
    return [{"area": area, "measure": m, "direction": DIRECTIONS[m], "values": two} for area, m, two in names]


def seen_of(question: Question, recipe: Recipe, boxes: batch.Boxes, setting: SlotSetting) -> tuple[list, list]:
    """What the models that the recipe's measures ask see: layers of the source, A and B, and the edits' differences."""
    pngs = [bytes(image) for image in question.images.values()]
    source, found = seen.seen(direct.prompt_of(pngs[0], pngs[1:], recipe, boxes), direct.asking_of(setting))
    edits = [each if isinstance(each, tuple) else ({}, None) for each in found]
    layers, differences = map(list, zip(*edits, strict=True))
    return [source or {"boxes": boxes}, *layers], differences


def run(options: argparse.Namespace) -> None:
    """Raises ParamsError before anything is asked, and UserError."""
    values = params.load(options.params)
    judges, boxes = params.leaf(values, "judges"), tuple(map(tuple, options.box))
    chosen = options.judge or [next(iter(judges))]
    for name in chosen:
        if name not in judges:
            raise params.ParamsError(f"--judge {name}: {known(name, judges)}")
    setting = section(values, "measures", SlotSetting)
    by_task = options.task is not None
    recipe = direct.recipe_of(options.task) if by_task else direct.recipe_for(options.measures, bool(boxes))
    recipe = slot_settings.configured(recipe, setting)
    context = Context(recipe, boxes, setting) if by_task else None
    names = [f"{area}.{name}" for area, own in recipe.areas for name in own]
    pictures = {name: getattr(options, name).read_bytes() for name in ("source", "a", "b")}
    if names and not boxes and {"image"} != {recipe.changed_area, *dict(recipe.areas)}:
        raise params.ParamsError("these measures need to know where the edit is: --box")
    question = Question("compared", options.instruction, **pictures, context=context)
    answers = {}
    for name in chosen:
        answers[name] = compare(question, name, judges[name])
        print("\n".join(lines_of(name, answers[name])), flush=True)
    figures = measured(question, names, boxes, setting) if names else {}
    if figures:
        print("\n".join(measure_lines(figures)))
    if options.html:
        text = one_pair(
            options.instruction,
            list(pictures.values()),
            (options.a.name, options.b.name),
            [{"judge": name} | answer.columns() for name, answer in answers.items()],
            measured_rows(figures),
            *seen_of(question, recipe, boxes, setting),
        )
        write_bytes(options.html, text.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    for name in ("source", "a", "b"):
        add(f"--{name}", type=Path, required=True, metavar="IMAGE", help="PNG, JPEG or WebP")
    add("--instruction", required=True, help="what was asked for")
    add("--judge", nargs="+", metavar="NAME", help="of `judges` in params.yaml; the first, if not given")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--task", help="measures of its recipe in pipelines/; a judge by measures needs it")
    what.add_argument(
        "--measures", nargs="+", default=[], metavar="M", help="such as ssim, or with an area, unedit_area.ssim"
    )
    add("--box", type=int, nargs=4, action="append", default=[], metavar=("X0", "Y0", "X1", "Y1"), help="of the edit")
    add("--html", type=Path, metavar="FILE", help="a page of the pair, to open in a browser")
    add("--params", type=Path, default=Path("params.yaml"), metavar="FILE")
    guarded("compare", run, parser.parse_args())


if __name__ == "__main__":
    main()
