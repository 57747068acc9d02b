"""Images in folders of classes, read at one size and cut into patches (Dosovitskiy et al. 2021, section 3.1).

    photos/cat/1.jpg                    ┌─┬─┬─┐
    photos/cat/2.png   ─ scaled, 0…255 ─┤0│1│2│ ─ patches, row by row, -1…1 ─ (class token) ─ Batch
    photos/dog/1.jpg                    ├─┼─┼─┤
                                        │3│4│5│

B or N images, H rows and W columns of pixels, Z channels, T tokens, K values of a token.
"""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from triptych.config import merge
from triptych.config.parts import PatchEmbedding
from triptych.data.batches import IGNORE, Batch, Dataset
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.text.labelled import check_label, in_order
from triptych.text.records import shown

Pixels = NDArray[np.uint8]

SUFFIXES = frozenset([".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"])
LARGEST, TOKENS = 64, 30
"""Where nothing is said of it, images have at most so many pixels a side and about so many patches: of 100
shapes of 32 × 32 pixels 90 were told apart in 16 patches, and 55 in 64 (benchmarks/images.py)."""
MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Images:
    """Images of one size, and their labels.

    Attributes:
        pixels: ``[N, H, W, Z]``.
        labels, origin: of each its class and its file.
        digests: of each what tells it from others: SHA-256 of its pixels before it was scaled.
        settings: how they are read, complete: others can be read alike.
        notes: what a user should know of the reading.
    """

    pixels: Pixels
    labels: list[str]
    origin: list[str]
    digests: list[str]
    settings: PatchEmbedding
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> list[str]:
        """The different labels: numbers by value, others by name."""
        return in_order(self.labels)

    def place(self, index: int) -> str:
        """The file of one."""
        return self.origin[index]

    def select(self, indices: Sequence[int]) -> Images:
        """The images at ``indices``, in that order."""
        lists = ([some[i] for i in indices] for some in (self.labels, self.origin, self.digests))
        labels, origin, digests = lists
        return Images(self.pixels[np.asarray(indices, np.int64)], labels, origin, digests, self.settings)


def is_image(path: Path) -> bool:
    """Whether a file is an image by its name."""
    return path.suffix.lower() in SUFFIXES


def read_images(folders: Sequence[Path], settings: PatchEmbedding) -> Images:
    """The images of folders that hold a folder for each class.

    Args:
        settings: how to read them. What it leaves to the data is chosen: the size that most of them have, no
            more than ``LARGEST`` pixels a side, in about ``TOKENS`` patches.

    Raises:
        UserError: no such folder, no folders or images in it, images beside the folders of classes, and what
            ``read_image`` raises.
    """
    files, labels, others = [], [], 0
    for folder in folders:
        for path, label in _labelled(folder):
            others += not is_image(path)
            if is_image(path):
                files.append(path)
                labels.append(label)
    if not files:
        mend = f"images are known by their names: {', '.join(sorted(SUFFIXES))}"
        raise UserError("there are no images in its folders", str(folders[0]), mend)
    sizes = [_size(path) for path in files]
    settings = chosen(settings, Counter(sizes).most_common(1)[0][0])
    read = [_read(path, settings) for path in files]
    pixels, digests = np.stack([one for one, _ in read]), [digest for _, digest in read]
    scaled = sum(size != (settings.height, settings.width) for size in sizes)
    notes = [f"files that are no images, left out: {others:,}"] if others else []
    if scaled:
        sides = f"{settings.height} × {settings.width} pixels"
        notes.append(f"{scaled:,} of {len(files):,} images are of another size and scaled to {sides}")
    return Images(pixels, labels, [str(path) for path in files], digests, settings, tuple(notes))


def chosen(settings: PatchEmbedding, size: tuple[int, int]) -> PatchEmbedding:
    """The settings, with what they leave open chosen for images of this height and width."""
    share = min(1.0, LARGEST / max(size))
    asked = settings.height, settings.width
    sides = [given or max(1, round(pixels * share)) for given, pixels in zip(asked, size, strict=True)]
    patch = settings.size or _side(sides[0], sides[1], [side for side in asked if side])
    height, width = (patch * max(1, round(side / patch)) for side in sides)
    return PatchEmbedding.parse(merge(settings.dump(), {"size": patch, "height": height, "width": width}))


