"""The documentation is true: its commands, configurations and Python run, its links lead somewhere.

Commands run in one process, in a folder that holds what the pages name, and with less time and smaller
models than the pages say:

| on the page | here |
| --- | --- |
| ``--budget 15m`` (any time) | ``--budget 3s`` |
| ``--minutes 3`` (any) | ``--minutes 0.2`` |
| ``training.steps=20000`` (any), or neither steps nor a budget | ``training.steps=20`` |
| ``triptych train …`` of a new run | with the settings ``TINY`` after it |
| ``triptych verify …`` of settings, not a run | with the settings ``SMALL`` after it |

A comment ``# exit code N`` after a command names its exit code, else it is 0. A comment ``# → text`` after a
``print`` in Python is what is printed. A YAML block that begins with ``# name.yaml`` is that file.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import typer
from PIL import Image

from plant import plant
from triptych.cli.main import app, main
from triptych.config import PRESETS, Part, RunConfig, Settings, choices, load_config
from triptych.config.settings import inner_axis
from triptych.insight.laws import LAWS, table, verify
from triptych.model.visible import Causal
from triptych.training.resume import CHANGEABLE

ROOT = Path(__file__).parents[2]
README, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, CHINESE, *DOCS]

SHORTER = (
    (r"--budget \S+", "--budget 3s"),
    (r"--minutes \S+", "--minutes 0.2"),
    (r"training\.steps=\d+", "training.steps=20"),
)
TINY = (
    "model.dim=32", "model.layers=1", "model.encoder_layers=1", "model.decoder_layers=1",
    "model.heads.count=2", "model.ffn.dim=64", "text.tokenizer.size=420", "text.tokenizer.shrink=true",
    "data.tokens=512", "training.schedule.peak=1e-2", "training.schedule.warmup=10",
)  # fmt: skip
SMALL = ("model.vocab=60", "model.dim=32", "model.heads.count=2")


# -- pages -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line it begins in."""

    language: str
    text: str
    line: int


def blocks(page: Path, language: str) -> list[Block]:
    """The blocks of one language, in order."""
    found = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE):
        line = text_of(page)[: match.start()].count("\n") + 2
        found.append(Block(match[1], match[2], line))
    return [block for block in found if block.language == language]


def text_of(page: Path) -> str:
    """A page's text."""
    return page.read_text(encoding="utf-8")


def commands(page: Path) -> list[str]:
    """The lines of its shell blocks."""
    lines = [line for block in blocks(page, "sh") for line in block.text.split("\n")]
    return [line for line in lines if line.strip()]


def name(page: Path) -> str:
    """For the names of tests."""
    return page.stem.lower()


# -- the folder the pages speak of -------------------------------------------------------------------------


def pairs() -> list[tuple[str, str]]:
    """Sentence pairs of a small grammar."""
    numbers = {
        "two": "zwei",
        "three": "drei",
        "four": "vier",
        "five": "fünf",
        "six": "sechs",
        "seven": "sieben",
    }
    nouns = {"cats": "Katzen", "dogs": "Hunde", "birds": "Vögel", "trees": "Bäume", "books": "Bücher"}
    verbs = {"I see": "ich sehe", "we have": "wir haben", "they want": "sie wollen", "you know": "du kennst"}
    return [
        (f"{v} {n} {o}.", f"{v2} {n2} {o2}.")
        for v, v2 in verbs.items()
        for n, n2 in numbers.items()
        for o, o2 in nouns.items()
    ]


def tagged(sentence: str) -> list[str]:
    """A word and its tag a line: numbers and what is counted are a span."""
    tags = ["O", "O", "B-AMOUNT", "I-AMOUNT"]
    return [f"{word}\t{tag}" for word, tag in zip(sentence.rstrip(".").split(), tags, strict=True)]


