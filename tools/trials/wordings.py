"""Does the tiny base know the judge's question in any words? Its accuracy in each, with 95 % intervals over photos.

    python -m tools.trials.wordings [--model models/tiny_base] [--benchmark data/probe_bench.parquet ...]

Ties are left out. The last words are those that it was taught (tools/tiny_base/looks.py).
"""

import argparse
import tempfile
from pathlib import Path

import yaml

from editjudge.benchmarks.preferences import forms
from editjudge.cli.printing import table
from editjudge.judges import opening
from editjudge.judges.protocol import Question
from editjudge.judges.styles import style
from editjudge.statistics import agreement
from tools.tiny_base import looks

LOOKING = yaml.safe_load(Path(looks.__file__).with_name("looking.yaml").read_text())
WORDS = (
    "Which edit changed less?",
    "Which edit kept more of the source?",
    "Which edit is more like the source?",
    "Which edit preserves better what the instruction does not name?",
    "Which edit has less damage?",
    "Which edit left the rest of the photo alone?",
    "Which image differs less from the source outside of the edit?",
    "Which edit is the better one?",
    "Which edit changed more?",
    "zorf?",
    *(text for text in looks.QUESTIONS if "changed less" in text),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/tiny_base")
    parser.add_argument("--benchmark", nargs="+", default=["data/probe_bench.parquet", "data/probe_easy.parquet"])
    given, rows = parser.parse_args(), []
    for path in given.benchmark:
        items = forms.load("probe", {"form": "vcreward", "path": path})
        items = [item for item in items if item.verdict in ("Image A", "Image B")]
        questions = [Question(i.key, i.instruction, i.source, i.a, i.b) for i in items]
        with tempfile.TemporaryDirectory() as place:
            for n, words in enumerate(("pvc", *WORDS)):
                prompt = words if n == 0 else str(Path(place, f"{n}.yaml"))
                if n:
                    said = LOOKING | {"user": LOOKING["user"].replace("{criteria}", words)}
                    Path(prompt).write_text(yaml.safe_dump(said))
                style(prompt)
                how = {"backend": "transformers", "model": given.model, "prompt": prompt, "rule": "probability"}
                with opening.open_judge("judge", how, Path(place, f"{n}.sqlite")) as judge:
                    winners = [answer.combined.winner for answer in judge.compare(questions)]
                right = [winner == item.verdict for winner, item in zip(winners, items, strict=True)]
                found = agreement.share(right, [item.cluster for item in items])
                shown = "the judge's own" if n == 0 else words
                rows.append([Path(path).stem, shown, *(found[name] for name in ("accuracy", "low", "high"))])
    table(("benchmark", "words", "accuracy", "low", "high"), rows, digits=3)


if __name__ == "__main__":
    main()
