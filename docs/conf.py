"""The site: `make docs`. Its source is the repository's root, so that links mean the same here and on GitHub."""

import re

from sphinx.application import Sphinx

project = "editjudge"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
include_patterns = ["*.md", "docs/*.md", "docs/*.rst", "stages/README.md", "tools/tiny_base/README.md"]
root_doc = "docs/tasks"
html_theme = "furo"
html_show_copyright = False
default_role = "code"
autodoc_typehints = "none"
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]


def list_pages(_app: Sphinx, page: str, source: list[str]) -> None:
    """The links of a section of the index are a part of the menu. A page without one ends the strict build."""
    if page == root_doc:
        for title, links in re.findall(r"^## (.*)$([^#]*)", source[0], re.M):
            pages = "\n".join(re.findall(r"\]\(([^):]+\.(?:md|rst))\)", links))
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", list_pages)
