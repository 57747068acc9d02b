"""Character classes that the readers, the audit and the splitter share.

Everything here is a plain table or a compiled pattern; nothing changes text by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

__all__ = [
    "JOINERS",
    "SIMPLIFIED",
    "TRADITIONAL",
    "ZERO_WIDTH",
    "is_blank",
    "main_scripts",
    "script_pattern",
]

# Zero-width space, directional marks, word joiner and invisible operators, byte order mark inside a text,
# soft hyphen. U+200C and U+200D are apart (JOINERS): they are spelling in Sinhala, Persian, Kannada,
# Malayalam, …
ZERO_WIDTH = "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
JOINERS = "\u200c\u200d"

_VISIBLE = re.compile(rf"[^\s{ZERO_WIDTH}{JOINERS}]")


def is_blank(text: str) -> bool:
    """True when nothing of ``text`` can be seen: no characters, or white space and invisible ones only."""
    return _VISIBLE.search(text) is None


# Frequent characters that exist in one of the two Chinese writing systems only, in the same order. A
# heuristic: a text without any of them says nothing. Pairs whose simplified form is also an ordinary
# traditional character (后後, 里裡, 几幾, 么麼, 没沒, 只隻, …) are left out.
_SIMPLIFIED = (
    "们这个来说时国会为对过还学开长门问间见现电话车东书买卖让请谁认识语读写钱点样机岁从错听爱"
    "觉经张给吗无发头动当应实亲业进远运边两难带丽风飞马鱼鸟饭馆员贵费农医坏欢该关儿园图场报声"
    "乐题颜备结处变体总网线条万与产义习钟红绿黄药师伤历传优亿华灯军连达选迟阳队际离虽双杂静顺"
    "预领页类转轻较输办护诉试谈论课调谢证译议财责货赛赶践乡邻郑释针银钢录镜闭阔陈险陆随"
)
_TRADITIONAL = (
    "們這個來說時國會為對過還學開長門問間見現電話車東書買賣讓請誰認識語讀寫錢點樣機歲從錯聽愛"
    "覺經張給嗎無發頭動當應實親業進遠運邊兩難帶麗風飛馬魚鳥飯館員貴費農醫壞歡該關兒園圖場報聲"
    "樂題顏備結處變體總網線條萬與產義習鐘紅綠黃藥師傷歷傳優億華燈軍連達選遲陽隊際離雖雙雜靜順"
    "預領頁類轉輕較輸辦護訴試談論課調謝證譯議財責貨賽趕踐鄉鄰鄭釋針銀鋼錄鏡閉闊陳險陸隨"
)
SIMPLIFIED = re.compile(f"[{_SIMPLIFIED}]")
TRADITIONAL = re.compile(f"[{_TRADITIONAL}爲産]")

# Main letter blocks a script (Unicode Standard, Blocks.txt). Enough to see that a side is in the wrong
# script.
SCRIPTS: dict[str, str] = {
    "Latin": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff"
    "\ua720-\ua7ff\uff21-\uff3a\uff41-\uff5a",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Cyrillic": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "Armenian": "\u0531-\u058f",
    "Hebrew": "\u05d0-\u05f2\ufb1d-\ufb4f",
    "Arabic": "\u0620-\u065f\u066e-\u06ef\u06fa-\u06ff\u0750-\u077f\u0870-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
    "Syriac": "\u0700-\u074f",
    "Thaana": "\u0780-\u07bf",
    "N'Ko": "\u07c0-\u07ff",
    "Devanagari": "\u0900-\u0963\u0970-\u097f\ua8e0-\ua8ff",
    "Bengali": "\u0980-\u09ff",
    "Gurmukhi": "\u0a00-\u0a7f",
    "Gujarati": "\u0a80-\u0aff",
    "Odia": "\u0b00-\u0b7f",
    "Tamil": "\u0b80-\u0bff",
    "Telugu": "\u0c00-\u0c7f",
    "Kannada": "\u0c80-\u0cff",
    "Malayalam": "\u0d00-\u0d7f",
    "Sinhala": "\u0d80-\u0dff",
    "Thai": "\u0e00-\u0e7f",
    "Lao": "\u0e80-\u0eff",
    "Tibetan": "\u0f00-\u0fff",
    "Myanmar": "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f",
    "Georgian": "\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f",
    "Hangul": "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff",
    "Ethiopic": "\u1200-\u139f\u2d80-\u2ddf\uab00-\uab2f",
    "Cherokee": "\u13a0-\u13ff\uab70-\uabbf",
    "Canadian Aboriginal": "\u1400-\u167f\u18b0-\u18ff",
    "Khmer": "\u1780-\u17ff\u19e0-\u19ff",
    "Mongolian": "\u1800-\u18af",
    "Ol Chiki": "\u1c50-\u1c7f",
    "Tifinagh": "\u2d30-\u2d7f",
    "Kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Han": "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
    "Yi": "\ua000-\ua4cf",
    "Vai": "\ua500-\ua63f",
    "Meetei Mayek": "\uaae0-\uaaff\uabc0-\uabff",
    "Adlam": "\U0001e900-\U0001e95f",
}
_BY_SCRIPT = {name: re.compile(f"[{ranges}]") for name, ranges in SCRIPTS.items()}


def main_scripts(texts: Iterable[str], share: float = 0.1) -> list[str]:
    """The scripts that hold at least ``share`` of the letters of ``texts``, most frequent first.

    Several can be right at once: Japanese is Han and Kana, Serbian is Cyrillic and Latin.
    """
    letters = Counter(letter for text in texts for letter in text)
    count: Counter[str] = Counter()
    for letter, times in letters.items():
        for name, pattern in _BY_SCRIPT.items():
            if pattern.match(letter):
                count[name] += times
                break
    total = count.total()
    return [name for name, times in count.most_common() if times >= share * total]


def script_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds one letter of any of the named scripts."""
    return re.compile("[" + "".join(SCRIPTS[name] for name in names) + "]")
