"""Zips that workers send: what may be used is unpacked, all else is refused by name."""

from __future__ import annotations

import io
import struct
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from bundle_helpers import Entry, deflated, zip_messages, zip_of, zip_worker
from hypothesis import given
from hypothesis import strategies as st

from mmroute.errors import Reason
from mmroute.server.bundle import BundleError, fetch_bundle
from mmroute.server.bundle.unpack import unpack

TWO = (Entry(b"config.json", b"1"), Entry(b"vocab.json", b"22"))
LARGE = b"x" * (2 << 20)
ZIP64_EXTRA = struct.pack("<2H2Q", 1, 16, 2, 2)


def named(name: str | bytes) -> bytes:
    return zip_of(Entry(name if isinstance(name, bytes) else name.encode()))


def both(**fields: object) -> bytes:
    """A zip whose two headers agree on something wrong."""
    return zip_of(Entry(local=fields, central=fields))


HOSTILE: dict[str, bytes] = {
    "no zip": b"not a zip, but long enough to be one",
    "cut short": zip_of(*TWO)[:-30],
    "bytes behind": zip_of(*TWO, suffix=b"\0"),
    "a zip behind": zip_of(*TWO, suffix=zip_of(Entry())),
    "a comment": zip_of(*TWO, comment=b"hello"),
    "a program before, offsets as they were": b"#!/bin/sh\n" + zip_of(*TWO),
    "bytes behind the directory": zip_of(*TWO, before_end=b"hidden"),
    "two files in one place": zip_of(
        TWO[0], Entry(b"config.json", b"1", central={"offset": 0})),
    "a file within another": zip_of(
        TWO[0], Entry(b"vocab.json", central={"offset": 10})),
    "a file behind the end": zip_of(Entry(central={"offset": 999})),
    "another file at its offset": zip_of(
        Entry(b"config.json", local={"name": b"CONFIG.json"})),
    "zip64 offset": zip_of(Entry(central={"offset": 0xFFFFFFFF})),
    "zip64 directory": zip_of(Entry(), end={"offset": 0xFFFFFFFF}),
    "a zip64 end": zip_of(
        Entry(), before_end=struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1)),
    "encrypted": both(flags=1),
    "a hidden directory": both(flags=1 << 13),
    "lzma": both(method=14),
    "a link": zip_of(Entry(content=b"/etc/passwd", attributes=0o120777 << 16)),
    "a device": zip_of(Entry(attributes=0o020666 << 16)),
    "a directory": zip_of(Entry(attributes=0o040755 << 16)),
    "a directory of DOS": zip_of(Entry(attributes=0x10)),
    "a directory by its name": zip_of(Entry(b"sub/", b"", attributes=0)),
    "no files": zip_of(),
    "51 files": zip_of(
        *(Entry(f"{n}.jinja".encode()) for n in range(51))),
    "a directory of 2 MiB": zip_of(
        *(Entry(f"{n}.jinja".encode(), central={"extra": b"\0" * 0xFFF0}) for n in range(40))),
    "no name": named(""),
    "a long name": named("a" * 250 + ".jinja"),
    "a NUL in the name": named("tokenizer.json\0.jinja"),
    "a backslash": named("..\\evil.jinja"),
    "a drive": named("C:evil.jinja"),
    "an absolute path": named("/etc/evil.jinja"),
    "two dots": named("../evil.txt"),
    "a nested file": named("sub/tokenizer.json"),
    "weights": named("model.safetensors"),
    "code": named("tokenization_evil.py"),
    "a hidden file": named(".evil.jinja"),
    "other case": named("Tokenizer.JSON"),
    "one name twice": zip_of(Entry(), Entry(content=b"other")),
    "names that differ in case": zip_of(
        Entry(b"a.jinja"), Entry(b"A.jinja")),
    "more is claimed than may be": zip_of(
        *(Entry(f"{n}.model".encode(), local={"size": 300 << 20}, central={"size": 300 << 20})
          for n in range(2))),
    "more is inflated than claimed": zip_of(
        Entry(content=LARGE, local={"size": 9}, central={"size": 9})),
    "less is inflated than claimed": both(size=9),
    "more is stored than claimed": zip_of(
        Entry(content=b"abc", method=0, local={"size": 2}, central={"size": 2})),
    "another checksum": both(crc=1),
    "no deflated data": zip_of(Entry(content=b"ab", packed=b"\xff\xff")),
    "deflated data cut short": zip_of(
        Entry(content=b"abc" * 99, packed=deflated(b"abc" * 99)[:-2])),
    "no data at all": zip_of(Entry(content=b"ab", packed=b"")),
}  # fmt: skip

