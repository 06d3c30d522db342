"""What training learns from: pairs, scores, and the rules that make them."""
