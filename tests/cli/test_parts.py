"""``triptych parts``: everything there is to choose from is listed, and nothing is said twice."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from cli.conftest import Cli
from cli.test_bad_input import refused
from triptych import model as _registers_all_parts  # noqa: F401
from triptych.config import ModelConfig, Part, choices, parts
from triptych.config.rules import MEANING, RULES
from triptych.config.settings import Settings, type_name
from triptych.errors import UserError
from triptych.insight.catalogue import axes, catalogue
from triptych.insight.catalogue.costs import DIM, TOKENS, VOCAB
from triptych.insight.catalogue.entries import said
from triptych.insight.catalogue.text import text, to_dict
from triptych.model.registry import carried_out

ROOT = Path(__file__).parents[2]
ALL = [(name, kind) for name, axis in axes().items() for kind in choices(axis)]


def shown(axis: str, kind: str) -> Any:
    """The entry of a choice."""
    (found,) = [a for a in catalogue(f"{axis}.{kind}").axes if a.name == axis]
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


def test_every_refusal_is_listed() -> None:
    """Beside the axis, the choices or the key that it is of, and nowhere else."""
    found = catalogue()
    listed: list[tuple[str, Any]] = [(one.section, one) for one in (*found.axes, *found.sections)]
    listed += [(f"{a.section}.{c.kind}", c) for a in found.axes for c in a.choices]
    listed += [(f"{s.section}.{key.name}", key) for s in found.sections for key in s.keys]
    want = set()
    for rule in RULES:
        if isinstance(rule.of, str):
            places = [f"model.{rule.of}"]
        elif rule.of in axes().values():
            places = [rule.of.section]
        else:
            kinds = [(a.section, k, c) for a in axes().values() for k, c in choices(a).items()]
            places = [f"{section}.{kind}" for section, kind, c in kinds if issubclass(c, rule.of)]
        assert places
        want |= {(place, rule.other, f"{rule.because}: {MEANING[rule.because]}") for place in places}
    assert {(place, no.other, no.because) for place, one in listed for no in one.refuses} == want


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
        without = [] if cls.attends else [p for p in acting if not (cls.turns and p == "rope")]
        assert shown("mixer", kind).never.get("position", []) == without, kind
    refusing = [kind for kind, cls in choices(parts.Mixer).items() if not (cls.attends or cls.turns)]
    assert shown("position", "rope").never == {"mixer": refusing, "score": ["additive"]}
    assert shown("score", "cosine").never == {"position": ["shaw", "xl"]}
    assert shown("norm", "rmsnorm").never == {}
    assert catalogue().axes[0].choices[0].never is None, (
        "found out for those alone that are asked for by name"
    )
    said = " ".join(text(catalogue("lstm"), 100, full=True).split())
    assert f"position {', '.join(acting)} in all layers of a stack" in said
    assert "in form encoder_decoder (encoder and decoder), decoder, encoder not with an output of the" in said
    assert "mixer lstm, gru" in " ".join(text(catalogue("rope"), 100, full=True).split())


def test_every_setting_is_explained() -> None:
    for axis in catalogue().axes:
        for one in axis.choices:
            assert [s.name for s in one.settings if not s.description] == [], f"{axis.name} {one.kind}"


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
    assert [a.name for a in catalogue("position").axes] == ["position"]
    assert [c.kind for a in catalogue("model.attention.score").axes for c in a.choices] == list(
        choices(parts.Score)
    )
    assert [[c.kind for c in a.choices] for a in catalogue("rope").axes] == [["rope"]]
    several = {a.name for a in catalogue("none").axes}
    assert "position" in several and len(several) > 1
    assert [a.name for a in catalogue("position.none").axes] == ["position"]
    with pytest.raises(UserError, match="did you mean rope"):
        catalogue("ropee")


def test_a_name_finds_the_end_of_a_place() -> None:
    def keys(name: str) -> set[str]:
        return {f"{s.section}.{key.name}" for s in catalogue(name).sections for key in s.keys}

    of_all = {"model.dim", "model.heads.dim", "model.ffn.dim", "model.experts.dim", "model.embedding.dim"}
    assert keys("dim") == of_all
    assert keys("experts.dim") == keys("model.experts.dim") == {"model.experts.dim"}
    assert keys("model.dim") == {"model.dim"}
    assert keys("grouped.kv") == keys("heads.kv") == keys("kv") == {"model.heads.kv"}
    assert [key.of for s in catalogue("placement").sections for key in s.keys] == [[*choices(parts.Norm)]]
    # Defaults that are not the same.
    assert [key.of for s in catalogue("eps").sections for key in s.keys] == [["layernorm"], ["rmsnorm"]]
    assert not catalogue("rope").sections and not catalogue("tie").axes
    for nothing in ("odel.tie", "experts.tie", "_k", "."):
        with pytest.raises(UserError, match="there is no part"):
            catalogue(nothing)


def values(annotation: Any) -> set[type[Settings]]:
    """The classes of settings in an annotation."""
    found = set().union(*map(values, get_args(annotation)))
    one = annotation if isinstance(annotation, type) else object
    return found | {one} if issubclass(one, Settings) else found


def fields(cls: type[Settings] = ModelConfig, section: str = "model") -> dict[tuple[str, str], bool]:
    """Section and name of every key under the model, found without the catalogue; and whether it is a plain
    one: no choice's, and no section or axis itself. A key on an axis that is elsewhere is plain."""
    out: dict[tuple[str, str], bool] = {}
    for name, field in cls.model_fields.items():
        within = [one for one in values(field.annotation) if one.section == f"{section}.{name}"]
        if name != "kind":
            out[section, name] = not within and not issubclass(cls, Part)
        for one in within:
            for sub in choices(one).values() if issubclass(one, Part) else [one]:
                out |= fields(sub, one.section)
    return out


