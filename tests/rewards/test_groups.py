"""A judge that compares, as a reward: win rates within a group, in process and over HTTP."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import requests
import yaml
from cases import each_row
from pictures import picture
from pixel_scorer import SETTING, PixelScorer, Served

from editjudge.core.params import ParamsError
from editjudge.core.winner import Winner
from editjudge.judges import opening, protocol
from editjudge.judges.protocol import BothOrders, Edit, Judge, Question, Score, Unscored, Verdict
from editjudge.models.endpoint.spending import Account, Budget
from editjudge.rewards import groups
from editjudge.rewards.reward_forms import FORMS
from editjudge.rewards.reward_settings import RewardSetting
from editjudge.rewards.rewards import RewardService
from tools import reward_client
from tools.reward_endpoint import RewardEndpoint

BROKEN = picture(1)[:40]


class Likeness(Judge):
    """The more like its source an edit is, the better. Each call's dimension and number of questions is kept."""

    identity = "likeness"

    def __init__(self, folder: Path) -> None:
        super().__init__("judges.likeness", Account("likeness"), folder / "likeness.sqlite")
        self.calls: list[tuple[protocol.Dimension, int]] = []

    def compare(self, questions: Sequence[Question], dimension: protocol.Dimension = "overall") -> list[BothOrders]:
        self.calls.append((dimension, len(questions)))
        assert self.store.meta("nothing") is None, "its store is of the thread that asks"
        return protocol.combine_all([self.one(each) for each in protocol.in_both_orders(questions)], "agreement")

    def one(self, question: Question) -> Verdict:
        a, b = (PixelScorer().one(edit) for edit in question.edits)
        if isinstance(a, Score) and isinstance(b, Score):
            lead = a.dimensions["likeness"] - b.dimensions["likeness"]
            return Verdict(question.key, "Tie" if not lead else "Image A" if lead > 0 else "Image B")
        return Verdict(question.key, reason="an image cannot be used")


@each_row("winners, rates")
def test_a_win_rate_is_over_those_that_could_be_compared(winners: list[str], rates: list[float | str]) -> None:
    """winners: of every two edits, A, B, = or ? (failed). rates: of each edit, or why it has none."""
    names: dict[str, Winner | None] = {"A": "Image A", "B": "Image B", "=": "Tie", "?": None}
    edits = [Edit("x", b"s", bytes([n])) for n in range(len(rates))]
    said = [Verdict("", names[each], reason=None if names[each] else "unread") for each in winners]
    pairs = zip(combinations(range(len(rates)), 2), said, strict=True)
    verdicts = {pair: BothOrders(one, one, one) for pair, one in pairs}
    found = groups.by_verdicts([*edits, Unscored("no source")], verdicts)
    assert [each.overall if isinstance(each, Score) else each.reason for each in found[:-1]] == rates
    assert found[-1] == Unscored("no source")


def rates(scores: Sequence[float]) -> list[float]:
    """By another way: the mean rank among the others."""
    return [float(np.mean([(np.sign(one - other) + 1) / 2 for other in np.delete(scores, n)]))
            for n, one in enumerate(scores)]  # fmt: skip


def test_every_form_that_sends_groups_gets_win_rates_of_one_question_a_request(tmp_path: Path) -> None:
    judge = Likeness(tmp_path)
    edited, sources = [picture(n) for n in (4, 5, 5, 6, 7)] + [BROKEN, picture(8)], [picture(1)] * 6 + [picture(2)]
    likeness = [PixelScorer().one(Edit("x", picture(1), each)) for each in edited[:5]]
    wanted = rates([each.dimensions["likeness"] for each in likeness if isinstance(each, Score)])
    assert sum(wanted) == 2.5
    edits = [Edit("x", source, each) for source, each in zip(sources, edited, strict=True)]
    forms = FORMS.keys() - {"verl_omni"}  # which sends one edit a request
    how = RewardSetting(**SETTING | {"reward": "visual_quality"})
    with Served(RewardService([lambda: judge], "likeness", how).app()) as served:
        ask = {form: RewardEndpoint(served.url, form, "likeness").score for form in forms}
        for form in forms:
            *found, broken, alone = ask[form](edits)
            assert found == [Score(rate, {}) for rate in wanted], form
            assert (type(broken), type(alone)) == (Unscored, Unscored), form
        assert judge.calls == [("visual_quality", 15)] * len(forms)
        assert ask["unirl"](edits[:1]) == [Unscored("it is the only scored edit of its source and instruction")]
        small = {"instruction": "x", "source": "AAAA", "edited": "AAAA"}
        for count, asked in ((46, 1035), (4000, 7_998_000)):  # which are counted, and not made
            refused = requests.post(f"{served.url}/score", json={"edits": [small] * count}, timeout=60)
            assert refused.status_code == 400
            assert refused.json()["error"] == f"{asked} comparisons in a request, more than the limit of 1024"
        for path in ("sleep", "wake_up"):
            assert requests.post(f"{served.url}/{path}", timeout=60).status_code == 200
        assert ask["flow_factory"](edits)[:5] == found


