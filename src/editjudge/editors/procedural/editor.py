"""The six embedded editors behind the interface of all editors."""

import numpy as np

from editjudge.core import images
from editjudge.editors.procedural import edits
from editjudge.editors.procedural.settings import ProceduralSetting
from editjudge.editors.request import Edited, EditFailed, Request
from editjudge.engine import resume


class ProceduralEditor:
    """Carries out the edit that a record says. The random numbers depend on the seed, the model and the key alone."""

    def __init__(self, model: str, setting: ProceduralSetting) -> None:
        self._model, self._setting = model, setting

    def edit(self, request: Request) -> Edited:
        """Raises EditFailed (no_edit) where the record says no edit, or one that cannot be carried out on its image."""
        name = resume.fingerprint(self._model, request.key)
        rng = np.random.default_rng([self._setting.seed, *name.encode()])
        try:
            edit, source = edits.parse_edit(request.edit), images.decode(request.image)
            return Edited(*edits.edit_image(source, edit, self._setting.kind, self._setting.amount, rng))
        except ValueError as error:
            raise EditFailed("no_edit", str(error)) from error