def test_every_plain_setting_is_listed_once() -> None:
    """With its words, its paper and what changing it costs."""
    found = catalogue().sections
    assert sorted((s.section, key.name) for s in found for key in s.keys) == sorted(
        place for place, is_plain in fields().items() if is_plain
    )
    said, data = text(catalogue(), 1000, full=False), to_dict(catalogue())["sections"]
    for section, shown in zip(found, data, strict=True):
        cls = {"model": ModelConfig}.get(section.name) or values(
            ModelConfig.model_fields[section.name].annotation
        )
        (cls,) = [cls] if isinstance(cls, type) else cls
        assert section.line and section.paper and f"\n{section.name} ({section.section}): " in said
        assert [key["name"] for key in shown["keys"]] == [key.name for key in section.keys]
        for key in section.keys:
            described = str(cls.model_fields[key.name].description)
            assert key.description and key.description[:10] in described, key
            assert key.paper and all(one in described for one in key.paper.split("; ")), key
            assert f"\n  {key.name}: {key.description}\n    {key.paper}\n    {key.type}, default " in said
            assert bool(key.costs) != key.name.endswith("_mixer"), key


@pytest.mark.parametrize("place", fields(), ids=".".join)
def test_every_key_is_found(place: tuple[str, str]) -> None:
    """By its name and by its place, as a key or as the axis or section that it is."""
    section, name = place
    for asked in (name, f"{section}.{name}"):
        found = catalogue(asked)
        keys = [(one.section, key.name) for one in found.sections for key in one.keys]
        wholes = [one.section for one in (*found.axes, *found.sections)]
        assert place in keys or f"{section}.{name}" in wholes, asked
        assert f'"name": "{name}"' in json.dumps(to_dict(found))
        assert re.search(rf"^ *{name}(:| \()", text(found, 100, full=True), re.MULTILINE)