def furnish(home: Path) -> None:
    """Every file that a page names."""
    rows = pairs()

    def write(file: str, lines: list[str]) -> None:
        (home / file).write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    write("pairs.tsv", [f"{s}\t{t}" for s, t in rows])
    for file, (s, t) in {"valid.tsv": rows[0], "test.tsv": rows[1]}.items():
        write(file, [f"Look! {s}\tSchau! {t}"] * 1 + [f"Oh, {i}: {s}\tAch, {i}: {t}" for i in range(9)])
    for stem in ("corpus", "test"):
        write(f"{stem}.en", [s for s, _ in rows])
        write(f"{stem}.de", [t for _, t in rows])
    more = "".join(json.dumps({"source": f"Well, {s}", "target": f"Nun, {t}"}) + "\n" for s, t in rows)
    (home / "more.jsonl.gz").write_bytes(gzip.compress(more.encode()))
    write("talks.jsonl", [json.dumps({"translation": {"en": s, "de": t}}) for s, t in rows])
    words = sorted({word for s, _ in rows for word in s.rstrip(".").split()})
    values = " ".join(str(j % 7 - 3) for j in range(299))
    write("words.vec", [f"{word} {i} {values}" for i, word in enumerate(words)])
    write("reviews.tsv", [f"{s}\t{'cats' if 'cats' in s else 'no cats'}" for s, _ in rows])
    write("reviews.txt", ["I see two cats.", "", "we have seven books."])
    write("questions.tsv", [f"{s}\t{t}\t{'short' if len(s) < 16 else 'long'}" for s, t in rows])
    write("questions.txt", ["I see two cats.\tich sehe zwei Katzen.", "\t"])
    write("entities.conll", [x for s, _ in rows for x in (*tagged(s), "")])
    write("plain.conll", ["two", "cats", "", "books"])
    write("stories.txt", [line for s, t in rows[:60] for line in (s, f"{s} {t}", "")])
    asked = [{"instruction": f"Say it in German: {s}", "input": "", "output": t} for s, t in rows]
    write("assistant.jsonl", [json.dumps(one, ensure_ascii=False) for one in asked])
    write("articles.tsv", [f"{' '.join(s for s, _ in rows[i : i + 8])}\t{rows[i][0]}" for i in range(100)])
    write("prompts.txt", ["I see", "", "we have two"])
    write("masked.txt", ["I [MASK] two cats.", "we have [MASK] [MASK]."])
    write("input.txt", ["I see two cats.", "", "we have seven books."])
    write("long.txt", ["I see two cats.", " ".join(s for s, _ in rows)])
    for label, low in (("cat", 0), ("dog", 120)):
        (home / "photos" / label).mkdir(parents=True)
        for i in range(20):
            values = np.random.default_rng(i).integers(low, low + 130, (32, 32, 3)).astype(np.uint8)
            Image.fromarray(values).save(home / "photos" / label / f"{i}.png")
    for page in PAGES:
        for block in blocks(page, "yaml"):
            if named := re.match(r"# (\S+\.yaml)\n", block.text):
                (home / named[1]).write_text(block.text, encoding="utf-8")


@dataclass(frozen=True)
class Done:
    """What a command gave."""

    code: int
    out: str
    err: str


def shorter(line: str) -> str:
    """The line as it runs here."""
    for pattern, instead in SHORTER:
        line = re.sub(pattern, instead, line)
    if line.startswith("triptych train") and "--resume" not in line:
        open_end = not re.search(r"--budget|training\.steps=", line)
        # A form of one stack has no settings of the two.
        tiny = [t for t in TINY if "coder_layers" not in t] if "--objective" in line else list(TINY)
        if re.search(r"photos|cells\.yaml", line):  # images have no texts
            tiny = [t for t in tiny if not t.startswith("text.")]
        line = " ".join((line, *tiny, *(["training.steps=20"] if open_end else [])))
    if line.startswith("triptych verify") and not line.startswith("triptych verify runs/"):
        line = " ".join((line, *SMALL))
    return line


def run_line(line: str, home: Path) -> Done:
    """One line of a shell block, ``[… |] triptych … [< file] [> file]``, in this process."""
    before, _, rest = line.rpartition("triptych ")
    stdin = b""
    if before:
        assert before.endswith("| "), f"not understood: {line}"
        piped = ["bash", "-c", before[:-2]]
        stdin = subprocess.run(piped, cwd=home, capture_output=True, check=True).stdout
    words = shlex.split(rest)
    taken: dict[str, str] = {}
    for sign in ("<", ">"):
        if sign in words:
            at = words.index(sign)
            taken[sign] = words[at + 1]
            del words[at : at + 2]
    assert not {"|", "&&", ";", "\\"} & set(words), f"not understood: {line}"
    if "<" in taken:
        stdin = (home / taken["<"]).read_bytes()
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    was, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    old = Path.cwd()
    os.chdir(home)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words)
            out.flush()
    finally:
        os.chdir(old)
        sys.stdin = was
    said = out.buffer.getvalue()  # type: ignore[attr-defined]
    if ">" in taken:
        (home / taken[">"]).write_bytes(said)
    return Done(code, said.decode("utf-8"), err.getvalue())


