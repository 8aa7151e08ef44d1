"""Code and prose that came with the running Python, read at build time: its standard library, and the pip in its wheel.

Knows files, `ast` and paragraphs; nothing of tokens. One document per function, method or small
class, windows of top-level code, the language-reference topics and the long docstrings.
"""

import ast
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from zipfile import ZipFile

from paceline.zoo.documents import Document, split_of

APPLICATIONS = frozenset({"idlelib", "lib2to3", "turtledemo"})
"""Programs in the library's folder; read after the library, which keeps the order of its held-out functions."""
SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "site-packages", "ensurepip", "encodings", "pydoc_data", "__phello__", "__pycache__", "idle_test"}
)
SKIPPED_TABLES = re.compile(
    "^(_sysconfigdata|opcode|keyword|token|html/entities|_pyrepl)|idnadata|uts46data|html5lib/constants|_emoji_codes"
    "|_cell_widths|chardet/(lang|.*freq|mbcssm)|pygments/(styles|lexers|unistring)"
)
SHORTEST_CHARS, LONGEST_CHARS, WINDOW_CHARS = 60, 2500, 2200
SHORTEST_PROSE_CHARS, PROSE_CHARS = 300, 2600
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def library_documents() -> Iterator[Document]:
    """Every code and prose document, in file order; what pip's wheel is not there to give is left out."""
    root = Path(sysconfig.get_path("stdlib"))
    names = [path.relative_to(root) for path in sorted(root.rglob("*.py"))]
    for name in names:
        if name.parts[0] not in APPLICATIONS:
            yield from _file_documents(name.as_posix(), (root / name).read_bytes())
    for topic in sorted(topics):
        yield from _prose_documents(f"topics/{topic}", _clean_topic(topics[topic]))
    for name in names:
        if name.parts[0] in APPLICATIONS:
            yield from _file_documents(name.as_posix(), (root / name).read_bytes())
    for pip_name, content in _pip_files(root / "ensurepip" / "_bundled"):
        yield from _file_documents(pip_name, content)


def _pip_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The sources in the wheel that `ensurepip` installs."""
    for wheel in sorted(folder.glob("pip-*.whl")):
        with ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".py"):
                    yield name, archive.read(name)


def _wanted(name: str) -> bool:
    folders = name.split("/")[:-1]
    skipped = any(part in SKIPPED_FOLDERS or part.startswith("config-") for part in folders)
    return not skipped and not SKIPPED_TABLES.search(name)


def _file_documents(name: str, content: bytes) -> Iterator[Document]:
    if not _wanted(name):
        return
    source = content.decode("utf-8", errors="replace").expandtabs(4)
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    lines = [line.rstrip() for line in source.splitlines()]
    split = split_of(name)
    for where, text in [*_definitions(tree, lines), *_windows(tree, lines)]:
        yield Document("code", f"{name}:{where}", split, text)
    for where, text in _docstrings(tree):
        for document in _prose_documents(name, text):
            yield Document("prose", f"{document.name}:{where}", split, document.text)


def _definitions(tree: ast.AST, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Functions and small classes whole; a large class as its head and its members."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, Definition):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _definitions(node, lines)
            continue
        text = _segment(node, lines)
        if SHORTEST_CHARS <= len(text) <= LONGEST_CHARS:
            yield f"{node.name}:{node.lineno}", text
        elif isinstance(node, ast.ClassDef):
            yield from _definitions(node, lines)


def _segment(node: Definition, lines: list[str]) -> str:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    return textwrap.dedent("\n".join(lines[first : node.end_lineno])).strip("\n")


def _windows(tree: ast.Module, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Runs of whole top-level statements, so that flowing code is seen too."""
    start = 0
    for node in tree.body:
        end = node.end_lineno or node.lineno
        if len("\n".join(lines[start:end])) < WINDOW_CHARS and node is not tree.body[-1]:
            continue
        text = "\n".join(lines[start:end]).strip("\n")
        if len(text) >= SHORTEST_CHARS:
            yield f"window{start}", _cut(text, 2 * WINDOW_CHARS)
        start = end


def _cut(text: str, limit_chars: int) -> str:
    """`text` up to its last line break before the limit."""
    return text if len(text) <= limit_chars else text[:limit_chars].rpartition("\n")[0]


def _docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    nodes = [n for n in ast.walk(tree) if isinstance(n, Definition | ast.Module)]
    for node in nodes:
        text = ast.get_docstring(node) or ""
        if len(text) >= 2 * SHORTEST_PROSE_CHARS:
            yield getattr(node, "name", "module"), text


def _clean_topic(text: str) -> str:
    """Without the underlines of headings and the marks of emphasis."""
    kept = [line for line in text.splitlines() if not re.fullmatch(r"[=*\-~^\"]{3,}", line.strip())]
    return "\n".join(kept).replace("**", "").strip()


def _prose_documents(name: str, text: str) -> Iterator[Document]:
    """Paragraphs gathered into documents of a readable length."""
    gathered = ""
    for part, paragraph in enumerate(re.split(r"\n\s*\n", text.strip("\n"))):
        joined = f"{gathered}\n\n{paragraph}".strip("\n")
        if len(joined) > PROSE_CHARS and gathered:
            yield Document("prose", f"{name}:{part}", split_of(name), gathered)
            joined = paragraph
        gathered = _cut(joined, 2 * PROSE_CHARS)
    if len(gathered) >= SHORTEST_PROSE_CHARS:
        yield Document("prose", f"{name}:end", split_of(name), gathered)
