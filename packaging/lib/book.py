"""The documentation site, made by mdBook. docs/README.md is the source of its menu."""

from __future__ import annotations

import os
import pathlib
import posixpath
import re
import shutil
import subprocess

import common

# Version that `cargo install --locked` installs. Another version may change the names of anchors.
MDBOOK = "0.5.4"

INDEX = "docs/README.md"
IMAGES = {".svg", ".png"}

ITEM = re.compile(r"^( *)- \[(.+?)\]\(([^)\s]+)\)")
# Code comes first, so that links inside of it stay.
LINK = re.compile(r"```.*?```|`[^`\n]*`|(?<=\]\()[^)\s]+(?=\))", re.S)


def make(out: pathlib.Path, programs: common.Programs) -> None:
    """Makes an archive of the site, for a web server's folder."""
    del programs
    html = build()
    files = {str(path.relative_to(html)): (path.read_bytes(), 0o644) for path in html.rglob("*") if path.is_file()}
    (out / f"vellum-{common.version()}-site.tar.gz").write_bytes(common.gzipped(common.tar(files)))


def build() -> pathlib.Path:
    """Writes the chapters, calls mdBook, and returns the folder of pages."""
    work = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", common.ROOT / "target")) / "site"
    shutil.rmtree(work, ignore_errors=True)
    (work / "src").mkdir(parents=True)
    shutil.copy(common.ROOT / "packaging" / "book.toml", work)
    (work / "src" / "SUMMARY.md").write_text(summary((common.ROOT / INDEX).read_text()))
    pages = chapters()
    for page in pages:
        text, images = rewrite_links(page, (common.ROOT / page).read_text(), set(pages))
        for name, content in [(site_path(page), text.encode()), *((image, (common.ROOT / image).read_bytes()) for image in images)]:
            path = work / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    common.run([str(tool()), "build", str(work)])
    return work / "html"


def chapters() -> list[str]:
    """Returns the paths of the site's pages in the repository: the index and the first link of each of its items."""
    items = map(ITEM.match, (common.ROOT / INDEX).read_text().splitlines())
    return [INDEX, *(resolve(INDEX, item[3]) for item in items if item)]


def summary(index: str) -> str:
    """Returns mdBook's menu, made from the index."""
    lines = ["[Documentation](index.md)"]
    for line in index.splitlines():
        if line.startswith("## "):
            lines += ["", f"# {line[3:]}", ""]
        elif item := ITEM.match(line):
            lines.append(f"{item[1]}- [{item[2]}]({site_path(resolve(INDEX, item[3]))})")
    return "\n".join(lines) + "\n"


def resolve(page: str, link: str) -> str:
    """Returns the path in the repository of a page's link."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(page: str) -> str:
    """Returns the path of a page on the site. A README is the index of its folder, and the index of all pages is the first page."""
    return "index.md" if page == INDEX else re.sub(r"README\.md$", "index.md", page)


def rewrite_links(page: str, text: str, pages: set[str]) -> tuple[str, set[str]]:
    """Returns a page with links that work on the site, and its images. Links to other files lead to the repository.

    Ends the program at a link to a file that does not exist.
    """
    images = set()

    def link(found: re.Match[str]) -> str:
        if found[0].startswith(("`", "#")) or re.match(r"\w+:", found[0]):
            return found[0]
        path, hash_sign, anchor = found[0].partition("#")
        target = resolve(page, path)
        if not (common.ROOT / target).exists():
            raise SystemExit(f"{page} has a link to {path}, which does not exist")
        if target in pages or pathlib.PurePosixPath(target).suffix in IMAGES:
            if target not in pages:
                images.add(target)
            to = posixpath.relpath(site_path(target), posixpath.dirname(site_path(page)) or ".")
        else:
            to = f"{common.HOMEPAGE}/{'tree' if (common.ROOT / target).is_dir() else 'blob'}/main/{target}"
        return to + hash_sign + anchor

    return LINK.sub(link, text), images


def tool() -> pathlib.Path:
    """Returns mdBook's program. Installs it if it is missing."""
    home = common.CACHE / "mdbook"
    if not has_tool():
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", common.ROOT / "target")) / "mdbook"
        common.run(["cargo", "install", "--quiet", "--locked", "--version", f"={MDBOOK}", "--root", str(home),
                    "--target-dir", str(target), "mdbook"], common.ROOT)
    return home / "bin" / "mdbook"


def has_tool() -> bool:
    """Returns True if this version of mdBook is installed."""
    program = common.CACHE / "mdbook" / "bin" / "mdbook"
    if not program.exists():
        return False
    output = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True).stdout
    return output.split() == ["mdbook", f"v{MDBOOK}"]


def installs() -> list[str]:
    """Returns the downloads that a build needs."""
    return [] if has_tool() else [f"crates.io's mdbook {MDBOOK} into {common.CACHE / 'mdbook'} (4 minutes)"]
