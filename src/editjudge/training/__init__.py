"""LoRA training of a judge: its data, its launch; pretraining of the tiny base."""