NAMES = {
    "sinks": "OpenAI 2025, gpt-oss, section 2.2",
    "softcap": "Gemma Team 2024, section 2",
    "experts": "Shazeer et al. 2017",
    "model.experts": "Dai et al. 2024, section 3.2",
    "tie": "Press and Wolf 2017; Inan et al. 2017",
    "top_k": "Shazeer et al. 2017, section 2.1",
    "experts.top_k": "Shazeer et al. 2017, section 2.1",
    "capacity": "Fedus et al. 2021, section 2.2",
    "kv": "Ainslie et al. 2023; Shazeer 2019",
    "norm.placement": "Xiong et al. 2020; Ding et al. 2021, section 4.2",
}


@pytest.mark.parametrize(("name", "paper"), NAMES.items())
def test_a_setting_and_its_paper(name: str, paper: str, here: Cli) -> None:
    done = here("parts", name)
    assert done.returncode == 0, done.stderr
    assert paper in " ".join(done.stdout.split()) and "default " in done.stdout
    data = json.loads(here("parts", name, "--json").stdout)
    assert any(paper in one["paper"] for s in data["sections"] for one in (s, *s["keys"]))


def test_costs_of_settings() -> None:
    """By hand: d = 512, 8 heads, feed-forward width 2,048, n tokens, v words."""
    d, n, v, inner = DIM, TOKENS, VOCAB, 4 * DIM
    one = 2 * d * inner + inner + d  # parameters of a feed-forward network
    want = {
        "tie=none beside all in form encoder_decoder": (2 * v * d, 0),
        "tie=source beside all in form encoder_decoder": (v * d, 0),
        "tie=decoder beside all in form encoder_decoder": (v * d, 0),
        "types=2 beside 0 in form encoder": (2 * d, 0),
        "embedding_norm=true beside false in form encoder_decoder": (2 * 2 * d, 0),
        "sinks=true beside false in form decoder": (8, 0),
        "softcap=2 beside null in form decoder": (0, 0),
        "experts={} beside null in form decoder": (7 * one + 8 * d, 4 * n * d * inner + 2 * n * d * 8),
        "count=16 beside 8 in form decoder": (8 * one + 8 * d, 2 * n * d * 8),
        "top_k=4 beside 2 in form decoder": (0, 2 * 4 * n * d * inner),
        "every=2 beside 1 in form decoder with 2 layers": (
            -(7 * one + 8 * d),
            -(4 * n * d * inner + 2 * n * d * 8),
        ),
        "capacity=2 beside null in form decoder": (0, 0),
    }
    sections = catalogue().sections
    costs = [cost for s in sections for cost in (*s.costs, *(c for key in s.keys for c in key.costs))]
    assert {c.of: (c.parameters, c.flops) for c in costs if c.of in want} == want
    (kv,) = [cost for s in catalogue("kv").sections for key in s.keys for cost in key.costs]
    assert (kv.of, kv.parameters) == ("kv=2 beside null in form decoder", -2 * 6 * 64 * (d + 1))
    assert "every=2 beside 1 in form decoder with 2 layers: -14,702,080 parameters, -2,151.7 M FLOPs" in text(
        catalogue("every"), 100, full=True
    )


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
        assert said(Odd.__doc__) == ("An odd one, in words.", "Someone 1899; Other 2031, section 2")
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
    refused(here("parts", "topk"), "did you mean top_k")
    refused(here("parts", "sink"), "did you mean sinks")
    refused(here("parts", "soft_cap"), "did you mean softcap", "sections: model, attention, experts")
    refused(here("parts", "model.tied"), "did you mean tie")
    refused(here("parts", "qknorm"), "did you mean qk_norm")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; import triptych.cli.main; print([m for m in ('torch', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "src"
    )
    assert done.stdout.strip() == "[]"


def test_the_page_names_every_axis_and_section_once() -> None:
    page = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(model[\w.]*)`", page, re.MULTILINE)
    found = catalogue()
    assert sorted(rows) == sorted((one.name, one.section) for one in (*found.axes, *found.sections))


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
