"""``triptych parts``: everything there is to choose from is listed, and nothing is said twice."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Cli
from cli.test_bad_input import refused
from triptych import model as _registers_all_parts  # noqa: F401
from triptych.config import Part, choices, parts
from triptych.config.rules import MEANING, RULES
from triptych.errors import UserError
from triptych.insight.catalogue import DIM, TOKENS, axes, catalogue, said, text, to_dict, type_name
from triptych.model.registry import carried_out

ROOT = Path(__file__).parents[2]
ALL = [(name, kind) for name, axis in axes().items() for kind in choices(axis)]


def shown(axis: str, kind: str) -> Any:
    """The entry of a choice."""
    (found,) = [a for a in catalogue(f"{axis}.{kind}") if a.name == axis]
    (entry,) = found.choices
    return entry


def test_every_axis_is_listed() -> None:
    """Direct subclasses of Part with a section in the model, each by a name of its own."""
    with_section = [cls for cls in Part.__subclasses__() if cls.section.startswith("model.")]
    assert len(axes()) == len(with_section) >= 10
    assert {"position", "mixer", "heads", "norm", "ffn", "score", "visible", "embedding"} <= set(axes())


@pytest.mark.parametrize(("axis", "kind"), ALL)
def test_every_choice(axis: str, kind: str) -> None:
    """What is said of a choice is what the code has: docstring, fields, registry, refusals."""
    cls, entry = choices(axes()[axis])[kind], shown(axis, kind)
    words = " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("``", "").split())
    assert entry.line and entry.line[:10] in words
    years = set(re.findall(r"\b(?:19|20)\d\d\b", words))
    assert years <= set(re.findall(r"\d{4}", entry.paper)) and not re.search(r"\(\W*\)", entry.line)
    assert {s.name for s in entry.settings} == set(cls.model_fields) - {"kind"}
    for setting in entry.settings:
        assert setting.type and setting.needed == cls.model_fields[setting.name].is_required()
    module = carried_out(cls)
    assert entry.module.rpartition(".")[2] == getattr(module, "func", module).__name__
    assert entry.cost is not None, "no layer is made with it: GUESSES hold no value for a needed setting"
    assert entry.cost.parameters >= 0 and entry.cost.flops >= 0


def test_every_refusal_of_a_part_is_listed() -> None:
    found = {(no.other, no.because) for axis in catalogue() for no in axis.refuses}
    found |= {(no.other, no.because) for axis in catalogue() for c in axis.choices for no in c.refuses}
    listed = [r for r in RULES if issubclass(r.of, Part)]
    assert listed
    assert {(r.other, f"{r.because}: {MEANING[r.because]}") for r in listed} == found


def test_where_a_mixer_fits_is_what_configurations_take() -> None:
    """By trial, form by form and stack by stack; a mixer with a source has no form without one."""
    everywhere = {"encoder_decoder": ["encoder", "decoder"], "decoder": ["decoder"], "encoder": ["encoder"]}
    assert shown("mixer", "attention").fits == shown("mixer", "lstm").fits == everywhere
    assert shown("mixer", "linformer").fits == {"encoder_decoder": ["encoder"], "encoder": ["encoder"]}
    assert shown("mixer", "ssm").fits == {"encoder_decoder": ["decoder"], "decoder": ["decoder"]}
    assert shown("mixer", "luong").fits == {"encoder_decoder": ["encoder", "decoder"]}
    for kind, cls in choices(parts.Mixer).items():
        stacks = {side for sides in shown("mixer", kind).fits.values() for side in sides}
        assert stacks == {{"causal": "decoder", "bidirectional": "encoder"}[s] for s in cls.stacks}, kind
    assert shown("position", "rope").fits is None


def test_what_never_goes_with_a_choice() -> None:
    """From both sides, and not where a pattern of mixers makes it work."""
    acting = [kind for kind, cls in choices(parts.Position).items() if cls.acts == "attention"]
    for kind, cls in choices(parts.Mixer).items():
        assert shown("mixer", kind).never.get("position", []) == ([] if cls.attends else acting), kind
    refusing = [kind for kind, cls in choices(parts.Mixer).items() if not cls.attends]
    assert shown("position", "rope").never == {"mixer": refusing, "score": ["additive"]}
    assert shown("score", "cosine").never == {"position": ["shaw", "xl"]}
    assert shown("norm", "rmsnorm").never == {}
    assert catalogue()[0].choices[0].never is None, "found out for those alone that are asked for by name"
    said = " ".join(text(catalogue("lstm"), 100, full=True).split())
    assert f"position {', '.join(acting)} in all layers of a stack" in said
    assert "in form encoder_decoder (encoder and decoder), decoder, encoder not with an output of the" in said
    assert "mixer lstm, gru" in " ".join(text(catalogue("rope"), 100, full=True).split())


def test_costs_are_those_of_the_layer_that_is_named() -> None:
    """By hand: d = 512, 8 heads, feed-forward width 2,048, n tokens."""
    d, n, inner = DIM, TOKENS, 4 * DIM
    want = {
        ("ffn", "relu"): (2 * d * inner + inner + d, 4 * n * d * inner),
        ("ffn", "swiglu"): (3 * d * inner, 6 * n * d * inner),
        ("norm", "rmsnorm"): (2 * d, 0),
        ("mixer", "attention"): (4 * d * d + 4 * d, 8 * n * d * d + 4 * n * n * d),
        ("position", "rope"): (0, 0),
        ("position", "learned"): (1024 * d, 0),
    }
    found = {key: shown(*key).cost for key in want}
    assert {key: (cost.parameters, cost.flops) for key, cost in found.items()} == want
    window, everything = (shown("visible", kind).cost for kind in ("window", "everything"))
    assert window.flops < everything.flops and window.note == "width=64"


def test_a_name_finds_axes_and_choices() -> None:
    assert [a.name for a in catalogue("position")] == ["position"]
    assert [c.kind for a in catalogue("model.attention.score") for c in a.choices] == list(
        choices(parts.Score)
    )
    assert [[c.kind for c in a.choices] for a in catalogue("rope")] == [["rope"]]
    several = {a.name for a in catalogue("none")}
    assert "position" in several and len(several) > 1
    assert [a.name for a in catalogue("position.none")] == ["position"]
    with pytest.raises(UserError, match="did you mean rope"):
        catalogue("ropee")


def test_an_own_part_is_listed() -> None:
    """A choice that is defined somewhere else, with settings of many types."""
    from typing import ClassVar, Literal

    from pydantic import Field

    class Odd(parts.Norm):
        """An odd one (Someone 1899; Other 2031, section 2), in words.

        More that is not said.
        """

        section: ClassVar[str] = "model.norm"
        kind: Literal["odd"] = "odd"
        way: Literal["a", "b"] = "a"
        many: tuple[int, ...] = (1, 2)
        some: float | None = Field(None, gt=0, le=1, description="a share")

    try:
        assert said(Odd) == ("An odd one, in words.", "Someone 1899; Other 2031, section 2")
        entry = shown("norm", "odd")
        assert entry.module == "" and entry.cost is None  # nothing carries it out
        types = {s.name: (s.type, s.default) for s in entry.settings}
        assert types["way"] == ("a | b", "a") and types["many"] == ("list of integer", [1, 2])
        assert types["some"] == ("number > 0 and ≤ 1 or null", None)
        assert "some=null" in text(catalogue("norm"), 100, full=False)
    finally:
        del Odd
        import gc

        choices.cache_clear()
        gc.collect()  # a class stands among its parent's subclasses as long as it lives
    assert "odd" not in choices(parts.Norm)


def test_type_names() -> None:
    assert type_name({"type": "integer", "exclusiveMinimum": 0}, {}) == "integer > 0"
    assert type_name({"anyOf": [{"type": "boolean"}, {"const": "x"}]}, {}) == "boolean or x"


def test_text(cli: Cli) -> None:
    """Plain lines that fit, whatever they are piped into."""
    done = cli("parts")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 110
    for axis, kind in ALL:
        assert f"{axis} (model." in done.stdout and f"\n  {kind}: " in done.stdout
    one = cli("parts", "window").stdout
    assert "width: integer > 0, needed" in one and "carried out by triptych.model." in one


def test_json(here: Cli) -> None:
    done = here("parts", "--json")
    data = json.loads(done.stdout)
    assert data == json.loads(json.dumps(to_dict(catalogue())))
    assert {(a["name"], c["kind"]) for a in data["axes"] for c in a["choices"]} == set(ALL)
    (rope,) = (c for a in data["axes"] for c in a["choices"] if c["kind"] == "rope")
    assert rope["paper"].startswith("Su et al. 2021")
    assert {k: v for k, v in rope["settings"][0].items() if k != "description"} == {
        "name": "base",
        "type": "number > 1",
        "default": 10000.0,
        "needed": False,
    }


def test_unknown_names(here: Cli) -> None:
    refused(here("parts", "ropee"), "no part 'ropee'", "did you mean rope")
    refused(here("parts", "LSTM"), "no part 'LSTM'", "did you mean lstm")
    refused(here("parts", "zzzz"), "axes: ", "position")
    refused(here("parts", "rope", "learned"), "learned")
    refused(here("parts", "co-attention"), "did you mean coattention")
    refused(here("parts", "patch"), "did you mean patches")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; import triptych.cli.main; print([m for m in ('torch', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "src"
    )
    assert done.stdout.strip() == "[]"


# -- the page that says how to add one ---------------------------------------------------------------------

PAGE = (ROOT / "docs" / "add-a-part.md").read_text(encoding="utf-8")


def test_the_page_names_every_axis_and_what_it_needs() -> None:
    """But axes within a part, such as the scaling of rotary positions."""
    from importlib import import_module

    rows = re.findall(r"^\| `(\w+)` \| `parts\.(\w+)` \| ([^|]+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert {name for name, *_ in rows} == set(axes()) - {"scaling"}
    for name, settings, module, defines in rows:
        assert getattr(parts, settings) is axes()[name]
        if found := re.fullmatch(r"`(\w+)\.(\w+)`", module.strip()):
            if found[1] == "nn":
                continue
            base = getattr(import_module(f"triptych.model.{found[1]}"), found[2])
            like = getattr(import_module(f"triptych.model.{found[1]}"), "GroupedHeads", base)
            for method in re.findall(r"`(\w+)`", defines):
                assert (
                    method == "GroupedHeads"
                    or hasattr(base, method)
                    or hasattr(like, method)
                    or (method == "scale")
                ), (name, method)


@pytest.mark.parametrize(
    ("old", "new", "laws"),
    [
        (
            "(key.position[:, None, :] - query.position[:, :, None]).abs()",
            "(torch.arange(key.length) - torch.arange(query.length)[:, None])[None].abs()",
            {4},
        ),
        ("return Cost(parameters=model.heads.count)", "return Cost()", {17}),
    ],
)
def test_the_laws_that_the_page_says_would_be_broken(old: str, new: str, laws: set[int]) -> None:
    """In a process of its own: the example registers a part."""
    code = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
    assert code.count(old) == 1
    code = code[: code.index("small = {")].replace(old, new) + (
        "small = {'form': 'decoder', 'vocab': 50, 'dim': 16, 'heads': 2, 'layers': 2}\n"
        "small['position'] = 'power_law'\n"
        f"found = verify(triptych.ModelConfig.parse(small), only={sorted(laws)})\n"
        "print([v.number for v in found if v.status == 'broken'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT / "src"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(sorted(laws))
