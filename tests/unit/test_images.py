"""Images: found in folders of classes, read at one size, cut into patches, changed in training."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reading import chance, check_reading
from triptych.config.parts import PatchEmbedding
from triptych.data.images import (
    Changes,
    ImageData,
    Images,
    Pixels,
    chosen,
    found,
    read_image,
    read_images,
    tokens,
)
from triptych.errors import UserError

SETTINGS = PatchEmbedding(size=2, height=4, width=6, channels=3)


def pixels(seed: int = 0, height: int = 4, width: int = 6, channels: int = 3) -> Pixels:
    drawn = np.random.default_rng(seed).integers(0, 256, (height, width, channels))
    return drawn.astype(np.uint8)


def stored(path: Path, values: Pixels, **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values).save(path, **how)
    return path


def some(count: int = 7, settings: PatchEmbedding = SETTINGS) -> Images:
    drawn = np.stack(
        [pixels(seed, settings.height, settings.width, settings.channels) for seed in range(count)]
    )
    names = [f"{i}.png" for i in range(count)]
    return Images(drawn, [str(i % 3) for i in range(count)], names, names, settings)


# -- files


def test_folders_are_classes_in_the_order_of_names(tmp_path: Path) -> None:
    names = [
        "b/2.png",
        "b/1.png",
        "a/deep/x.PNG",
        "a/.hidden.png",
        "c10/1.bmp",
        "c9/1.ppm",
        "a/notes.txt",
        "read.me",
    ]
    for seed, name in enumerate(names):
        if name.lower().endswith(("txt", "me")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("words")
        else:
            stored(tmp_path / name, pixels(seed))
    (tmp_path / ".cache").mkdir()
    stored(tmp_path / ".cache" / "1.png", pixels(9))
    images = read_images([tmp_path], SETTINGS)
    assert [path.removeprefix(f"{tmp_path}/") for path in images.origin] == [
        "a/deep/x.PNG", "b/1.png", "b/2.png", "c10/1.bmp", "c9/1.ppm",
    ]  # fmt: skip
    assert images.labels == ["a", "b", "b", "c10", "c9"] and images.classes == ["a", "b", "c10", "c9"]
    assert images.notes == ("files that are no images, left out: 2",)
    assert np.array_equal(images.pixels[1], pixels(1)) and np.array_equal(images.pixels[0], pixels(2))
    assert [str(path) for path in found(tmp_path / "b")] == images.origin[1:3]


def test_several_folders_add(tmp_path: Path) -> None:
    for folder, seed in (("one", 1), ("two", 2)):
        stored(tmp_path / folder / "x" / "1.png", pixels(seed))
    images = read_images([tmp_path / "two", tmp_path / "one"], SETTINGS)
    assert images.labels == ["x", "x"] and images.digests != images.select([1, 0]).digests
    assert images.select([1, 0]).digests == images.digests[::-1]
    assert images.place(0) == str(tmp_path / "two/x/1.png")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: None, "no such folder"),
        (lambda p: p.write_bytes(b"x"), "no folder"),
        (lambda p: p.mkdir(), "no images in its folders"),
        (lambda p: stored(p / "1.png", pixels()), "in no folder of a class"),
        (lambda p: (p / "a").mkdir(parents=True), "no images in its folders"),
    ],
)
def test_folders_that_cannot_be_read(tmp_path: Path, make: Any, said: str) -> None:
    make(tmp_path / "images")
    with pytest.raises(UserError, match=said):
        read_images([tmp_path / "images"], SETTINGS)


def test_images_that_cannot_be_read(tmp_path: Path) -> None:
    whole = stored(tmp_path / "a" / "1.png", pixels(height=60, width=60)).read_bytes()
    for content in (b"", b"no image at all", whole[: len(whole) // 2], whole[:40] + b"\0" * 200):
        (tmp_path / "a" / "1.png").write_bytes(content)
        with pytest.raises(UserError, match="cannot be read as an image") as refused:
            read_images([tmp_path], SETTINGS)
        assert refused.value.where == str(tmp_path / "a" / "1.png")
    with pytest.raises(UserError, match="no such file"):
        read_image(tmp_path / "gone.png", SETTINGS)
    with pytest.raises(UserError, match="3 or 1"):
        read_image(tmp_path / "a" / "1.png", PatchEmbedding(size=2, height=4, width=6, channels=4))


def test_deep_pixels_are_not_cut_off(tmp_path: Path) -> None:
    """Sixteen bits a value, taken for eight, would be white all over, or lose half of them."""
    Image.fromarray(np.full((4, 6), 40_000, np.uint16)).save(tmp_path / "grey.png")
    deep = np.full((4, 6, 3), 40_000, ">u2").tobytes()
    (tmp_path / "colours.ppm").write_bytes(b"P6 6 4 65535\n" + deep)
    rows = b"".join(b"\0" + deep[i * 36 : i * 36 + 36] for i in range(4))
    chunks = (
        (b"IHDR", struct.pack(">2I5B", 6, 4, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    png = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    (tmp_path / "colours.png").write_bytes(b"\x89PNG\r\n\x1a\n" + png)
    for name in ("grey.png", "colours.ppm", "colours.png"):
        with pytest.raises(UserError, match="more than 8 bits"):
            read_image(tmp_path / name, SETTINGS)
    shallow = b"P6 6 4 255\n" + deep[::2]
    (tmp_path / "colours.ppm").write_bytes(shallow)
    assert (read_image(tmp_path / "colours.ppm", SETTINGS) == 40_000 >> 8).all()


def test_links_are_followed_and_do_not_loop(tmp_path: Path) -> None:
    stored(tmp_path / "elsewhere" / "1.png", pixels(1))
    stored(tmp_path / "images" / "a" / "2.png", pixels(2))
    (tmp_path / "images" / "a" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "images" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "images" / "a" / "round").symlink_to(tmp_path / "images" / "a")
    images = read_images([tmp_path / "images"], SETTINGS)
    assert [path.removeprefix(f"{tmp_path}/images/") for path in images.origin] == [
        "a/2.png", "a/more/1.png", "b/1.png",
    ]  # fmt: skip


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not passed over with all that it holds."""
    stored(tmp_path / "a" / "deep" / "1.png", pixels())
    entries = Path.iterdir

    def denied(folder: Path) -> Any:
        if folder.name == "deep":
            raise PermissionError(13, "Permission denied")
        return entries(folder)

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(UserError, match="cannot be read: Permission denied") as refused:
        read_images([tmp_path], SETTINGS)
    assert refused.value.where == str(tmp_path / "a" / "deep")


