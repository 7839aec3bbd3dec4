"""Code in our pages: what README and docs show, taken out so that it can be run and checked.

The Python blocks of a page, in their order, are one program. Every line keeps its number, so that a message about
line 60 of the program is about line 60 of the page. An HTML comment, which readers do not see, may stand above a
block and say how it is treated:

    <!-- test: skip, needs a cluster -->      neither run nor checked; the reason is required
    <!-- test: types, takes ten minutes -->   checked by pyright, not run
    <!-- test: run, its types are too wide -->  run, not checked by pyright
    <!-- test: parse, needs a cluster -->     of shell commands: checked that they can be given, not run
    <!-- test: file duct.toml -->             the block is the content of a file, written before the page's code runs
    <!-- test: before                         the lines of this comment are Python that runs before the block
    import pennpde as penn
    -->

    python tests/support/documents.py FOLDER          writes the program of every page into a folder, for `make lint`
"""

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELLS = ("sh", "bash", "shell", "console")

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})\s*(?P<language>[^\s`]*)[^`]*")
_MARK = re.compile(r"\s*<!--\s*test:\s*(?P<mark>\w+)(?P<rest>.*?)\s*(?P<closed>-->)?\s*$")
_INLINE = re.compile(r"`(penn [^`]+)`")
# What another program does: a pipe, a redirection, the next command.
_END_OF_COMMAND = {"|", ">", ">>", "<", "&&", "||", ";", "&"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: what stands behind the fence, empty where nothing does.
        line: number of its first line of code in the page, from 1.
        text: the code, without the indentation of its fence.
        mark: skip, types, run, parse, file, or empty.
        argument: what follows the mark: a reason, or the name of a file.
    """

    language: str
    line: int
    text: str
    mark: str = ""
    argument: str = ""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page; hidden lines of `test: before` are blocks in Python like the others."""
    found: list[Block] = []
    lines = text.splitlines()
    mark = argument = ""
    at = 0
    while at < len(lines):
        comment, fence = _MARK.match(lines[at]), _FENCE.fullmatch(lines[at].rstrip())
        if comment and comment["mark"] == "before":
            end = _find(lines, at + 1, lambda line: line.strip() == "-->", f"the comment of line {at + 1}")
            found.append(Block("python", at + 2, "\n".join(lines[at + 1 : end])))
            at = end
        elif comment:
            mark, argument = comment["mark"], comment["rest"].strip(" ,")
            if mark not in ("skip", "types", "run", "parse", "file") or not argument or not comment["closed"]:
                raise ValueError(f"Line {at + 1} is {lines[at]!r}; marks look like '<!-- test: skip, REASON -->'.")
        elif fence:
            closing, indent = fence["fence"], len(fence["indent"])
            end = _find(lines, at + 1, lambda line, closing=closing: line.strip() == closing, f"line {at + 1}")
            code = "\n".join(line[indent:] for line in lines[at + 1 : end])
            found.append(Block(fence["language"], at + 2, code, mark, argument))
            mark = argument = ""
            at = end
        elif lines[at].strip() and mark:
            raise ValueError(f"The mark {mark!r} above line {at + 1} belongs to a block, and none follows it.")
        at += 1
    return found


def _find(lines: list[str], start: int, test, opened: str) -> int:
    for at in range(start, len(lines)):
        if test(lines[at]):
            return at
    raise ValueError(f"What {opened} opens is never closed.")


def program(page: str, *, run: bool) -> str:
    """The Python of a page, each line at its own number; empty where there is none.

    Args:
        page: text of the page.
        run: without the blocks that are only to be checked; otherwise without those that are only to be run.
    """
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python" and block.mark not in ("skip", "file", "types" if run else "run"):
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    return "\n".join(lines) + "\n" if lines else ""


def files(page: str) -> dict[str, str]:
    """Files that a page shows: marked as such, or TOML whose first line is a comment with the name."""
    found = {}
    for block in blocks(page):
        first = block.text.partition("\n")[0]
        if block.mark == "file":
            found[block.argument] = block.text + "\n"
        elif block.language == "toml" and re.fullmatch(r"# [\w./-]+\.toml", first):
            found[first.removeprefix("# ")] = block.text + "\n"
    return found


def commands(page: str, *, run: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The commands in the shell blocks of a page, with the number of their line: words, without comments and pipes.

    Args:
        page: text of the page.
        run: without those that are only to be parsed.
    """
    for block in blocks(page):
        if block.language not in SHELLS or block.mark == "skip" or (run and block.mark == "parse"):
            continue
        joined = re.sub(r"\\\n", "  ", block.text)
        for number, line in enumerate(joined.splitlines()):
            # A prompt: "$ ", or the name of a machine as in "node1$  ".
            words = _words(re.sub(r"^\s*\w*\$\s+", "", line))
            while words and re.fullmatch(r"\w+=\S*", words[0]):
                words = words[1:]
            if words:
                yield block.line + number, words


def inline_commands(page: str) -> Iterator[tuple[int, list[str]]]:
    """`penn ...` within sentences: names of subcommands and options, not always whole."""
    fenced = {
        line for block in blocks(page) for line in range(block.line - 1, block.line + len(block.text.splitlines()) + 1)
    }
    # A sentence may break within a command.
    lines = ["" if number in fenced else line for number, line in enumerate(page.splitlines(), start=1)]
    text = "\n".join(lines)
    for found in _INLINE.finditer(re.sub(r"(?<=\S)\n(?=\S)", " ", text)):
        yield text[: found.start()].count("\n") + 1, _words(found[1].replace("\\|", "|"))


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word in _END_OF_COMMAND:
            break
        words.append(word)
    return words


def main(folder: str) -> None:
    """Write the program of every page that has one."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for former in target.glob("*.py"):  # of pages whose code is no longer checked
        former.unlink()
    for page in PAGES:
        code = program(page.read_text(encoding="utf-8"), run=False)
        if code:
            (target / f"{page.stem.lower()}.py").write_text(code, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