def run_page(page: Path, home: Path) -> dict[str, Done]:
    """All commands of a page in order, each with the exit code that it should have."""
    found = {}
    for line in commands(page):
        command, _, comment = line.partition("  # ")
        wanted = re.fullmatch(r"exit code (\d+)", comment)
        assert not comment or wanted, f"a comment that says nothing about the exit code: {line}"
        if command.startswith("make ") or command == ". .venv/bin/activate":
            continue  # `test_make` and `test_activate`
        if command.startswith("python "):
            done = run_script(shlex.split(command)[1:], home)
        else:
            done = run_line(shorter(command), home)
        assert done.code == (int(wanted[1]) if wanted else 0), f"{line}\n{done.out}\n{done.err}"
        found[command] = done
    return found


def run_script(words: list[str], home: Path) -> Done:
    """A Python program of this repository, or Python text after ``-c``."""
    words = [str(ROOT / w) if w.startswith("docs/") else w for w in words]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=home, env=env, capture_output=True, timeout=120, check=False
    )
    return Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Done]]:
    """The folder after the README's commands, and what they gave: the other pages go on from there."""
    home = tmp_path_factory.mktemp("docs")
    furnish(home)
    precision = torch.get_float32_matmul_precision()
    found = run_page(README, home)
    torch.set_float32_matmul_precision(precision)
    return home, found


@pytest.fixture
def home(trained: tuple[Path, dict[str, Done]], tmp_path: Path) -> Iterator[Path]:
    """A copy of that folder, with the settings of this process as they were afterwards."""
    folder = tmp_path / "home"
    subprocess.run(["cp", "-r", str(trained[0]), str(folder)], check=True)
    precision = torch.get_float32_matmul_precision()
    yield folder
    torch.set_float32_matmul_precision(precision)


# -- commands ----------------------------------------------------------------------------------------------


def test_readme_commands(trained: tuple[Path, dict[str, Done]]) -> None:
    home, found = trained
    lines = (home / "output.txt").read_text(encoding="utf-8").split("\n")
    assert len(lines) == 4 and lines[1] == lines[3] == ""  # three lines in, three lines out
    known = {"train", "translate", "evaluate", "verify", "generate", "classify"}
    assert {c.split()[1] for c in found} == known
    assert all((home / c.split()[2]).is_dir() for c in found if c.split()[1] != "train")


@pytest.mark.parametrize("page", [p for p in DOCS if commands(p)], ids=name)
def test_commands(page: Path, home: Path) -> None:
    found = run_page(page, home)
    if page.stem == "translate":
        assert (home / "output.txt").read_text(encoding="utf-8").count("\n") == 3
    if page.stem == "demo":
        assert (home / "pictures" / "demo-heatmap.svg").stat().st_size > 1000
    for command, done in found.items():
        assert "Traceback" not in done.err, command


