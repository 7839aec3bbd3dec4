"""Settings of the documentation, which `make docs` builds."""

from pennpde import __version__

project = "pennpde"
author = "the authors of pennpde"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinx_copybutton"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # links such as training.md#the-ablations
exclude_patterns = ["_build"]

copybutton_prompt_text = "$ "
html_theme = "furo"
html_title = f"pennpde {version}"

# Shapes such as Float[Tensor, "points space"] read best as they are written.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
