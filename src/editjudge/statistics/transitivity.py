"""Whether a judge's answers on the same prompt fit any ranking: A over B, B over C, C over A fit none."""

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from editjudge.core.winner import SIGNS

MISSING = 9


def transitivity(
    groups: Sequence[Hashable], firsts: Sequence[str], seconds: Sequence[str], winners: Sequence[Any]
) -> dict[str, Any]:
    """Circular triples among the answers; one row a comparison of edit `firsts` (A) with edit `seconds` (B).

    groups: within which edits were compared (a prompt, a tuple). winners: "Image A", "Image B", "Tie" or None.
    A triple is scored if its three comparisons were read. It is circular if each edit beats one and loses to one
    (Kendall and Babington Smith); it is inconsistent if no ranking with ties fits it: a circular one, and A = B, B = C
    with A over C. Chance gives circular triples a share of 1/4 where there are no ties. Lower is better.

    Returns groups (with a triple), triples, scored, unscored, circular, circular_share, inconsistent and
    inconsistent_share; shares (0..1, of the scored) are None where nothing was scored.
    Source: M. G. Kendall and B. Babington Smith, On the method of paired comparisons, Biometrika 31 (1940) 324-345.
    Raises ValueError for lengths that differ, an edit compared with itself and two answers on one pair."""
    answers: dict[Hashable, dict[tuple[str, str], int]] = {}
    for row, (group, a, b, winner) in enumerate(zip(groups, firsts, seconds, winners, strict=True)):
        known = answers.setdefault(group, {})
        if a == b or (a, b) in known:
            raise ValueError(f"row {row}: {a!r} and {b!r} of {group!r} were compared already, or are the same")
        known[a, b] = MISSING if winner is None else SIGNS[winner]
        known[b, a] = MISSING if winner is None else -SIGNS[winner]
    counts = np.array([_count(pairs) for pairs in answers.values()]).reshape(-1, 4)
    triples, scored, circular, inconsistent = (int(total) for total in counts.sum(0))
    return {
        "groups": int((counts[:, 0] > 0).sum()),
        "triples": triples,
        "scored": scored,
        "unscored": triples - scored,
        "circular": circular,
        "circular_share": circular / scored if scored else None,
        "inconsistent": inconsistent,
        "inconsistent_share": inconsistent / scored if scored else None,
    }


def _count(answers: dict[tuple[str, str], int]) -> tuple[int, int, int, int]:
    """Triples, scored, circular and inconsistent ones of one group."""
    edits = sorted({edit for pair in answers for edit in pair})
    table = np.array([[answers.get((a, b), MISSING) for b in edits] for a in edits])
    triples = np.array(list(combinations(range(len(edits)), 3)), int).reshape(-1, 3)
    i, j, k = triples.T
    around = np.stack([table[i, j], table[j, k], table[k, i]])  # (3, triples), in one direction round the triple
    around = around[:, (around != MISSING).all(0)]
    circular = np.abs(around.sum(0)) == 3
    # Round a triple that some ranking fits, signs are those of numbers that sum to zero: all zero, or of both kinds.
    fits = (around == 0).all(0) | ((around > 0).any(0) & (around < 0).any(0))
    return len(triples), around.shape[1], int(circular.sum()), int((~fits).sum())