def _side(height: int, width: int, asked: Sequence[int]) -> int:
    """Of patches: what divides the sides that were asked for, or else both sides, and makes about as many
    patches as are wanted. Where nothing was asked for and nothing divides, what makes as many."""
    wanted, both = math.sqrt(height * width / TOKENS), math.gcd(*(asked or (height, width)))
    divisors = [side for side in range(1, both + 1) if both % side == 0]
    best = min(divisors, key=lambda side: abs(math.log(side / wanted)))
    near = abs(math.log(best / wanted)) < math.log(1.6)
    return best if asked or near else max(1, round(wanted))


def found(folder: Path) -> list[Path]:
    """The images of a folder and those within it, in the order of their names; hidden ones left out."""
    return [path for path in _walked(folder) if is_image(path)]


def _entries(folder: Path) -> list[Path]:
    """What a folder holds, in the order of names; hidden ones left out."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        what = f"this folder cannot be read: {error.strerror}"
        raise UserError(what, str(folder), "check that you may read it, or take it away") from None


def _walked(folder: Path, above: frozenset[str] = frozenset()) -> Iterator[Path]:
    """The files of a folder, then those of the folders within it. A link back to where it stands in is not
    followed."""
    real = os.path.realpath(folder)
    if real in above:
        return
    entries = _entries(folder)
    yield from (path for path in entries if not path.is_dir())
    for path in entries:
        if path.is_dir():
            yield from _walked(path, above | {real})


def _labelled(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files of each class, in the order of their names, with its name."""
    if not folder.is_dir():
        what = "this is no folder" if folder.exists() else "there is no such folder"
        raise UserError(what, str(folder), "name one that holds a folder of images for each class")
    for path in _entries(folder):
        if path.is_dir():
            check_label(path.name, shown(str(path), 200))
            yield from ((inside, path.name) for inside in _walked(path))
        elif is_image(path):
            mend = f"move it to {folder}/CLASS/"
            raise UserError("this image is in no folder of a class", str(path), mend)
        else:
            yield path, ""


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An image of which the header was read. What goes wrong within is said of the file: the library raises
    nearly anything where one is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large ones, and of odd headers that do no harm
            with Image.open(path) as image:
                yield image
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError("there is no such file", str(path), "check the name") from None
    except Exception as error:
        what = f"cannot be read as an image: {error or type(error).__name__}"
        raise UserError(what, str(path), "check the file, or take it away") from None


def _size(path: Path) -> tuple[int, int]:
    """Height and width of an image when it stands upright."""
    with _opened(path) as image:
        lies = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
        return (image.width, image.height) if lies else (image.height, image.width)


def read_image(path: Path, settings: PatchEmbedding) -> Pixels:
    """``[H, W, Z]`` of a file, upright, in colours or grey, scaled to the size of ``settings``. Of several
    frames the first is read, and what is transparent is as it is stored.

    Raises:
        UserError: no image, one that is damaged, pixels of more than 8 bits, or channels that no file has.
    """
    return _read(path, settings)[0]


def _read(path: Path, settings: PatchEmbedding) -> tuple[Pixels, str]:
    """``read_image``, and what tells the image from others, whatever it is scaled to."""
    mode = MODES.get(settings.channels)
    if mode is None:
        what = f"{settings.channels} channels, and image files are read with 3 or 1"
        raise UserError(what, "model.embedding.channels", "use 3 for colours, or 1 for grey")
    with _opened(path) as image:
        if image.mode[0] in "IF" or _deep(image):
            what = f"pixels of more than 8 bits a value (mode {image.mode})"
            raise UserError(what, str(path), "convert it: scaling them is for you to choose")
        upright = ImageOps.exif_transpose(image)
        digest = hashlib.sha256(f"{upright.size}".encode() + upright.convert("RGB").tobytes()).hexdigest()
        scaled = upright.convert(mode)
        if scaled.size != (settings.width, settings.height):
            scaled = scaled.resize((settings.width, settings.height), Image.Resampling.BILINEAR)
        size = settings.height, settings.width, settings.channels
        return np.asarray(scaled, np.uint8).reshape(size), digest


