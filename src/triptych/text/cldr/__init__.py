"""The built-in phrase corpus: short parallel phrases for any two locales that CLDR knows.

A first run needs no download: Babel carries the Unicode CLDR data, and with it dates, times, numbers, units,
currencies, lists and names in several hundred locales. The phrases are regular enough for a small model to
learn in minutes, and the test pairs are combinations that it has never seen.
"""

from triptych.text.cldr.corpus import PhraseCorpus, build

__all__ = ["PhraseCorpus", "build"]
