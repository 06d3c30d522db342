"""`editjudge serve page`: a page of this machine on which judges compare two edits, or people do (`--label`)."""

import asyncio
import json
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import Base64Bytes, BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from editjudge import api
from editjudge.cli.judging import is_tiny
from editjudge.cli.printing import Params
from editjudge.core import files, images, keys, reading, records, regions, scans
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.winner import OTHER_SIDE
from editjudge.editors.galleries.pictures import Given
from editjudge.engine.serving import Rejected, invalid, read_body
from editjudge.judges.protocol import CONSISTENCY, Dimension
from editjudge.models.serve.launch import free_port
from editjudge.report.page import FOLDER
from editjudge.rewards.reward_forms import MOST_CHARACTERS
from editjudge.rewards.rewards import refusal
from editjudge.statistics.agreement import cohen_kappa, folded

Pair = tuple[dict[str, Any], str, Sequence[Any]]  # what its answers say of it, the instruction, how its images are read
HOST = "127.0.0.1"
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'self'; "
POLICY += "style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; connect-src 'self'"
HEADERS = [("Content-Security-Policy", POLICY), ("X-Content-Type-Options", "nosniff")]
WHOLE = ("delta_e", "ssim")  # what is measured without a task; where a box is drawn:
PLACED = ("unedit_area.delta_e", "unedit_area.ssim", "edit_area.delta_e")


class ComparedPair(BaseModel, extra="forbid"):
    """What the page asks. source, a, b: images in base64. boxes: x0, y0, x1, y1 in pixels of the source."""

    source: Base64Bytes
    a: Base64Bytes
    b: Base64Bytes
    instruction: str = Field(max_length=MOST_CHARACTERS)
    judge: str
    dimension: Dimension
    task: str | None
    boxes: list[tuple[int, int, int, int]]


class JudgePage:
    """Two edits are dropped on it, and judged and measured, one pair at a time. A judge that was asked stays loaded."""

    def __init__(self, given: Path | None) -> None:
        self.given, self.opened, self.thread = given, dict[str, api.LoadedJudge](), ThreadPoolExecutor(1)
        values = settings.load_own(given)
        judges = {name: entry["backend"] for name, entry in values["judges"].items() if entry}
        self.told = {"judges": judges, "tiny": [name for name in judges if is_tiny(values, name)]}
        self.told["tasks"] = sorted(path.stem for path in settings.PIPELINES.glob("*_centric/*.yaml"))
        self.routes = [Route("/compare", self.compare, methods=["POST"])]

    def close(self) -> None:
        """Ends the judges, in the thread that opened them."""
        for judge in self.opened.values():
            self.thread.submit(judge.close).result()

    async def compare(self, request: Request) -> JSONResponse:
        try:
            pair = ComparedPair.model_validate_json(await read_body(request))
            return JSONResponse(await asyncio.get_running_loop().run_in_executor(self.thread, self.answer, pair))
        except (UserError, ValueError) as error:
            raise (invalid(error) if isinstance(error, ValidationError) else Rejected(400, str(error))) from None

    def answer(self, pair: ComparedPair) -> dict[str, Any]:
        """UserError, ValueError: a judge, an image or a box that cannot be used."""
        shown = pair.source, pair.a, pair.b
        (height, width, _), *_ = [scans.decode(each).shape for each in shown]
        boxes = [regions.clip_box(box, height, width, over=0) for box in pair.boxes]
        about: dict[str, Any] = {"task": pair.task, "boxes": boxes}
        names = () if pair.task else PLACED if boxes else WHOLE
        api.recipe_asked(pair.task, names, boxes, "draw a box on the source")
        if pair.judge not in self.told["judges"]:  # a folder, say
            raise UserError(f"there is no judge {pair.judge!r:.80}")
        if pair.judge not in self.opened:
            self.opened[pair.judge] = api.load_judge(pair.judge, params=self.given)
        found = self.opened[pair.judge].compare(*shown, pair.instruction, dimension=pair.dimension, **about)
        edits = [asdict(api.measure(pair.source, each, names, params=self.given, **about)) for each in shown[1:]]
        return asdict(found) | {"undecided": found.undecided, "edits": edits}


