"""Edits made by the editor of a setting, whatever its kind."""

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tqdm import tqdm

from editjudge.editors import loading, outcomes, pool
from editjudge.editors.api.settings import ApiSetting
from editjudge.editors.outcomes import Outcome
from editjudge.editors.request import Edited, EditFailed, Request
from editjudge.editors.settings import Setting

Requests: TypeAlias = Iterator[tuple[str, Request]]
Keep: TypeAlias = Callable[[str, Outcome], None]


def make(model: str, setting: Setting, requests: Requests, count: int, keep: Keep) -> dict[str, Any]:
    """Have all edits made, with a progress bar; figures of this run, such as its seconds.

    `requests` has `count` edits, each with a name, and is read as they are made; `keep` is called with each name and
    its outcome, in this process and as soon as it is there. Raises ParamsError for a setting that cannot work here,
    EditorBroken, and EndpointError for an API that takes no request.
    """
    start, failures, passing = time.monotonic(), 0, Counter[str]()
    with tqdm(total=count, desc=f"candidates of {model}", unit="image", mininterval=1.0, dynamic_ncols=True) as bar:

        def kept(name: str, outcome: Outcome) -> None:
            nonlocal failures
            keep(name, outcome)
            failures += outcome.kind is not None
            passing.update([] if outcome.lasting else [str(outcome.kind)])
            bar.set_postfix(failed=failures, refresh=False)
            bar.update()

        if isinstance(setting, ApiSetting):
            return _over_api(model, setting, requests, kept)
        loading.check(model, setting)
        load, places = functools.partial(loading.load, model, setting), loading.places(model, setting)
        replaced = pool.run(load, places[:count], requests, kept, setting.timeout)
    _tell(model, passing)
    return {"seconds": round(time.monotonic() - start, 3), "workers": len(places[:count]), "workers_replaced": replaced}


def _tell(model: str, passing: Counter[str]) -> None:
    """On stderr, how many edits another run may well make, and how: for DVC the stage is up to date."""
    if passing:
        kinds = ", ".join(f"{kind}: {number}" for kind, number in sorted(passing.items()))
        again = f"to try them again, run `dvc repro -f -s candidates@{model}`"
        print(
            f"editors: {passing.total()} edits of {model} failed, perhaps not for good ({kinds}); {again}",
            file=sys.stderr,
        )


def _over_api(model: str, setting: ApiSetting, requests: Requests, keep: Keep) -> dict[str, Any]:
    from editjudge.editors.api.editor import ApiEditor

    editor, asked = ApiEditor(setting, model), dict[int, tuple[str, Request]]()

    def asking() -> Iterator[Request]:
        for number, (name, request) in enumerate(requests):
            asked[number] = name, request
            yield request

    def answered(number: int, edited: Edited | EditFailed) -> None:
        name, request = asked.pop(number)
        keep(name, outcomes.settle(request, edited))

    editor.edit_many(asking(), answered)
    return editor.report()
