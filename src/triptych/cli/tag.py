"""``triptych tag``: a tag for each word."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.common import existing, load_fast, say
from triptych.cli.lines import blocks
from triptych.errors import UserError

# A sentence: the number of its first line, its words; no words: a line without any.
Sentence = tuple[int, list[str]]
CONLL_U = 10  # columns


def tag(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    file: Annotated[str, typer.Argument(help="File of lines, or - for standard input.")] = "-",
    conll: Annotated[bool, typer.Option("--conll", help="One word a line, blank lines between.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Make the tags well-formed BIO.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a sentence.")] = False,
) -> None:
    """Tag the words of each line, which are what blanks part: word, tag, word, tag, … with tabs between.

    With --conll the words stand one a line, in the first column (the second in CoNLL-U), and each is given
    back as a line of word, tab and tag.
    """
    if file != "-":
        existing(Path(file), "a file of lines")
    tagger = load_fast(run).tagger
    for sentences in _conll(file) if conll else _plain(file):
        found = tagger.tag([words for _, words in sentences], repair, sentences[0][0] - 1)
        for (line, words), tags in zip(sentences, found, strict=True):
            sys.stdout.buffer.write(_shown(line, words, tags, conll, as_json).encode())
        sys.stdout.flush()


def _shown(line: int, words: list[str], tags: list[str], conll: bool, as_json: bool) -> str:
    if as_json:
        record = {"line": line, "words": words, "tags": tags}
        return json.dumps(record, ensure_ascii=False) + "\n" if words or not conll else ""
    rows = [f"{word}\t{said}" for word, said in zip(words, tags, strict=True)]
    return "\n".join([*rows, ""]) if conll and rows else "\t".join(rows) + "\n"


def _plain(file: str) -> Iterator[list[Sentence]]:
    """One sentence a line."""
    number = 0
    for block in blocks(file, "type a sentence to see its tags"):
        yield [(number + n, line.split()) for n, line in enumerate(block, 1)]
        number += len(block)


def _conll(file: str) -> Iterator[list[Sentence]]:
    """One word a line; a blank line ends a sentence, and is itself one of no words."""
    name = "standard input" if file == "-" else file
    lines = [line for block in blocks(file, "type words, one a line") for line in block]
    rows = [line.split("\t") if "\t" in line else line.split() for line in lines]
    universal = _universal(rows)
    found: list[Sentence] = []
    left_out, open_ = 0, False
    for number, (line, columns) in enumerate(zip(lines, rows, strict=True), 1):
        if not line.strip():
            found.append((number, []))
            open_ = False
        elif universal and not columns[0].isdecimal():  # a comment, or words that others stand for
            left_out += 1
        else:
            if len(columns) <= universal or not columns[universal].strip():
                mend = "write the word in column " + str(universal + 1)
                raise UserError("there is no word in this line", f"{name}:{number}", mend)
            if not open_:
                found.append((number, []))
                open_ = True
            found[-1][1].append(columns[universal])
    if left_out:
        say(f"note: comments and rows such as 1-2 and 1.1 of CoNLL-U, left out: {left_out:,}")
    if found:
        yield found


def _universal(rows: Sequence[Sequence[str]]) -> bool:
    """Whether this is CoNLL-U: its first row that is no comment has ten columns and begins with a number."""
    first = next((row for row in rows if row and "".join(row).strip() and not row[0].startswith("#")), [])
    return len(first) == CONLL_U and first[0].split("-")[0].isdecimal()
