"""The built-in phrase corpus: short parallel phrases for any two locales that CLDR knows.

A first run needs no download: Babel carries the Unicode CLDR data, and with it dates, times, numbers, units,
currencies, lists and names in some hundred languages. The phrases are regular enough that a small model learns
them in minutes, and the test pairs are combinations it has never seen.
"""

from triptych.text.cldr.corpus import PhraseCorpus, build

__all__ = ["PhraseCorpus", "build"]