def pairs_of(label: str) -> Iterator[Pair]:
    """Every two edits of each prompt of a folder or the arena, with the keys of match files. RowError, TableError."""
    rows: Iterable[tuple[Any, Any]]
    if label == "arena":
        found = records.iterate(Path("data/gedit_bench.parquet"), "gedit_bench", "source_image.bytes")
        rows = ((row, partial(bytes, row["source_image"]["bytes"])) for row in found)
    else:
        table = reading.read(reading.Table(path=label, files="table.*", images=f"{label}/photos"))
        rows = ((row, partial(row.file_bytes, row.text("image"))) for row in table)
    of = Path("data/gallery").glob("*.parquet") if label == "arena" else Path(label).glob("edits/*/")
    given = {path.name.removesuffix(".parquet"): Given(path, path.name) for path in of}
    there = {name: {*own.listed()} for name, own in given.items()}
    for row, source in rows:
        prompt, about = str(row["key"]), {"task": row.get("task"), "origin": row.get("origin")}
        for a, b in combinations(sorted(name for name in given if prompt in there[name]), 2):
            own = {"key": f"{prompt}_pair_{a}_vs_{b}", "prompt": prompt, "model_a": a, "model_b": b} | about
            yield own, str(row["instruction"]), (source, partial(given[a], prompt), partial(given[b], prompt))


def read_said(paths: Iterable[Path], dimension: str) -> dict[str, dict[str, Any]]:
    """Who said what, by the pair's key, in this dimension, in files of judges' verdicts or of raters' answers."""
    said: dict[str, dict[str, Any]] = {}
    for path in paths:
        for row in reading.read(reading.Table(path=str(path))):
            if row.get("dimension") in (None, dimension):
                winner = None if row.get("winner") in (None, "Failed") else folded(row["winner"])
                said.setdefault(row.get("judge") or path.stem, {})[row["key"]] = winner
    return said


