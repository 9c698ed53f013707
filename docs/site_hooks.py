"""Hooks of mkdocs: pages outside docs/, links to other files of the repository, and code fences.

Four files outside docs/ become pages. A file that a page links to is copied into
the site's folder files/; a link to a folder becomes plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PAGES: Final = (DOCS, DOCS / "notebooks")
# Pages outside docs/, and their names in the site.
SOURCES: Final = {
    ROOT / "README.md": "index.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "runs" / "README.md": "runs.md",
}
FOLDERS: Final = {page: source.parent for source, page in SOURCES.items()}
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
SHIM: Final = "https://unpkg.com/iframe-worker/shim"
FENCE: Final = re.compile(r"^( *```\w+) .*$", re.MULTILINE)  # "```bash run" is ours, not Markdown's


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and all files that pages link to."""
    for source, page in SOURCES.items():
        files.append(File.generated(config, page, abs_src_path=str(source)))
    copied: dict[str, Path] = {}
    for source in (*SOURCES, *DOCS.glob("*.md")):
        for match in LINK.finditer(source.read_text("utf-8")):
            target = _target(match[3], source.parent)
            if target is not None and _is_copied(target):
                copied[_copy(target)] = target
    for name, target in copied.items():
        files.append(File.generated(config, name, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to files of the repository, and the first lines of code blocks."""
    folder = FOLDERS.get(page.file.src_uri, DOCS)

    def rewritten(match: re.Match[str]) -> str:
        target = _target(match[3], folder)
        if target is None:
            return match[0]
        if target.is_dir():
            return match[2]
        return f"{match[1]}[{match[2]}]({_address(target)}{match[4] or ''})"

    return FENCE.sub(r"\1", LINK.sub(rewritten, markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links of notebooks name pages of the site; mkdocs leaves them as they are."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    return re.sub(r'href="(\.\./\w+)\.md(#[^"]*)?"', r'href="\1.html\2"', html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Replace the remote search script by worker.js, so that pages on disk can be searched."""
    return output.replace(SHIM, "../" * page.url.count("/") + "worker.js")


def _target(link: str, folder: Path) -> Path | None:
    """Return the file or folder of the repository that a link names; None if it names another."""
    target = (folder / link).resolve()
    is_ours = ":" not in link and target.is_relative_to(ROOT) and target.exists()
    return target if is_ours else None


def _is_copied(target: Path) -> bool:
    """Return whether a linked file is no page or picture of the site itself."""
    is_page = target.suffix in {".md", ".png", ".ipynb"} and target.parent in PAGES
    return target.is_file() and not is_page and target not in SOURCES


def _copy(target: Path) -> str:
    return f"files/{target.relative_to(ROOT).as_posix()}"


def _address(target: Path) -> str:
    """Return the address of a linked file relative to the site's pages, which are in one folder."""
    if _is_copied(target):
        return _copy(target)
    return SOURCES.get(target) or target.relative_to(DOCS).as_posix()
