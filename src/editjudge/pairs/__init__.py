"""What becomes a training pair: tiers, rules, VLM verdicts."""
