"""One trainer, three lessons: of a judge, a scorer and a rater."""
