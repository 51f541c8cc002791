# SPDX-License-Identifier: Apache-2.0
"""What mkdocs is told by code (mkdocs.yml, hooks): the navigation by kinds, links that lead out of docs/, and a search
that works from a file, with nothing fetched from elsewhere."""

import os
import re
import shutil
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
KINDS = {"start": "Start", "how-to": "How-to", "reference": "Reference", "background": "Background"}


def on_config(config):
    """Pages of a kind in the order of the index, under its name."""
    index = (DOCS / "index.md").read_text()
    nav = ["index.md"]
    for kind, title in KINDS.items():
        nav.append({title: list(dict.fromkeys(re.findall(rf"\]\(({kind}/[\w-]+(?<!\.zh)\.md)\)", index)))})
    config["nav"] = nav
    config["extra"]["polyfills"] = ["assets/iframe-worker.js"]  # by a name that the plugin `offline` takes for its own
    return config


def on_post_build(config):
    shutil.copy(DOCS / "tools" / "worker.js", Path(config["site_dir"]) / "assets" / "iframe-worker.js")


def on_page_markdown(markdown, page, **_):
    """A link to a file of the sources is its text: the site holds docs/ alone."""
    folder = Path(page.file.src_uri).parent

    def told(link):
        target = link[2].partition("#")[0]
        out = "://" not in target and os.path.normpath(folder / target).startswith("..")
        return link[1] if out else link[0]

    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", markdown, flags=re.S | re.M)
    return "".join(
        part if i % 2 else re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)", told, part)
        for i, part in enumerate(parts)
    )