@pytest.mark.parametrize("name", ["new\nline", "tab\tb", "caf\udce9"])
def test_classes_that_no_line_can_hold(tmp_path: Path, name: str) -> None:
    stored(tmp_path / "a" / "1.png", pixels())
    shutil.copytree(tmp_path / "a", tmp_path / name)
    with pytest.raises(UserError, match="label"):
        read_images([tmp_path], SETTINGS)


def test_the_split_does_not_hang_on_the_size(tmp_path: Path) -> None:
    for seed in range(3):
        stored(tmp_path / "a" / f"{seed}.png", pixels(seed))
    sizes = (
        SETTINGS,
        PatchEmbedding(size=2, height=2, width=2),
        PatchEmbedding(size=4, height=8, width=8, channels=1),
    )
    assert len({tuple(read_images([tmp_path], settings).digests) for settings in sizes}) == 1
    assert len(set(read_images([tmp_path], SETTINGS).digests)) == 3


def test_grey_colours_palettes_and_turned_ones(tmp_path: Path) -> None:
    grey = SETTINGS.model_copy(update={"channels": 1})
    one = pixels(channels=1)
    file = stored(tmp_path / "grey.png", one)
    assert np.array_equal(read_image(file, grey), one)
    assert np.array_equal(read_image(file, SETTINGS), one.repeat(3, 2))
    Image.fromarray(pixels()).convert("P").save(tmp_path / "palette.png")
    want = np.asarray(Image.open(tmp_path / "palette.png").convert("RGB"))
    assert np.array_equal(read_image(tmp_path / "palette.png", SETTINGS), want)
    image = Image.fromarray(pixels().transpose(1, 0, 2))  # lies on its side, and says so
    exif = image.getexif()
    exif[0x0112] = 5  # mirrored along its diagonal
    image.save(tmp_path / "turned.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "turned.png", SETTINGS), pixels())


def test_other_sizes_are_scaled_and_said(tmp_path: Path) -> None:
    for i in range(3):
        stored(tmp_path / "a" / f"{i}.png", np.full((4, 6, 3), 50 * i, np.uint8))
    stored(tmp_path / "a" / "9.png", np.full((8, 24, 3), 200, np.uint8))
    images = read_images([tmp_path], PatchEmbedding(size=2))
    assert images.pixels.shape == (4, 4, 6, 3) and (images.pixels[3] == 200).all()
    assert images.notes == ("1 of 4 images are of another size and scaled to 4 × 6 pixels",)
    assert images.settings == PatchEmbedding(size=2, height=4, width=6)


@given(
    st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    st.integers(0, 40),
    st.booleans(),
)
def test_what_is_left_to_the_data_is_chosen(size: tuple[int, int], patch: int, token: bool) -> None:
    """Whole patches, not many; no side longer than is wanted, and what was asked for stands."""
    got = chosen(PatchEmbedding(size=patch, class_token=token), size)
    assert got.size == (patch or got.size) and got.class_token == token
    assert got.height % got.size == got.width % got.size == 0 < got.tokens
    if not patch:
        assert max(got.height, got.width) <= 64 * 1.5
        assert got.tokens <= 130
    if max(size) <= 64 and not patch and size[0] == size[1] and size[0] in (8, 16, 28, 32, 48, 64):
        assert (got.height, got.width) == size, "nothing is scaled without need"
    asked = PatchEmbedding(size=4, height=12, width=20)
    assert chosen(asked, size) == asked
    half = chosen(PatchEmbedding(height=30), size)
    assert half.height == 30 and half.height % half.size == half.width % half.size == 0


# -- patches and batches


@pytest.mark.parametrize("token", [False, True])
def test_tokens_are_patches_in_order(token: bool) -> None:
    settings = SETTINGS.model_copy(update={"class_token": token})
    image = pixels()
    got = tokens(torch.from_numpy(image)[None], settings)[0]
    assert got.shape == (6 + token, 12 + token) == (settings.tokens, settings.values)
    for number in range(6):
        row, column = 2 * (number // 3), 2 * (number % 3)
        square = image[row : row + 2, column : column + 2].transpose(2, 0, 1).astype(np.float32)
        want = torch.from_numpy(square / 127.5 - 1).flatten()
        torch.testing.assert_close(got[number, :12], want)
    if token:
        assert got[:, -1].tolist() == [0] * 6 + [1] and not got[-1, :-1].any()
    assert got.min() >= -1 and got.max() <= 1


def test_an_image_is_no_more_than_a_batch() -> None:
    with pytest.raises(UserError, match="set it to 6"):
        ImageData(some(), [0] * 7, 5)


@pytest.mark.parametrize("changes", [Changes(), Changes(0.3, 0.25, True)])
@pytest.mark.parametrize("budget", [6, 13, 1000])
def test_reading(changes: Changes, budget: int) -> None:
    images = some(11)
    labels = list(range(11))
    one, other = (ImageData(images, labels, budget, 3, changes) for _ in range(2))
    check_reading(one, other)
    batch = one.batch([4, 2])
    assert batch.labels is not None and batch.labels.tolist() == [4, 2] and batch.count == 2
    assert np.array_equal(images.pixels, some(11).pixels), "what is changed is a copy"
    if changes == Changes():
        assert torch.equal(one.batch([4], 0).ids, one.batch([4], 5).ids)
    else:
        assert not torch.equal(one.batch([4], 0).ids, one.batch([4], 5).ids)


def test_moving() -> None:
    """Whole pixels, no further than the share, every place equally often; edges are repeated."""
    image = np.arange(8 * 8, dtype=np.uint8).reshape(8, 8, 1)
    changes, seen = Changes(shift=0.25), Counter[tuple[int, int]]()
    for seed in range(2500):
        moved = changes.moved(image, np.random.default_rng(seed))[..., 0]
        row, column = divmod(int(moved[4, 4]), 8)
        seen[row - 4, column - 4] += 1
        rows, columns = (np.clip(np.arange(8) + d, 0, 7) for d in (row - 4, column - 4))
        assert np.array_equal(moved, image[rows[:, None], columns, 0])
    assert set(seen) == {(y, x) for y in range(-2, 3) for x in range(-2, 3)}
    assert chance(list(seen.values()), [100.0] * 25) > 1e-4


def test_mirroring() -> None:
    image, changes = pixels(), Changes(flip=True)
    flipped = [not np.array_equal(changes.moved(image, np.random.default_rng(s)), image) for s in range(400)]
    assert chance([sum(flipped), 400 - sum(flipped)], [200.0, 200.0]) > 1e-4
    for seed, was in enumerate(flipped[:20]):
        want = image[:, ::-1] if was else image
        assert np.array_equal(changes.moved(image, np.random.default_rng(seed)), want)


def test_hiding() -> None:
    """Hidden patches are zeros, as many as was asked for; never a class token."""
    settings = SETTINGS.model_copy(update={"class_token": True})
    images = some(300, settings)
    shown = ImageData(images, [0] * 300, 10_000, 1, Changes(hide=0.3)).batch(range(300)).ids
    plain = ImageData(images, [0] * 300, 10_000, 1).batch(range(300)).ids
    hidden = (shown[:, :-1] == 0).all(-1)
    assert torch.equal(shown[:, -1], plain[:, -1]) and torch.equal(
        shown[:, :-1][~hidden], plain[:, :-1][~hidden]
    )
    count = int(hidden.sum())
    assert chance([count, 1800 - count], [540.0, 1260.0]) > 1e-4
