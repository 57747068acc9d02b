"""Typed, frozen, nested settings; presets; errors that name the nearest key."""

from triptych.config.load import differences, load_config, merge, override, preset, read_yaml, to_yaml
from triptych.config.model import ModelConfig
from triptych.config.objectives import Objective, TranslationObjective
from triptych.config.presets import PRESETS
from triptych.config.run import (
    CleaningConfig,
    DataConfig,
    DecodingConfig,
    OptimizerConfig,
    RunConfig,
    ScheduleConfig,
    TextConfig,
    TokenizerConfig,
    TrainingConfig,
    VectorsConfig,
    duration,
)
from triptych.config.settings import Part, Settings, choices

__all__ = [
    "PRESETS",
    "CleaningConfig",
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "Objective",
    "OptimizerConfig",
    "Part",
    "RunConfig",
    "ScheduleConfig",
    "Settings",
    "TextConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TranslationObjective",
    "VectorsConfig",
    "choices",
    "differences",
    "duration",
    "load_config",
    "merge",
    "override",
    "preset",
    "read_yaml",
    "to_yaml",
]