def _deep(image: Image.Image) -> bool:
    """Whether colours have more than 8 bits in the file, of which the library would keep the highest 8."""
    for tile in getattr(image, "tile", ()):
        args = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
        deep = any(";16" in one for one in args if isinstance(one, str))
        if deep or (tile[0] == "ppm" and any(one > 255 for one in args if isinstance(one, int))):
            return True
    return False


# -- patches -----------------------------------------------------------------------------------------------


def patches(image_BZHW: Tensor, side: int) -> Tensor:
    """``[B, T, Z·side·side]``: patches row by row, each channel by channel and row by row."""
    cut = image_BZHW.unfold(2, side, side).unfold(3, side, side)  # [B, Z, rows, columns, side, side]
    return cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def tokens(pixels_BHWZ: Tensor, settings: PatchEmbedding) -> Tensor:
    """``[B, T, K]`` what a model with these settings reads of images whose values go from 0 to 255."""
    cut = patches(pixels_BHWZ.permute(0, 3, 1, 2) / 127.5 - 1, settings.size)
    if not settings.class_token:
        return cut
    token = cut.new_zeros(len(cut), 1, settings.values)
    token[..., -1] = 1
    return torch.cat((F.pad(cut, (0, 1)), token), 1)


@dataclass(frozen=True)
class Changes:
    """What training does to images, so that they are not learned by heart.

    Attributes:
        hide: share of the patches that are grey.
        shift: share of the sides by which an image is moved at most; its edges are repeated.
        flip: each is mirrored, left to right, with probability 1/2.
    """

    hide: float = 0.0
    shift: float = 0.0
    flip: bool = False

    def moved(self, pixels_HWZ: Pixels, rng: np.random.Generator) -> Pixels:
        """An image moved, and mirrored or not."""
        sides = pixels_HWZ.shape[:2]
        most = [int(self.shift * side) for side in sides]
        by = [int(rng.integers(-n, n + 1)) for n in most]
        row, column = (np.clip(np.arange(n) + d, 0, n - 1) for n, d in zip(sides, by, strict=True))
        if self.flip and rng.random() < 0.5:
            column = column[::-1]
        moved: Pixels = pixels_HWZ[row[:, None], column]
        return moved

    def hidden(self, patches: int, rng: np.random.Generator) -> Tensor:
        """Which patches are hidden."""
        return torch.from_numpy(rng.random(patches) < self.hide)


UNCHANGED = Changes()


class ImageData(Dataset):
    """Images and the numbers of their classes.

    Args:
        changes: made to what is read, anew each epoch.
    """

    def __init__(
        self,
        images: Images,
        labels: Sequence[int],
        tokens: int,
        seed: int = 1,
        changes: Changes = UNCHANGED,
    ) -> None:
        assert len(images) == len(labels)
        if images.settings.tokens > tokens:
            what = f"an image of {images.settings.tokens} tokens is more than a batch of {tokens}"
            raise UserError(what, "data.tokens", f"set it to {images.settings.tokens} or more")
        self.images, self.labels, self.changes = images, labels, changes
        super().__init__(np.full(len(images), images.settings.tokens), tokens, seed)

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these images."""
        settings, pixels = self.images.settings, self.images.pixels[list(index)]
        B, T = len(index), settings.tokens
        hidden = torch.zeros(B, T, 1, dtype=torch.bool)
        for row, i in enumerate(index if self.changes != UNCHANGED else ()):
            rng = self.draws(epoch, i)
            pixels[row] = self.changes.moved(pixels[row], rng)
            hidden[row, : T - settings.class_token, 0] = self.changes.hidden(T - settings.class_token, rng)
        shown = tokens(torch.from_numpy(pixels), settings).masked_fill(hidden, 0.0)
        labels = torch.tensor([self.labels[i] for i in index])
        return Batch(shown, Layout.full(B, T), torch.full((B, T), IGNORE), tuple(index), labels=labels)