class LabelPage:
    """People compare edits, all in one order of pairs, so that many are answered by several. Which edit is A depends on
    rater and pair. The page is told no model's name, and gets images without what else their files say."""

    def __init__(self, label: str, folder: Path, verdicts: Sequence[Path], dimension: str) -> None:
        self.folder, self.told = folder, {"dimension": dimension}
        try:
            self.pairs = sorted(pairs_of(label), key=lambda pair: keys.place(pair[0]["key"]))
            self.judges = read_said(verdicts, dimension)
        except ValueError as error:
            raise UserError(f"--label {label}: {error}") from error
        if not self.pairs:
            raise UserError(f"--label {label}: no prompt has two edits (docs/own_edits.md says what lies where)")
        answer = Route("/answer/{pair:int}/{answer}", self.answer, methods=["POST"])
        self.routes = [answer, Route("/image/{pair:int}/{side:int}", self.image), Route("/agreement", self.agreement)]

    def asked(self, request: Request) -> tuple[Path, Pair, bool]:
        """The file of the rater's answers, the pair, and whether its edits change sides. Rejected: there are none."""
        name, number = "-".join(request.query_params.get("rater", "").split()), request.path_params["pair"]
        if not name or number >= len(self.pairs):
            raise Rejected(400, f"there is no pair {number}" if name else "type your name")
        file, pair = self.folder / f"{keys.plain(name.casefold(), 40, 'a-z0-9_-')}.jsonl", self.pairs[number]
        return file, pair, keys.place(f"{file.stem} {pair[0]['key']}") < 0.5

    def image(self, request: Request) -> Response:
        """The source (0), or the edit that is shown as A (1) or B (2). Rejected: why there is none."""
        (_, (*_, (source, a, b)), swapped), side = self.asked(request), request.path_params["side"] % 3
        try:
            data = ((source, b, a) if swapped else (source, a, b))[side]()
            png = images.encode_png(scans.decode(data if isinstance(data, bytes) else b""))
        except ValueError as error:
            raise Rejected(404, str(error)) from None
        return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})

    async def answer(self, request: Request) -> JSONResponse:
        """Keeps an answer, once, or takes the last one back, on the disk when this returns. Tells what comes next."""
        (file, (own, *_), swapped), answer = self.asked(request), request.path_params["answer"]
        with files.held(file.with_suffix(".lock")):  # another page may have the same folder
            lines = [line for line in file.read_bytes().splitlines() if line.strip()] if file.is_file() else []
            if answer == "Undo":
                files.write_bytes(file, b"\n".join([*(lines := lines[:-1]), b""]))
            try:
                known = {json.loads(line)["key"] for line in lines}
            except (ValueError, LookupError, TypeError):
                raise Rejected(409, f"{file}: a line is no answer: mend it or move the file away") from None
            if answer in (*OTHER_SIDE, "Skip") and own["key"] not in known:
                winner = None if answer == "Skip" else OTHER_SIDE[answer] if swapped else answer
                row = own | {"winner": winner, "swapped": swapped, "time": round(time.time())}
                files.write_bytes(file, b"\n".join([*lines, json.dumps(row).encode(), b""]))
                known.add(own["key"])
        left = [(number, pair) for number, pair in enumerate(self.pairs) if pair[0]["key"] not in known]
        shown = [{"pair": number, "instruction": words, "task": own["task"]} for number, (own, words, _) in left[:2]]
        return JSONResponse({"pairs": len(self.pairs), "left": len(left), "next": shown, "answers": len(known)})

    def agreement(self, request: Request) -> JSONResponse:
        """Cohen's kappa of every two raters, and of each with each judge."""
        try:
            people = read_said(sorted(self.folder.glob("*.jsonl")), "").items()
        except ValueError as error:
            raise Rejected(409, str(error)) from None
        photo, rows = {own["key"]: own["origin"] or own["prompt"] for own, *_ in self.pairs}, []
        for (first, said), (second, other) in [*combinations(people, 2), *product(people, self.judges.items())]:
            both = [key for key in said if key in other and key in photo]
            found = cohen_kappa([said[key] for key in both], [other[key] for key in both], [photo[key] for key in both])
            rows.append({"first": first, "second": second} | found)
        return JSONResponse(rows)


def page(
    *,
    label: str | None = None,
    dimension: Dimension = CONSISTENCY,
    answers: Path = Path("answers"),
    verdicts: list[Path] | None = None,
    port: int = 25950,
    params: Params = None,
) -> None:
    """Compare edits in the browser, or have people say which is better, until it is interrupted.

    Open the address that it prints: who does not know all of it gets no answer, and other machines get none.

    Args:
        label: What people compare: a folder as in docs/own_edits.md (table, photos, edits), or the graph's `arena`.
        dimension: In which respect they do.
        answers: Where their answers are kept: LABEL/DIMENSION/RATER.jsonl, which `rank` reads.
        verdicts: Files of judges' verdicts to compare people with; of the arena, data/matches.parquet without it.
        port: 0 for a free one."""
    free, token = free_port(HOST, port), secrets.token_urlsafe(16)
    kept, static = answers / Path(label or "").name / dimension, Mount("/", StaticFiles(directory=FOLDER))
    known = verdicts or [path for path in [Path("data/matches.parquet")] if label == "arena" and path.is_file()]
    shown = LabelPage(label, kept, known, dimension) if label else JudgePage(params)
    routes = [Route("/told", lambda _: JSONResponse(shown.told)), *shown.routes, static]
    app = Starlette(routes=[Mount(f"/{token}", routes=routes)], exception_handlers={Rejected: refusal})
    print(f"http://{HOST}:{free}/{token}/served.html", flush=True)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    try:
        uvicorn.run(app, host=HOST, port=free, log_level="warning", headers=HEADERS, timeout_graceful_shutdown=5)
    finally:
        if isinstance(shown, JudgePage):
            shown.close()
