"""Makes a notebook of each tutorial while the documentation is built (a hook of mkdocs.yml), to download and run.

Prose is Markdown, Python and commands are cells, and the text that the page shows below one is its output.
"""

import json
import re
from typing import Any

from mkdocs.structure.files import File

CELL = re.compile(
    r"(?:^<!-- needs: \w+ -->\n)?^```(python|sh)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.M
)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")
"""Of a page beside, which a downloaded notebook does not have."""


def notebook(page: str) -> dict[str, Any]:
    """A page of Markdown in the form of Jupyter, version 4.4."""
    cells, end = [], 0
    for block in [*CELL.finditer(page), None]:
        if prose := LINK.sub(r"\1", page[end : block.start() if block else None]).strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": prose})
        if block:
            language, code, printed = block.groups()
            source = code.rstrip() if language == "python" else re.sub("^(?=vicinal )", "!", code.rstrip(), flags=re.M)
            shown = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
            cells.append(
                {"cell_type": "code", "metadata": {}, "source": source, "execution_count": None, "outputs": shown}
            )
            end = block.end()
    return {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 4}


def on_files(files: Any, config: Any) -> Any:
    """Add the notebook of each tutorial that is not a notebook already."""
    for page in list(files.documentation_pages()):
        address = page.src_uri.removesuffix(".md") + ".ipynb"
        if address.startswith("tutorials/") and files.get_file_from_path(address) is None:
            files.append(File.generated(config, address, content=json.dumps(notebook(page.content_string), indent=1)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Offer it below the title."""
    address = page.file.src_uri.removesuffix(".md") + ".ipynb"
    made = (found := files.get_file_from_path(address)) is not None and found.generated_by is not None
    offer = f"\n\n[Download as a notebook]({address.split('/')[-1]}){{: download }}\n"
    return markdown.replace("\n", offer, 1) if made else markdown
