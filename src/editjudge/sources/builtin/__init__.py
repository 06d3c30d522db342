"""The probe set: photos, drawn regions, scenes with known truth."""
