"""What models write beside their verdicts: why."""

import re

from editjudge.judges.asking import ChatJudge
from editjudge.judges.protocol import BothOrders, Judge

MOST = 2_000  # characters of what is kept of each order, the last ones
BARE = re.compile(r"</?think>|```(json)?|\{\s*.?winner.?\s*:\s*.[\w ]*.\s*\}")  # says nothing but a verdict


def said(judge: Judge, answer: BothOrders) -> str | None:
    """A chat model's replies as they came, but for characters that cannot be printed; None of bare verdicts."""
    if not isinstance(judge, ChatJudge):
        return None
    told = list[str]()
    for order, verdict in (("A shown first", answer.forward), ("B shown first, as Image A", answer.backward)):
        words = "".join(each if each.isprintable() or each == "\n" else " " for each in BARE.sub("", verdict.reply))
        told += [f"{order}: {words.strip()[-MOST:]}"] if words.strip() else []
    return "\n\n".join(told[:1] if judge.outline else told) or None  # by scores both orders have the same replies
