"""Settings of the site; ``tools/documentation.py`` builds it."""

import tenonnx

project = "tenonnx"
author = "the authors of tenonnx"
copyright = author
release = version = tenonnx.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_design"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["requirements.txt"]
highlight_language = "text"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks are executed where they lie, before
suppress_warnings = [
    "misc.highlighting_failure",  # commands as they are typed
    "ref.python",  # the type of a parameter, such as "type", is no attribute of ours
]

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"undoc-members": False}

html_theme = "pydata_sphinx_theme"
html_title = "tenonnx"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"coming-from": [], "ops/*/**": []}  # four hundred entries beside each of four hundred pages
html_theme_options = {
    "collapse_navigation": True,
    "navigation_depth": 2,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "logo": {"text": "tenonnx"},
}
