"""``triptych demo``: a translator of CLDR phrases in two minutes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.common import check_languages, free_folder, say, train_whole


def demo(
    source: Annotated[str, typer.Option("--from", help="Source locale, e.g. en, de, pt_BR.")] = "en",
    target: Annotated[str, typer.Option("--to", help="Target locale, e.g. zh, de, ar.")] = "zh",
    minutes: Annotated[float, typer.Option(help="Time for everything, in minutes.")] = 2.0,
    out: Annotated[Path | None, typer.Option(help="Run folder to write.")] = None,
) -> None:
    """Build a parallel corpus of phrases from CLDR and train a small translator on it.

    Dates, times, numbers with units, currencies, lists and names in any two locales; combinations that were
    never trained on are held out for the test.
    """
    started = time.monotonic()
    check_languages(source, target)
    from triptych.config import load_config
    from triptych.errors import UserError

    if minutes <= 0.1:
        raise UserError(f"{minutes} minutes are too few", "--minutes", "give 0.2 or more")
    from triptych.training.demo import CONFIG
    from triptych.training.prepare import check_free
    from triptych.training.tasks import task

    config = load_config(
        {**CONFIG, "text": {**CONFIG["text"], "source": source, "target": target}},
        [f"training.budget={minutes * 60:.0f}s"],
    )
    named = Path("runs") / f"demo-{source}-{target}"
    check_free(out or free_folder(named))
    say(f"phrases: {source} → {target}, from CLDR")
    corpus = task(config).load(config, say)
    folder = out or free_folder(named)  # another run may have taken the one that was free
    train_whole(config, corpus, folder, started, f"Demo: {source} → {target}, phrases from CLDR")
