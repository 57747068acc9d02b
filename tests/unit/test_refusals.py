"""The table of what cannot be combined: every rule refuses its example, says why, and what would work."""

from __future__ import annotations

import shlex
from functools import reduce
from operator import getitem
from typing import Any

import pytest
import torch

from triptych.cli.main import main
from triptych.config import ModelConfig, choices, parts
from triptych.config.rules import RULES, Rule
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import build

SCALED = {"kind": "dynamic", "factor": 2.0, "original": 64, "length": 128}
WINDOW = {"kind": "window", "width": 3}
PATCHES = {"kind": "patches", "size": 2, "height": 4, "width": 6}
IMAGES = {"form": "encoder", "embedding": PATCHES, "output": "classes"}
# For each rule a configuration that breaks it, one that comes as near as may be and does not, and the key.
Settings = dict[str, Any]
LATENT = {"kind": "mla", "count": 2}
EXAMPLES: dict[str, tuple[Settings, Settings, str]] = {
    "_whole_heads": ({"heads": 3}, {"heads": {"count": 3, "dim": 4}}, "model.heads.count"),
    "_pairs_turn": (
        {"position": "rope", "heads": {"count": 2, "dim": 7}},
        {"position": "rope", "heads": {"count": 2, "dim": 6}},
        "model.position.kind",
    ),
    "_keys_as_wide_as_heads": (
        {"form": "decoder", "mixer": ["attention", "retention"], "position": "rope", "heads": LATENT},
        {"form": "decoder", "mixer": ["attention", "retention"], "position": "none", "heads": LATENT},
        "model.heads.kind",
    ),
    "_fast_and_slow": (
        {"position": {"kind": "rope", "scaling": SCALED}, "heads": {"count": 2, "dim": 2}},
        {"position": {"kind": "rope", "scaling": SCALED}, "heads": {"count": 2, "dim": 4}},
        "model.position.scaling.kind",
    ),
    "_turns_show_in_products": (
        {"position": "rope", "attention": {"score": "additive"}},
        {"position": "rope", "attention": {"score": "cosine"}},
        "model.attention.score",
    ),
    "_relations_are_dotted": (
        {"position": "shaw", "attention": {"score": "cosine"}},
        {"position": "shaw", "attention": {"score": "dot"}},
        "model.attention.score",
    ),
    "_deep_copies": (
        {"norm": {"placement": "deep"}},
        {"norm": {"placement": "deep"}, "scale_embedding": False},
        "model.scale_embedding",
    ),
    "_sine_and_cosine": ({"dim": 15, "heads": 3}, {"dim": 18, "heads": 3}, "model.dim"),
    "_mixers_in_their_stacks": (
        {"mixer": "linformer"},
        {"encoder_mixer": "linformer"},
        "model.mixer",
    ),
    "_attention_somewhere": (
        {"mixer": "bahdanau", "attention": {"softcap": 3.0}},
        {"encoder_mixer": "bahdanau", "attention": {"softcap": 3.0}},
        "model.attention.softcap",
    ),
    "_sights_are_seen": (
        {"form": "decoder", "mixer": ["lstm", "attention"], "attention": {"visible": [WINDOW, "everything"]}},
        {"form": "decoder", "mixer": ["lstm", "attention"], "attention": {"visible": ["everything", WINDOW]}},
        "model.attention.visible",
    ),
    "_keys_that_turn": (
        {"heads": {"kind": "mla", "count": 2, "rotary": 2}},
        {"heads": {"kind": "mla", "count": 2, "rotary": 2}, "position": "rope"},
        "model.heads.rotary",
    ),
    "_encoders_read_nothing": (
        {"encoder_mixer": {"kind": "luong", "score": "dot"}},
        {"mixer": {"kind": "luong", "score": "dot"}},
        "model.encoder_mixer.score",
    ),
    "_positions_need_attention": (
        {"mixer": "lstm", "position": "rope"},
        {"mixer": ["lstm", "attention"], "position": "rope"},
        "model.position.kind",
    ),
    "_latent_rotary": (
        {"heads": {"kind": "mla", "count": 2, "rotary": 3}, "position": "rope"},
        {"heads": {"kind": "mla", "count": 2, "rotary": 2}, "position": "rope"},
        "model.heads.rotary",
    ),
    "_latents_are_normalised": (
        {"heads": {"kind": "mla", "count": 2, "qk_norm": True}},
        {"heads": {"count": 2, "qk_norm": True}},
        "model.heads.qk_norm",
    ),
    "_layers_of_the_form": (
        {"form": "decoder", "encoder_layers": 2},
        {"form": "decoder", "decoder_layers": 2},
        "model.encoder_layers",
    ),
    "_prefixes_in_decoders": (
        {"attention": {"visible": {"kind": "prefix", "length": 3}}},
        {"form": "decoder", "attention": {"visible": {"kind": "prefix", "length": 3}}},
        "model.attention.visible.kind",
    ),
    "_targets_are_words": (
        {"output": {"kind": "classes", "count": 3}},
        {"form": "encoder", "output": {"kind": "classes", "count": 3}},
        "model.output.kind",
    ),
    "_first_tokens_know_nothing": (
        {"form": "decoder", "output": {"kind": "classes", "count": 3, "pool": "first"}},
        {"form": "encoder", "output": {"kind": "classes", "count": 3, "pool": "first"}},
        "model.output.pool",
    ),
    "_scaled_once": (
        {"output": {"scale": True}},
        {"output": {"scale": True}, "scale_embedding": False},
        "model.output.scale",
    ),
    "_types_of_one_text": ({"types": 2}, {"form": "encoder", "types": 2}, "model.types"),
    "_enough_experts": (
        {"experts": {"count": 2, "top_k": 3}},
        {"experts": {"count": 3, "top_k": 3}},
        "model.experts.top_k",
    ),
    "_gates_that_say_something": (
        {"experts": {"count": 4, "top_k": 1}},
        {"experts": {"count": 4, "top_k": 1, "router": "softmax"}},
        "model.experts.top_k",
    ),
    "_experts_somewhere": (
        {"experts": {"every": 3}, "layers": 2},
        {"experts": {"every": 2}, "layers": 2},
        "model.experts.every",
    ),
    "_bahdanau_reads": ({"form": "decoder", "mixer": "bahdanau"}, {"mixer": "bahdanau"}, "model.mixer.kind"),
    "_luong_reads": ({"form": "encoder", "mixer": "luong"}, {"mixer": "luong"}, "model.mixer.kind"),
    "_dot_of_equal_widths": (
        {"mixer": {"kind": "luong", "score": "dot", "hidden": 8}},
        {"mixer": {"kind": "luong", "score": "dot", "hidden": 16}},
        "model.mixer.score",
    ),
    "_two_texts_to_read": (
        {"form": "encoder", "mixer": "coattention"},
        {"form": "encoder", "mixer": "coattention", "types": 2},
        "model.mixer.kind",
    ),
    "_images_of_one_stack": (
        {"embedding": PATCHES},
        {"form": "encoder", "embedding": PATCHES, "output": "classes"},
        "model.embedding.kind",
    ),
    "_patches_are_no_words": (
        {"form": "encoder", "embedding": PATCHES},
        {"form": "encoder", "embedding": PATCHES, "output": "tags"},
        "model.output.kind",
    ),
    "_grids_of_patches": (
        {**IMAGES, "mixer": {"kind": "spatial", "width": 5}},
        {**IMAGES, "mixer": {"kind": "spatial", "width": 3}},
        "model.mixer.width",
    ),
    "_both_directions_are_read": (
        {"form": "encoder", "mixer": "lstm", "output": {"kind": "classes", "count": 2, "pool": "last"}},
        {"form": "encoder", "mixer": "lstm", "output": {"kind": "classes", "count": 2}},
        "model.output.pool",
    ),
    "_patches_of_one_type": ({**IMAGES, "types": 2}, IMAGES, "model.types"),
    "_a_position_for_each_patch": (
        {**IMAGES, "position": {"kind": "learned", "max": 5}},
        {**IMAGES, "position": {"kind": "learned", "max": 6}},
        "model.position.max",
    ),
    "_norms_of_heads": (
        {"form": "decoder", "mixer": "retention", "heads": 16},
        {"form": "decoder", "mixer": "retention", "heads": 8},
        "model.heads.count",
    ),
}
BASE: Settings = {"vocab": 30, "dim": 16, "heads": 2, "position": "sinusoidal"}