def test_both_readmes_have_the_same_blocks() -> None:
    for language in ("sh", "python", "yaml"):
        assert [b.text for b in blocks(README, language)] == [b.text for b in blocks(CHINESE, language)]
    headings = [re.findall(r"^#+ ", text_of(p), re.MULTILINE) for p in (README, CHINESE)]
    assert headings[0] == headings[1]
    tables = [
        [line.count("|") for line in text_of(p).split("\n") if line.startswith("|")]
        for p in (README, CHINESE)
    ]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_the_text(page: Path) -> None:
    """``triptych …`` between backticks is a command with options that it has."""
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    outside = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`triptych ([^`]+)`", outside):
        words = span.split()
        assert words[0] in known, span
        options = {o for p in known[words[0]].params for o in p.opts}
        for word in words[1:]:
            assert not word.startswith("--") or word in options, span


@pytest.mark.parametrize("page", [p for p in DOCS if p.stem in ("demo", "translate")], ids=name)
def test_options_in_tables(page: Path) -> None:
    """The tables name every option of the command but those that the text treats elsewhere."""
    command = typer.main.get_command(app).commands[page.stem]  # type: ignore[attr-defined]
    options = {o for p in command.params for o in p.opts if o.startswith("--")} - {"--help"}
    assert set(re.findall(r"`(--[a-z-]+)", text_of(page))) >= options - {"--sample", "--json", "--from"}
    assert all(o in text_of(page) for o in options)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make(page: Path) -> None:
    """``make`` lines name targets and variables of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    spans = [*commands(page), *re.findall(r"`(make [^`]+)`", text_of(page))]
    for words in (shlex.split(line)[1:] for line in spans if line.startswith("make ")):
        for word in words:
            variable, equals, _ = word.partition("=")
            pattern = rf"^{variable} \?=" if equals else rf"^{word}:.*## "
            assert re.search(pattern, makefile, re.MULTILINE), word


def test_activate() -> None:
    """The folder that is activated is the one that make builds."""
    assert re.search(r"^VENV := \.venv$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


# -- Python and YAML ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python") and p != CHINESE], ids=name)
def test_python(page: Path, home: Path) -> None:
    """All blocks of a page as one program, in a process of its own: a page may register a new part."""
    text = "\n".join(block.text for block in blocks(page, "python"))
    for line in commands(page):  # what the program opens
        out = re.search(r"triptych train .*--out (\S+)", line)
        if out and f'"{out[1]}"' in text and not (home / out[1]).exists():
            assert run_line(shorter(line), home).code == 0, line
    wanted = re.findall(r"  # → (.*)$", text, re.MULTILINE)
    # Only what is announced is compared: each such print says so itself.
    marked = re.sub(r"^(\s*)print\((.*)\)  # → .*$", r"\1print('→', \2)", text, flags=re.MULTILINE)
    assert marked.count("print('→', ") == len(wanted) == text.count("# →")
    done = run_script(["-c", marked], home)
    assert done.code == 0, done.err
    found = [line.removeprefix("→ ") for line in done.out.split("\n") if line.startswith("→")]
    assert found == wanted


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "yaml")], ids=name)
def test_yaml(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "yaml"):
        file = tmp_path / "config.yaml"
        file.write_text(block.text, encoding="utf-8")
        config = load_config(file)
        assert config != RunConfig(), f"{page.name}:{block.line} changes nothing"


def test_only_known_languages_in_blocks() -> None:
    """A block in a language that no test looks at would go unchecked."""
    for page in PAGES:
        fences = re.findall(r"^```(\w*)$", text_of(page), re.MULTILINE)
        assert set(fences[::2]) <= {"sh", "python", "yaml", "text"} and set(fences[1::2]) <= {""}, page.name


# -- links -------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The fragments of its headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", t.lower()).strip().replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", text_of(page))
    for link in links:
        assert "://" not in link, f"{link}: a link outside cannot be checked here"
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        assert not fragment or fragment in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_source_files_named_exist(page: Path) -> None:
    outside = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for path in re.findall(r"`((?:src/)?(?:triptych/)?\w[\w/]*\.py|[a-z]+/(?:[a-z]+/)*)`", outside):
        places = [ROOT, ROOT / "src", ROOT / "src/triptych"]
        run = path in ("runs/", "tokenizer/", "checkpoints/", "data/", "tensorboard/")
        assert run or any((place / path).exists() for place in places), path


# -- tables ------------------------------------------------------------------------------------------------


def table_rows(text: str) -> list[list[str]]:
    """The cells of all rows, without headings."""
    rows = [line.strip("|").split(" | ") for line in text.split("\n") if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if not row[0].strip().startswith(("key", "---"))]


def _section(annotation: Any) -> type[Settings] | None:
    """The settings of a section that may be left out, ``X | None``."""
    kinds = [kind for kind in get_args(annotation) if isinstance(kind, type) and issubclass(kind, Settings)]
    return kinds[0] if kinds else None


def settings() -> dict[str, dict[str, dict[str, Any]]]:
    """Section → key → kind ("" where there are none) → default; ``...`` where a key is needed."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    axes: dict[str, str] = {}  # the kind of an axis: what stands without one

    def add(cls: type[Settings], section: str, kind: str) -> None:
        for key, field in cls.model_fields.items():
            inner, place = field.annotation, f"{section}.{key}".lstrip(".")
            axis = inner_axis(inner)
            # A choice in a choice of its own axis has the same keys again, and so has one of a single stack.
            if axis and not issubclass(cls, axis) and field.default is not None:
                axes[place] = field.default.kind
                for name, choice in choices(axis).items():
                    add(choice, place, name)
            elif isinstance(inner, type) and issubclass(inner, Settings) and not axis:
                add(inner, place, "")
            elif not axis and (whole := _section(inner)):
                add(whole, place, "")
                found.setdefault(section, {}).setdefault(key, {})[kind] = None
            else:
                default = field.default.kind if isinstance(field.default, Part) else field.default
                value = ... if field.is_required() else json.loads(json.dumps(default))
                found.setdefault(section, {}).setdefault(key, {})[kind] = value

    add(RunConfig, "", "")
    for axis, kind in axes.items():
        found[axis]["kind"] = {"": kind}
    return found


