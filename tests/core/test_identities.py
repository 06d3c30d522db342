"""The versions in the names of kept results move with every module that these results depend on."""

from pathlib import Path

import grimp
import pytest

from editjudge.core import code
from editjudge.editors import making, protocol
from editjudge.editors.procedural import ProceduralEditor
from editjudge.judges import asking
from editjudge.judges.scorers import features
from editjudge.measures.annotation import batch
from editjudge.models.chat import forms, models
from editjudge.models.chat.settings import EndpointSetting, TransformersSetting
from editjudge.models.endpoint import pictures
from editjudge.photos import locating
from editjudge.sources.selection import embedders
from editjudge.stages import train_judge, train_scorer
from editjudge.vision import aesthetics, detectors

ROOTS = {
    "a judge, rater, parser, grounder or captioner in process": [models.LOCAL],
    "one behind an endpoint": [pictures.__name__, forms.__name__],
    "a scorer": [asking.CHECKPOINT],
    "a scorer of features": [features.__name__],
    "measures": [batch.__name__],
    "an embedder": [embedders.__name__],
    "a detector": [detectors.__name__],
    "a predictor of aesthetics": [aesthetics.__name__],
    "regions": [locating.__name__],
    "an embedded editor": [ProceduralEditor.__module__, protocol.__name__],
    "a diffusers editor": [making.DIFFUSERS, protocol.__name__],
    "an editor behind an API": [making.API, protocol.__name__],
    "a judge's training": [train_judge.__name__],
    "a scorer's training": [train_scorer.__name__],
}
EXCEPTIONS = {f"editjudge.{path.replace('/', '.')}" for path in code.NO_RESULT}
IMPORTS = grimp.build_graph("editjudge", cache_dir=None)  # who imports whom, by another reader of imports
for exception in EXCEPTIONS:  # which lead nowhere
    for other in IMPORTS.find_modules_directly_imported_by(exception):
        IMPORTS.remove_import(importer=exception, imported=other)


def changed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module computes something else, as far as its text says."""
    file = code.file_of(module)
    state, source = code._known.get(file) or (None, code._read(file))
    monkeypatch.setitem(code._known, file, (state, source._replace(version="another")))


@pytest.mark.parametrize("kind", ROOTS)
def test_each_module_that_is_imported_moves_the_identity(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = ROOTS[kind]
    used = {each for root in roots for each in (root, *IMPORTS.find_upstream_modules(root))} - {"editjudge"}
    plain = code.identity(*roots)
    for module in sorted(used):
        with monkeypatch.context() as patch:
            changed(module, patch)
            moved = code.identity.__wrapped__(*roots) != plain
        assert moved == (module not in EXCEPTIONS), module


def test_every_exception_is_a_module_with_a_reason() -> None:
    assert IMPORTS.modules >= EXCEPTIONS
    assert all(code.NO_RESULT.values())


def test_transparency_laid_on_black_makes_other_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept p(A) outlived that change once: the modules were listed by hand, without core.images."""
    (tmp_path / "config.json").write_text("{}")
    here = TransformersSetting(model=str(tmp_path), dtype="float32", batch_size=4)
    there = EndpointSetting(base_url="http://127.0.0.1:1/v1", model="m", api_key_env="none")
    before = [models.model_of(here), models.model_of(there)]
    code.identity.cache_clear()
    changed("editjudge.core.images", monkeypatch)
    after = [models.model_of(here), models.model_of(there)]
    code.identity.cache_clear()
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_only_identities_name_records() -> None:
    """Nobody makes a version of a list of modules of its own."""
    for module in IMPORTS.modules - {"editjudge.core.code"}:
        assert "code.version(" not in code.file_of(module).read_text(), module