def name(rule: Rule) -> str:
    return rule.check.__name__


def model(settings: Settings) -> ModelConfig:
    mixers = [settings.get(key, "attention") for key in ("mixer", "encoder_mixer", "decoder_mixer")]
    positions = {"position": "none"} if mixers != ["attention"] * 3 else {}
    return ModelConfig.parse({**BASE, **positions, **settings})


def test_every_rule_has_its_example() -> None:
    assert {name(rule) for rule in RULES} == set(EXAMPLES)


@pytest.mark.parametrize("rule", sorted({name(rule) for rule in RULES}))
def test_rules_refuse_with_reason_and_mend(rule: str) -> None:
    wrong, right, where = EXAMPLES[rule]
    with pytest.raises(UserError) as refused:
        model(wrong)
    assert refused.value.where == where
    assert refused.value.what and refused.value.mend
    model(right)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_rules_are_named_for_a_list(rule: Rule) -> None:
    if isinstance(rule.of, str):
        reduce(getitem, rule.of.split("."), ModelConfig(experts=parts.Experts()).dump())
    else:
        assert rule.of.__doc__
    assert rule.other and not rule.other.endswith(".")
    assert rule.because in ("mathematics", "pointless", "harmful", "unbuilt")


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"form": "decoder", "mixer": "bahdanau", "position": "rope"}, "model.mixer.kind"),
        ({"form": "decoder", "mixer": "luong", "attention": {"softcap": 3.0}}, "model.mixer.kind"),
        ({"form": "encoder", "encoder_mixer": "luong", "heads": 3}, "model.encoder_mixer.kind"),
        ({"form": "decoder", "mixer": "linformer", "attention": {"visible": WINDOW}}, "model.mixer"),
        ({"form": "encoder", "mixer": "retention", "heads": 16}, "model.mixer"),
        ({"form": "decoder", "encoder_mixer": "bahdanau", "experts": {"top_k": 1}}, "model.encoder_mixer"),
        ({"mixer": "lstm", "position": "rope", "attention": {"visible": WINDOW}}, "model.position.kind"),
        ({"mixer": "bahdanau", "heads": {"kind": "mla", "count": 2, "qk_norm": True}}, "model.heads.kind"),
        ({"dim": 15}, "model.dim"),
    ],
)
def test_of_several_reasons_the_first_is_told(settings: Settings, where: str) -> None:
    """What the form is not made for, before what would change nothing, before numbers."""
    with pytest.raises(UserError) as refused:
        model(settings)
    assert refused.value.where == where