# What `zipfile` reads past: the files are those of the directory, with their checksums.
HARMLESS: dict[str, bytes] = {
    "bytes before": zip_of(*TWO, prefix=b"#!/bin/sh\n"),
    "bytes between": zip_of(TWO[0], Entry(b"vocab.json", b"22", before=b"hidden")),
    "bytes before the directory": zip_of(*TWO, before_directory=b"hidden"),
    "bytes behind deflated data": zip_of(
        Entry(packed=deflated(b"{}") + b"hidden")),
    "another size in its header": zip_of(Entry(local={"size": 1})),
    "another method in its header": zip_of(Entry(local={"method": 0})),
    "another checksum in its header": zip_of(Entry(local={"crc": 1})),
    "zip64 sizes": zip_of(Entry(central={"size": 0xFFFFFFFF, "extra": ZIP64_EXTRA})),
    "zip64 beside true sizes": zip_of(Entry(central={"extra": ZIP64_EXTRA})),
    "zip64 in its own header": zip_of(Entry(extra=ZIP64_EXTRA)),
    "encrypted by its own header only": zip_of(Entry(local={"flags": 1})),
    "sizes behind the data": both(flags=1 << 3),
    "a file that is not counted": zip_of(*TWO, end={"here": 1, "count": 1}),
    "60,000 files that are not there": zip_of(Entry(), end={"here": 60_000, "count": 60_000}),
    "more data is claimed than there is": both(packed=999),
    "several volumes": zip_of(Entry(), end={"disk": 1}),
    "in another volume": zip_of(Entry(central={"disk": 1})),
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_zips_are_refused_by_name_and_leave_nothing(case: str, private: Path) -> None:
    with zip_worker(zip_messages(HOSTILE[case])) as address, pytest.raises(BundleError) as caught:
        fetch_bundle(address)
    assert caught.value.reason is Reason.BUNDLE_REFUSED
    assert str(caught.value).startswith(f"{address}: ")
    assert list(private.iterdir()) == []


@pytest.mark.parametrize("case", HARMLESS)
def test_only_what_the_directory_lists_is_written(case: str, tmp_path: Path) -> None:
    archive = HARMLESS[case]
    files = unpack(io.BytesIO(archive), len(archive), tmp_path)
    contents = {"config.json": b"1", "vocab.json": b"22", "tokenizer.json": b"{}"}
    for name, path in files.items():
        assert path.read_bytes() == contents[name]
    assert sorted(tmp_path.iterdir()) == sorted(files.values())


@pytest.mark.process
def test_what_is_refused_is_not_written_elsewhere(tmp_path: Path, private: Path) -> None:
    outside = tmp_path / "evil.jinja"
    for name in ("../evil.jinja", str(outside)):
        with zip_worker(zip_messages(named(name))) as address, pytest.raises(BundleError):
            fetch_bundle(address)
    assert sorted(tmp_path.iterdir()) == [private]


@pytest.mark.process
def test_the_zips_of_zipfile_are_unpacked(private: Path) -> None:
    contents = {
        "tokenizer.json": b'{"a": 1}' * 99_999,
        "config.json": b"",
        "chat_template.v3_image.jinja": b"{{ messages }}",
        "qwen.tiktoken": bytes(range(256)) * 300,
        "spm model+1.model": b"\0",
    }
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", compression) as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
        with (
            zip_worker(zip_messages(out.getvalue())) as address,
            fetch_bundle(address) as bundle,
        ):
            assert {name: path.read_bytes() for name, path in bundle.files.items()} == contents
            assert sorted(path.name for path in bundle.root.iterdir()) == sorted(contents)
            if sys.platform != "win32":
                assert bundle.root.stat().st_mode & 0o777 == 0o700
    assert list(private.iterdir()) == []


@pytest.mark.process
def test_fifty_files_pass(private: Path) -> None:
    archive = zip_of(*(Entry(f"{n}.jinja".encode()) for n in range(50)))
    with zip_worker(zip_messages(archive)) as address, fetch_bundle(address) as bundle:
        assert len(bundle.files) == 50
    assert list(private.iterdir()) == []


def test_the_sum_of_all_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zip_of(*TWO)
    monkeypatch.setattr("mmroute.server.bundle.unpack.MOST_UNPACKED", 2)
    with pytest.raises(BundleError) as caught:
        unpack(io.BytesIO(archive), len(archive), tmp_path)
    assert caught.value.reason is Reason.BUNDLE_REFUSED
    monkeypatch.setattr("mmroute.server.bundle.unpack.MOST_UNPACKED", 3)
    assert unpack(io.BytesIO(archive), len(archive), tmp_path)


def test_what_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "elsewhere")
    archive = zip_of(*TWO)
    with pytest.raises(FileExistsError):
        unpack(io.BytesIO(archive), len(archive), tmp_path)
    assert not (tmp_path / "elsewhere").exists()


GOOD = zip_of(Entry(b"config.json", b"abc" * 50), Entry(b"a.jinja", b"xyz", method=0))
CONTENTS = {b"abc" * 50, b"xyz"}


def unpacked(archive: bytes) -> dict[str, bytes] | None:
    """The files by name; None if the zip is refused. Nothing but `BundleError` may be raised."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as spool:
        spool.write(archive)
        try:
            files = unpack(spool, len(archive), Path(directory))
        except BundleError:
            return None
        return {name: path.read_bytes() for name, path in files.items()}


@given(
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_changed_bytes_are_refused_or_change_no_content(changes: list[tuple[int, int]]) -> None:
    archive = bytearray(GOOD)
    for place, value in changes:
        archive[place] = value
    files = unpacked(bytes(archive))
    assert files is None or set(files.values()) <= CONTENTS


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused_by_name(junk: bytes, with_end: bool) -> None:
    files = unpacked(junk + zip_of()[-22:] if with_end else junk)
    assert not files
