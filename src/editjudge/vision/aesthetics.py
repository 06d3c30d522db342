"""The embedded score of how a photograph looks: its colourfulness and its sharpness."""

import cv2
import numpy as np

SIDE = 512  # long side in pixels at which sharpness is measured
HALF_COLOUR, HALF_SHARP = 40.0, 8.0  # values that give half of the score's part
DIGITS = 4


def colourfulness(rgb: np.ndarray) -> float:
    """RGB, uint8, (H, W, 3), to 0 or more; grey is 0, 33 moderately, 59 quite and 109 extremely colourful.

    Source: Hasler and Suesstrunk 2003, "Measuring colourfulness in natural images", M3.
    """
    red, green, blue = (rgb[..., n].astype(np.float64) for n in range(3))
    opponents = np.stack([red - green, 0.5 * (red + green) - blue]).reshape(2, -1)
    return float(np.hypot(*opponents.std(1)) + 0.3 * np.hypot(*opponents.mean(1)))


def sharpness(rgb: np.ndarray) -> float:
    """RGB, uint8, (H, W, 3), to 0 or more: the standard deviation of the Laplacian of its grey, no larger than SIDE."""
    scale = min(1.0, SIDE / max(rgb.shape[:2]))
    size = [max(1, round(side * scale)) for side in rgb.shape[1::-1]]
    grey = cv2.cvtColor(cv2.resize(np.ascontiguousarray(rgb), size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    return float(cv2.Laplacian(grey.astype(np.float64), cv2.CV_64F).std())


def colour_sharpness(rgb: np.ndarray) -> float:
    """0 (flat and grey) to 10: half of it by colourfulness, half by sharpness. No predictor of people's taste."""
    colour, sharp = colourfulness(rgb), sharpness(rgb)
    return round(5 * colour / (colour + HALF_COLOUR) + 5 * sharp / (sharp + HALF_SHARP), DIGITS)