OF_ATTENTION: list[Settings] = [
    {"attention": {"visible": WINDOW}},
    *({"attention": {"score": kind}} for kind in choices(parts.Score)),
    *({"attention": own} for own in ({"softcap": 0.5}, {"sinks": True}, {"dropout": 0.3})),
    *({"heads": {"count": 2} | own} for own in ({"kv": 1}, {"qk_norm": True}, {"dim": 6})),
    *({"heads": {"kind": "mla", "count": 2} | own} for own in ({}, {"rotary": 2}, {"query": 5})),
]


def computed(config: ModelConfig) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Parameters with their shapes, and logits in evaluation and in training."""
    made, ids = build(config, seed=0), torch.arange(4, 18).view(2, 7)
    given: tuple[Any, ...] = (ids, Layout.padded([7, 5]))
    given = given * 2 if config.form == "encoder_decoder" else (*given, ids % 2)
    out = []
    for training in (False, True):
        torch.manual_seed(1)
        out.append(made.train(training)(*given).detach())
    return {name: value.shape for name, value in made.state_dict().items()}, out


@pytest.mark.parametrize("kind", choices(parts.Mixer))
def test_no_setting_of_attention_is_idle(kind: str) -> None:
    """What is accepted makes a difference, in every form and stack."""
    needed = {key: 3 for key, f in choices(parts.Mixer)[kind].model_fields.items() if f.is_required()}
    mixer, accepted = {"kind": kind, **needed}, 0
    forms: list[Settings] = [
        {"form": form, "mixer": mixer} for form in ("encoder_decoder", "decoder", "encoder")
    ]
    forms.append({"form": "encoder", "mixer": mixer, "types": 2})
    for place in [*forms, {"encoder_mixer": mixer}, {"decoder_mixer": mixer}]:
        base = BASE | {"layers": 1, "position": "none", "tie": "none"} | place
        try:
            shapes, logits = computed(ModelConfig.parse(base))
        except UserError:
            continue
        for changed in OF_ATTENTION:
            try:
                config = ModelConfig.parse(base | changed)
            except UserError:
                continue
            if config == ModelConfig.parse(base):
                continue
            own, found = computed(config)
            accepted += 1
            assert own != shapes or not all(map(torch.equal, logits, found)), (place, changed)
    assert accepted or kind in ("bahdanau", "luong")


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("model.heads.count=7", ["model.heads.count: dim 512", "7 heads", "choose 2, 4, 8 heads"]),
        ("model.dim=24 model.position=rope", ["model.position.kind: rope", "a head of 3 is odd", "4, 6, 12"]),
        ("model.position=rope model.heads.dim=7", ["a head of 7 is odd", "even, such as 8"]),
        ("model.attention.visible={kind:\\ window,width:\\ 0}", ["visible.width: 0", "give an integer > 0"]),
        ("model.heads.kv=16", ["model.heads.kv: 16 key/value heads", "choose one of 1, 2, 4, 8"]),
        ("model.experts.count=4 model.experts.top_k=5", ["model.experts.top_k", "5 of 4", "use 4 or fewer"]),
        ("model.experts=4", ["model.experts: 4", "count, top_k"]),
        ("model.position=rop", ["model.position.kind: unknown kind 'rop'", "did you mean rope?"]),
        ("model.dmi=3", ["model.dmi: unknown key 'dmi'", "did you mean 'dim'"]),
        ("modle.dim=3", ["modle: unknown section", "did you mean model.dim?"]),
        ("model.form=decoder model.mixer=luong", ["model.mixer.kind: luong reads a source", "use lstm"]),
        (
            "model.form=decoder model.mixer=linformer",
            ["model.mixer: linformer", "use form encoder, or one of"],
        ),
        ("model.mixer=linformer", ["model.mixer: linformer", "model.encoder_mixer=linformer"]),
        (
            "model.position=alibi model.attention.score=additive model.mixer=gru",
            ["alibi", "use position none"],
        ),
        (
            "model.mixer=luong model.attention.softcap=9",
            ["model.attention.softcap: 9", "luong", "leave it out"],
        ),
    ],
)
def test_commands_refuse_in_one_message(
    command: str, settings: str, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Section, value, reason and mend; exit code 2, and nothing else is printed."""
    assert main([command, "transformer-base", *shlex.split(settings)]) == 2
    out, error = capsys.readouterr()
    assert not out and error.startswith("error: ") and error.count("error: ") == 1
    assert error.count("\n") == 2 and "\n  → " in error
    assert all(words in error for words in said), error
