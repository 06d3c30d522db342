"""The sizes of the tiny base that the judge's tests use, and the instructions its tokenizer knows."""

from editjudge.qwen import tiny

INSTRUCTIONS = ("Remove the cup", "Change the colour of the cup to green", "Make it night")
SIZES = tiny.TinySettings(
    image_size=64,
    hidden_size=48,
    text_layers=2,
    text_heads=2,
    key_value_heads=1,
    text_intermediate=64,
    vision_hidden=48,
    vision_layers=2,
    vision_heads=2,
    vision_intermediate=64,
)
