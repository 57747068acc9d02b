"""The pictures of the documentation, from a finished run: ``python docs/make_pictures.py RUN``.

demo-heatmap.svg   cross-attention over one test phrase that the model translates right
demo-report.png    the top of the run's report, when ``--browser`` names a Chromium
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from triptych.engine import Bundle, load
from triptych.insight import Heatmap, heatmap_svg
from triptych.text import read_aligned, write_text_atomic

TOKENS = 11  # of both sides: enough to show a pattern, few enough to read
LOOK = 300  # test phrases tried


def phrase(bundle: Bundle, folder: Path) -> tuple[list[int], list[int]]:
    """Ids of a test phrase and its translation: of those that equal their reference, the first whose sides
    are nearest to ``TOKENS`` tokens; of all, if none does."""
    pairs = read_aligned(folder / "data" / "test.source", folder / "data" / "test.target")
    source, target = pairs.source[:LOOK], pairs.target[:LOOK]
    said = bundle.translate(source)
    right = [i for i in range(len(source)) if said[i] == target[i]] or range(len(source))
    encoded = [(bundle.tokenizer.encode(source[i]), bundle.tokenizer.encode(said[i])) for i in right]
    return min(encoded, key=lambda ids: sum(abs(len(side) - TOKENS) for side in ids))


def heatmap(bundle: Bundle, folder: Path) -> str:
    """The picture as SVG text."""
    source, target = phrase(bundle, folder)
    weights = bundle.translator.attention(source, target)
    pieces = bundle.tokenizer.pieces
    drawn = Heatmap(
        [*pieces(source), "</s>"],
        [*pieces(target), "</s>"],
        weights.tolist(),
        f"{bundle.tokenizer.decode(source)} → {bundle.tokenizer.decode(target)}",
    )
    text = bundle.config.text
    return heatmap_svg(drawn, source_language=text.source, target_language=text.target, standalone=True)


def screenshot(browser: str, page: Path, picture: Path) -> None:
    """The first screen of a page, as PNG."""
    command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1250"]
    command += [f"--screenshot={picture.resolve()}", page.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path, help="run folder with a test set and a report")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "images", help="folder to write to"
    )
    parser.add_argument("--browser", help="a Chromium for the screenshot of the report")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    write_text_atomic(args.out / "demo-heatmap.svg", heatmap(load(args.run), args.run) + "\n")
    if args.browser:
        screenshot(args.browser, args.run / "report.html", args.out / "demo-report.png")


if __name__ == "__main__":
    main()