def plain(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def stated(cell: str, kinds: list[str]) -> dict[str, Any]:
    """What a cell of defaults says: ``x``, or ``x`` (kinds), …; by kind."""
    if cell == "needed" or cell.startswith("needed ("):
        cell = cell.replace("needed", "`needed`")
    found = {}
    for value, named in re.findall(r"`([^`]*)`(?: \(([\w, ]+)\))?", cell):
        for kind in named.split(", ") if named else kinds:
            found[kind] = ... if value == "needed" else plain(value)
    return found


def test_configuration_names_every_key_and_no_other() -> None:
    text = text_of(ROOT / "docs" / "configuration.md")
    known = settings()
    parts = re.split(r"^##+ `([\w.]+)`$", text, flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert set(sections) == set(known)
    for section, body in sections.items():
        rows = {row[0].strip("`"): row for row in table_rows(body)}
        assert set(rows) == set(known[section]), section
        for key, row in rows.items():
            defaults = known[section][key]
            assert stated(row[1], list(defaults)) == defaults, f"{section}.{key}"


def test_configuration_names_every_kind() -> None:
    text = text_of(ROOT / "docs" / "configuration.md")
    schema = RunConfig.model_json_schema()
    named = set(re.findall(r"`([^`\n]+)`", text))
    literals = set(re.findall(r'"(?:const|enum)": (?:"(\w+)"|\[([^\]]+)\])', json.dumps(schema)))
    words = {w.strip('" ') for one, many in literals for w in (one, *many.split(",")) if w.strip('" ')}
    axes = [Settings.__subclasses__()]
    kinds = {
        kind
        for axis in axes
        for cls in axis
        if cls is Part
        for a in cls.__subclasses__()
        for kind in choices(a)
    }
    assert words and kinds and words | kinds <= named, (words | kinds) - named


def test_what_may_change_in_a_resumed_run() -> None:
    paragraphs = text_of(ROOT / "docs" / "train.md").split("\n\n")
    (said,) = (p for p in paragraphs if p.startswith("These may change when a run goes on"))
    assert set(re.findall(r"`([\w.]+)`", said)) == set(CHANGEABLE)


def test_presets_are_named() -> None:
    assert all(f"`{name}`" in text_of(ROOT / "docs" / "train.md") for name in PRESETS)


def test_verify_names_every_law() -> None:
    rows = re.findall(r"^\| (\d+) ([^|]+) \| [^|]+ \|$", text_of(ROOT / "docs" / "verify.md"), re.MULTILINE)
    assert {int(n): name for n, name in rows} == {n: law.name for n, law in LAWS.items()}


def test_a_broken_law_prints_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, Causal.__call__, "query.position[:, :, None]", "query.position[:, :, None] + 1")
    config = RunConfig.parse({"model": {"vocab": 30, "dim": 16, "layers": 1, "heads": 2}}).model
    said = table(verify(config, only=[1]))
    (shown,) = blocks(ROOT / "docs" / "verify.md", "text")
    figures = r"\d+\.\d+(e[-+]\d+)?"
    assert re.sub(figures, "#", said).strip() == re.sub(figures, "#", shown.text.rstrip()).strip()


def test_the_rooms_are_those_of_the_import_check() -> None:
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        (contract,) = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    here = {p.stem for p in (ROOT / "src" / "triptych").iterdir()}
    layers = [[r.strip(" ()") for r in re.split(r"[|:]", layer)] for layer in contract["layers"]]
    layers = [kept for layer in layers if (kept := [r for r in layer if r in here])]
    text = text_of(ROOT / "docs" / "design.md")
    rows = re.findall(r"^\| \d+ \| (.+) \|$", text, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row) for row in rows] == layers
    order = [r for layer in layers for r in layer]
    for page in (README, CHINESE):
        named = re.findall(r"^\| `(\w+)/` \|", text_of(page), re.MULTILINE)
        assert sorted(named) == sorted(order[:-2])
        depth = {room: i for i, layer in enumerate(layers) for room in layer}
        assert [depth[r] for r in named] == sorted(depth[r] for r in named)