def test_a_judge_has_no_calibrated_reward(tmp_path: Path) -> None:
    names = "win_rate, visual_consistency, instruction_following, visual_quality, overall"
    with pytest.raises(ParamsError, match=f"reward is 'calibrated'; likeness has {names}"):
        RewardService([lambda: Likeness(tmp_path)], "likeness", RewardSetting(**SETTING | {"reward": "calibrated"}))


@pytest.mark.parametrize("count", [1, 3])
def test_a_model_that_compares_gives_the_rewards_of_its_own_verdicts(base_dir: Path, workdir: Path, count: int) -> None:
    """A chat judge with processes of its own, that the service starts and ends. count: of the sources of an edit."""
    model = {"backend": "transformers", "model": str(base_dir), "workers": 1}
    values = {"judges": {"base": model | {"rule": "probability", "prompt": "pvc"}}}
    sources = [picture(n) for n in range(10, 10 + count)]
    more = {f"source_{n}": each for n, each in enumerate(sources[1:], 2)}
    edits = [Edit("x", sources[0], picture(n), more=more) for n in (2, 3, 4)]
    how = RewardSetting(**SETTING | {"reward": "win_rate"})
    with Served(RewardService([lambda: opening.find_judge(values, "base")], "base", how).app()) as served:
        given = [("x", sources if count > 1 else sources[0], bytes(edit.edited)) for edit in edits]
        results = reward_client.score(served.url, given, seconds=600)
    pairs = list(combinations(range(3), 2))
    asked = groups.questions((edits[a], edits[b]) for a, b in pairs)
    with opening.find_judge(values, "base") as judge:
        both = judge.compare(asked)
        assert judge.account.reused == 6, "its answers are kept"
        [other] = judge.compare([replace(asked[0], more={name: picture(9) for name in more})])
        assert judge.account.reused == (8 if count == 1 else 6), "each source is looked at"
    assert {each.forward.usage and each.forward.usage.images for each in (*both, other)} == {count + 2}
    wanted = groups.by_verdicts(edits, dict(zip(pairs, both, strict=True)))
    assert [(each["overall"], each["reason"]) for each in results] == [
        (own.overall, None) if isinstance(own, Score) else (None, own.reason) for own in wanted
    ]


def test_who_takes_one_source_refuses_several(workdir: Path) -> None:
    """Also where it has kept an answer about the first one."""
    edit, why = Edit("x", picture(1), picture(2)), "2 source images: a scorer takes one"
    of_two = replace(edit, more={"source_2": picture(3)})
    measures = {"backend": "measures", "rule": "agreement"}
    values = {"scorers": {"dino_i": {"kind": "dino_i"}}, "judges": {"measures": measures}}
    with opening.find_judge(values, "dino_i") as judge:
        [one, two] = judge.score([edit, of_two])
        assert isinstance(one, Score)
        assert two == Unscored(why)
    with opening.find_judge(values, "measures") as judge:
        for dimension in get_args(protocol.Dimension):
            [both] = judge.compare(groups.questions([(of_two, of_two)]), dimension)
            assert str(both.combined.reason).count(why) == 2


def test_a_prompt_that_shows_a_source_more_than_there_is_has_no_verdict(workdir: Path, base_dir: Path) -> None:
    shown = ["{source}", "{source_2}", "{a}", "{b}", "{instruction}"]
    own = {"version": 1, "source": "ours", "system": "", "user": shown, "reply": ["winner"]}
    Path("two.yaml").write_text(yaml.safe_dump(own))
    model = {"backend": "transformers", "model": str(base_dir), "workers": 1, "rule": "agreement", "prompt": "two.yaml"}
    with opening.find_judge({"judges": {"two": model}}, "two") as judge:
        [both] = judge.compare(groups.questions([(Edit("x", picture(1), picture(2)),) * 2]))
    assert str(both.combined.reason).count("two.yaml shows source_2: there is none") == 2


def test_a_service_forgets_what_no_budget_counts() -> None:
    free, paid = Account("free"), Account("paid", budget=Budget(questions=9))
    for account in (free, paid):
        for n in range(5):
            account.use(str(n), None, read=n > 0)
        account.forget()
    assert (list(free.used), free.unread) == (["4"], set())
    assert (len(paid.used), paid.left()) == (5, 4)
