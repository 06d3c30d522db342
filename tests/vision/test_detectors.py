"""Grounding DINO from tiny random checkpoints, against transformers' own processing of their boxes."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor, GroundingDinoImageProcessorPil

from editjudge.vision.detectors import GroundingDino, by_name, kept

WHERE = "grounding.grounder.model"
NAMES = [("Red square", "blue cup"), ("the main person",), ("cup.", "green?", "yellow object")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.save_detector(tmp_path_factory.mktemp("detector"))


@torch.inference_mode()
def test_boxes_and_names_are_those_that_transformers_finds(folder: Path, rng: np.random.Generator) -> None:
    """Where its phrase is of one name; the tokens between names, which it also counts, are no name's."""
    rgbs = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in ((72, 96), (40, 37), (72, 96))]
    processor = AutoProcessor.from_pretrained(folder)
    processor.image_processor = GroundingDinoImageProcessorPil.from_pretrained(folder)  # where torchvision is, too
    model = AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()
    ours = GroundingDino(WHERE, str(folder), batch_size=2).detect(rgbs, NAMES, 0.3, 1.0)
    compared = 0
    for rgb, names, found in zip(rgbs, NAMES, ours, strict=True):
        assert not isinstance(found, ValueError)
        plain = [name.strip(".?").lower() for name in names]
        inputs = processor(images=rgb, text=[plain], return_tensors="pt", input_data_format="channels_last")
        [said] = processor.post_process_grounded_object_detection(model(**inputs), threshold=0.3, text_threshold=0.3)
        for box, phrase in zip(said["boxes"].tolist(), said["text_labels"], strict=True):
            words = set(phrase.replace(".", " ").split())
            of = [n for n, name in enumerate(plain) if words & set(name.split())]
            if len(of) == 1:
                wanted = np.clip(box, 0, 1)
                [same] = [each for each in found if np.allclose(each.box, wanted, atol=2e-5)]
                assert same.label == of[0]
                compared += 1
            elif not of:
                assert not any(np.allclose(each.box, np.clip(box, 0, 1), atol=1e-7) for each in found)
    assert compared >= 5


def test_a_name_has_its_tokens_surest_boxes_above_the_threshold() -> None:
    """[CLS] red square . cup . [SEP]: four queries, of which one fits the stop best, and two overlap."""
    ids = np.array([101, 1030, 1034, 1012, 1035, 1012, 102, 0])
    scores = np.zeros((5, 8))
    scores[0, [1, 2]] = 0.4, 0.9
    scores[1, [2, 4]] = 0.5, 0.8
    scores[2, [1, 5]] = 0.6, 0.95
    scores[3, 4] = 0.3
    scores[4, 2] = 0.7
    boxes = np.array([[0, 0, 0.5, 0.5], [0.2, 0.2, 0.6, 0.9], [0.6, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0.5, 0.49]])
    of_names = by_name(scores, ids, 1012)
    found = kept(of_names, boxes, threshold=0.3, overlap=0.8)
    assert [(each.label, each.score) for each in found] == [(0, 0.9), (0, 0.6), (1, 0.8)]
    assert found[2].box == (0.2, 0.2, 0.6, 0.9)
    assert [each.score for each in kept(of_names, boxes, 0.3, 1.0)] == [0.9, 0.7, 0.6, 0.8]
    assert [each.score for each in kept(of_names, boxes, 0.75, 1.0)] == [0.9, 0.8]


def test_names_that_are_too_long_and_images_too_slender_fail_by_themselves(folder: Path) -> None:
    model = GroundingDino(WHERE, str(folder))
    rgbs = [np.zeros(shape, np.uint8) for shape in ((40, 60, 3), (1, 400, 3), (40, 60, 3))]
    found = model.detect(rgbs, [("red square " * 20,), ("cup",), ("?",)], 0.3, 0.8)
    assert [str(each) for each in found[:2]] == [
        "43 tokens of names, and the model reads 32",
        "the image is too slender for the model",
    ]
    assert found[2] == []
