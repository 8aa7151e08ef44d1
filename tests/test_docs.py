"""What the documents say is there, is there; and it is there for everybody who clones the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import paceline

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
SOURCE = Path(paceline.__file__).parent


def test_the_house_names_every_file_once() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    tree = text[text.index("    src/paceline/") :]
    named = re.findall(r"^      (\S+\.py) ", tree, flags=re.MULTILINE)
    files = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")]
    inner = {name for name in files if name.count("/") and name.endswith("__init__.py")}
    assert sorted(named) == sorted(set(files) - inner)


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="no checkout")
def test_git_ignores_no_source_file() -> None:
    files = [
        str(path) for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*.*") if path.is_file()
    ]
    # A library that was built in place is none.
    kept = [path for path in files if "__pycache__" not in path and not path.endswith(".so")]
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        input="\n".join(kept),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ignored.stdout, ignored.returncode) == ("", 1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    from typer.main import get_command

    from paceline.cli.app import app

    for line in re.findall(r"paceline (?:generate|chat|demo|config|bench|zoo|train)[^`#\n]*", page.read_text()):
        command, words = get_command(app), line.split()[1:]
        while words and hasattr(command, "commands") and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        for word in words:
            if word.startswith("--"):
                assert word in options, (line, word)
