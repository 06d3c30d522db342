"""Where an edit is: instruction parser and grounder, their prompts, the grammar."""
