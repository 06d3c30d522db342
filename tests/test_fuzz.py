"""The small form of benchmarks/fuzz.py: a mutant of a file or reply ends in a value or a named error."""

import fuzz
import pytest

COUNT = 60


@pytest.mark.parametrize("name", fuzz.CLASSES)
def test_mutants_are_read_or_refused_by_name(name: str) -> None:
    ended = fuzz.tried(name, COUNT)
    assert set(ended) <= {"value", "named"}
    assert ended.total() == COUNT
    assert ended["named"] or name in ("JSONL", "CSV"), "whose rows are refused one by one"
