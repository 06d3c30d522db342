"""The forms in which providers take edits, a module each; see `editjudge.editors.api.form`."""
