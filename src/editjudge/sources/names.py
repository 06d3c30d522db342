"""What upstream calls an edit task, and what it is called here.

One table for all data sets: UnicEdit and UnicBench's `edit_subtask`, Pico-Banana's `edit_type`, GEdit's and
GEditBench v2's tasks, ImgEdit's and Nano-Consistent's file names. A name is compared without what is in brackets, and
by its letters and digits alone, of any script.
"""

import functools
import re

# Our task: what others call it. The first 18 are training tasks, the last five exist in GEditBench v2 alone.
NAMES: dict[str, tuple[str, ...]] = {
    "background_change": ("Background", "Add new scene context/background"),
    "camera_motion": ("Viewpoint Transformation", "Lens Zooming", "Zoom in"),
    "color_alter": ("Color Alteration",),
    "cref": ("Character Reference",),
    "enhancement": (),
    "material_alter": ("Material Modification", "Texture Editing"),
    "motion_change": ("Action", "Pose tweak (minor plausible change)"),
    "object_extraction": ("Extract",),
    "oref": ("Object Reference",),
    "ps_human": (
        "Portrait Editing",
        "Portrait Beautification",
        "Clothing edit (change color/outfit)",
        "Change age / gender",
        "Add/Remove/Replace Accessories (glasses, hats, jewelry, masks)",
        "Modify expressions (smile, frown, neutral)",
    ),
    "size_adjustment": ("Shape-Size Alteration", "Change the size/shape/orientation of an object"),
    "sref": ("Style Reference",),
    "style_transfer": (
        "Style",
        "style_change",
        "Strong artistic style transfer (e.g., Van Gogh/anime/etc.)",
        "Photo to cartoon/sketch/comic",
        "Photo → cartoon/sketch/comic",
        "Modern ↔ historical style/look",
        "Convert person to 2D anime/manga style (identity-preserving)",
        "Convert person to Pixar/Disney-like 3D cartoon look",
        "Convert person to Western comic cel-shaded style",
        "Line-art ink sketch of the person",
        "Sticker-ify the person with bold outline and white border",
        "Caricature with mild feature exaggeration (keep identity)",
        "Funko-Pop-style toy figure of the person",
        "LEGO-minifigure rendition of the person",
        "Simpsonize the person (yellow-skin cartoon style)",
    ),
    "subject_add": ("Add", "Subject Addition", "Add a new object to the scene"),
    "subject_remove": ("Remove", "Subject Removal", "Remove an existing object"),
    "subject_replace": ("Replace", "Subject Replacement", "Replace one object category with another"),
    "text_editing": (
        "Text Modification",
        "text_change",
        "Replace text in signs/posters/billboards",
        "Add new (handwritten/printed/etc) text",
        "Change font style or color of visible text (if present)",
        "Change font style or color of visible text if there is text",
    ),
    "tone_transfer": (
        "Tone Transformation",
        "Change overall color tone (warm ↔ cool)",
        "Add film grain or vintage filter",
        "Apply seasonal transformation (summer ↔ winter)",
        "Change weather conditions (sunny/rainy/snowy)",
        "Adjust global lighting (golden hour/fluorescent)",
    ),
    "chart_editing": (),
    "hybrid": ("Compose", "Compound Operation Edits"),
    "in_image_text_translation": ("Translate written text into other languages",),
    "line2image": (),
    "openset": (),
    "relation_change": ("Relocate an object (change its position/spatial relation)",),
}

# Names that belong to no task of ours, or to several; a source's `names` can still take them into one.
UNMAPPED = (
    "Change an object's attribute (e.g., color/material)",  # color_alter and material_alter
    "Adjust",  # ImgEdit's colours, materials and sizes
    "Outpainting (extend canvas beyond boundaries)",
    "Counting Change",
    "Implicit Change Edits",
    "Multi-object Coordination",
    "Spatial Reasoning Edits",
    "Content Memory",  # ImgEdit's dialogues of several turns
    "Content Understanding",
    "Version Backtracking",
    "MagicBrush",  # AURORA's parts, of all kinds of edits
    "Action Genome",
    "Something-Something",
    "Kubric",
)


@functools.lru_cache(maxsize=4096)  # few names, each on very many rows
def plain_name(name: str) -> str:
    """The name as it is compared: "Subject-Add (new)" is `subject_add`; "" is no name, and equal to none."""
    return re.sub(r"[\W_]+", "_", re.sub(r"\([^)]*\)", " ", name).casefold()).strip("_")


TASK_OF: dict[str, str | None] = {
    **{plain_name(name): task for task, names in NAMES.items() for name in (task, *names)},
    **{plain_name(name): None for name in UNMAPPED},
}


def task_of(name: str) -> str | None:
    """Our task behind an upstream name; None where the name has none or is not known (see `TASK_OF`)."""
    return TASK_OF.get(plain_name(name))
