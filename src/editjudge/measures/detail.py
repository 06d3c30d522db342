"""How much detail an edit lost, or how much noise it has more, as an image: sharpness beside its source's."""

import cv2
import numpy as np

LEAST = 1.0  # of an energy: a flat image has none


def energy(rgb: np.ndarray) -> float:
    """Mean squared Laplacian of the grey image, uint8 (H, W, 3); 0 or more, of 8-bit levels; higher is sharper."""
    return float(np.square(cv2.Laplacian(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), cv2.CV_64F)).mean())


def loss(source: np.ndarray, edited: np.ndarray) -> float:
    """|log| of the ratio of both images' energies: 0 for an equally sharp edit, wherever its pixels lie; lower is
    better.

    Blur, resampling and strong compression lower the energy, noise and seams raise it; sizes may differ a little. An
    edit that adds or takes away much texture has a loss, too: it is no measure of beauty.
    """
    return float(abs(np.log((energy(edited) + LEAST) / (energy(source) + LEAST))))
