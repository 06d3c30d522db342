"""The measures' directions, apart from the code that takes them: +1 higher is better, -1 lower is better."""

DIRECTIONS = {
    "L_channel_ssim": 1,
    "delta_e": -1,
    "emd": -1,
    "object_similarity": 1,
    "ssim": 1,
    "structure_similarity": 1,
    "tone_residual": -1,
}
