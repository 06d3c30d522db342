"""The embedded features, and the map from words to changes."""

import json

import numpy as np
from sklearn.linear_model import Ridge

from editjudge.core import images
from editjudge.editors.procedural import edits
from editjudge.judges.scorers import embedded
from editjudge.sources.builtin import scenes


def test_the_map_is_ridge_regression_on_unit_differences() -> None:
    rng = np.random.default_rng(0)
    texts, differences = rng.normal(size=(30, 8)), rng.normal(size=(30, 5))
    unit = differences / np.linalg.norm(differences, axis=1, keepdims=True)
    wanted = Ridge(alpha=2.0, fit_intercept=False).fit(texts, unit).coef_.T
    np.testing.assert_allclose(embedded.fit(texts, differences, 2.0), wanted, atol=1e-10)


def test_features_are_finite_and_the_same_for_the_same_pixels() -> None:
    flat = np.zeros((20, 30, 3), np.uint8)
    assert np.isfinite(embedded.features(flat)).all()
    assert embedded.features(flat).shape == (222,)
    np.testing.assert_array_equal(embedded.features(flat), embedded.features(flat.copy()))


def test_the_empty_text_means_no_change() -> None:
    np.testing.assert_array_equal(embedded.EmbeddedClip().texts([""]), np.zeros((1, 222)))


def test_the_committed_map_knows_held_out_edits_from_other_instructions() -> None:
    """Six edits of each task from held-out photos; benchmarks/text_map.py has the figures of all."""
    clip = embedded.EmbeddedClip()
    pairs = [pair for task in scenes.EDITS for pair in scenes.make_pairs(task, "benchmark", 6, 96, 21)]
    sources = [images.decode(pair["image"]) for pair in pairs]
    edited = [edits.carry_out(s, json.loads(p["edit"])).clean for s, p in zip(sources, pairs, strict=True)]
    change = clip.images(edited) - clip.images(sources)
    told = clip.texts([pair["instruction"] for pair in pairs])
    near = (change / np.linalg.norm(change, axis=1, keepdims=True)) @ (
        told / np.linalg.norm(told, axis=1, keepdims=True)
    ).T
    other = ~np.eye(len(pairs), dtype=bool)
    assert (np.diag(near) > 0).mean() > 0.75
    assert (np.diag(near)[:, None] > near)[other].mean() > 0.7


def test_the_stored_map_has_the_features_size() -> None:
    clip = embedded.EmbeddedClip()
    assert clip.map.shape == (384, 222)
    assert clip.mean.shape == (222,)
    assert np.isfinite(clip.map).all()
    assert clip.texts(["a", "b"]).shape == (2, 222)
