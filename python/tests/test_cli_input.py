"""Input of the command line: table headers, JSON, names and pipes."""

from __future__ import annotations

import os

import numpy as np
import pytest
from cli_files import (
    LABELS,
    SCHEMA,
    cifar_binary,
    fails,
    records,
    write_all,
)


@pytest.mark.parametrize(
    ("text", "header"),
    [
        # The line is longer than 4,096 bytes.
        ("\n".join([",".join(f"{i:07}" for i in range(600))] * 3), False),
        ('"0","1"\n2,3\n', True),
        ('"0","1"\r\n2,3\r\n', True),
        ('"0","1"\n"2","3"\n', False),
        ('"a\nb",c\n1,2\n', True),
        ("a,b_1,1_1\n1,2,3\n", True),
        ("1e3, +2 ,-.5\n1,2,3\n", False),
        ("nan,inf\n1,2\n", False),
    ],
)
def test_headers_are_lines_without_numbers(run, tmp_path, text: str, header) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text, newline="")
    out = run("inspect", path).out
    assert ("commas, with a header" in out) == header
    assert run("inspect", path, "--header" if header else "--no-header").out == out


@pytest.mark.parametrize(
    ("line", "found"),
    [("1,,3", "column 2"), ("1,NA,3", "'NA'"), ('"a\nb",2,3', "column 1")],
)
def test_a_line_with_a_number_is_not_a_header(run, tmp_path, line, found) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{line}\n4,5,6\n")
    for command in ("inspect", "verify"):
        fails(run(command, path), "line 1, ", found, "--header")


def test_tables_with_blanks(run, tmp_path) -> None:
    path = tmp_path / "x.txt"
    np.savetxt(path, np.arange(6.0).reshape(3, 2))
    out = run("inspect", path).out
    assert "spaces, without a header" in out
    assert "  samples  3 of 16 B" in out
    path.write_text("of one column\n1\n2\n")
    assert "of one column  int64" in run("inspect", path).out
    np.savetxt(path, np.arange(6.0).reshape(3, 2), fmt="%9.3f")
    fails(run("inspect", path), str(path), "line 1", "several blanks")


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", '{"a": 3}', '{"a": "uint9"}', "{}", DEEP),
        *(f'{{"a": "uint8({"9" * 23})"}}', r'{"\udcff": "uint8"}'),
    ],
)
def test_damaged_json_next_to_records(run, tmp_path, text: str) -> None:
    paths = write_all(tmp_path)
    schema_file = paths["records"].with_name("records.dat.json")
    schema_file.write_text(text)
    result = run("inspect", paths["records"], paths["npy"])
    fails(result, str(schema_file), "expected")
    assert "NumPy .npy" in result.out


@pytest.mark.parametrize("text", [DEEP, r'{"\udcff": "x.npy"}', r'{"x": "\udcff.npy"}'])
def test_damaged_names_of_a_folder(run, tmp_path, text: str) -> None:
    (tmp_path / "fields.json").write_text(text)
    fails(run("inspect", tmp_path), "fields.json", "expected")


def test_names_that_are_not_text(run, tmp_path) -> None:
    for folder in (tmp_path, tmp_path / "folder\udcfe"):
        folder.mkdir(exist_ok=True)
        path = folder / "ok\udcff.npy"
        np.save(path, LABELS)
        for command in ("inspect", "verify"):
            result = run(command, path)
            assert result.status == 0, result.err
            assert r"ok\udcff.npy" in result.out
        out = run("inspect", folder).out
        assert r"ok\xff  int32" in out
    path.write_bytes(path.read_bytes()[:-1])
    fails(run("inspect", path), r"ok\xff.npy", "expected 48 bytes")
    result = run("convert", f"\udcff={path}", tmp_path / "x.npz")
    fails(result, "UTF-8", status=2)


def test_control_characters_in_names_are_escaped(run, tmp_path) -> None:
    path = tmp_path / "\033[2J.npz"
    np.savez(path, **{"a\n\033[31m": LABELS})
    result = run("inspect", path, tmp_path / "\033")
    assert result.status == 1
    assert "\033" not in result.out + result.err
    assert r"a\n\x1b[31m" in result.out
    assert r"\x1b[2J.npz" in result.out
    assert r"\x1b: No such file" in result.err


def test_paths_that_are_neither_files_nor_folders(run, tmp_path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    for command in ("inspect", "verify"):
        fails(run(command, tmp_path / "x.npy"), "x.npy", "found a pipe")
    fails(run("inspect", "/dev/null"), "/dev/null", "found a device")
    (tmp_path / "fields.json").write_text('{"x": "x.npy"}')
    fails(run("inspect", tmp_path), "x.npy", "found a pipe")
    (tmp_path / "x.npy").unlink()
    fails(run("verify", tmp_path), "damaged", "x.npy", "No such file")


def test_schemas_come_before_the_names_of_cifar(run, tmp_path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "train.bin").write_bytes(records())
    assert "packed records" in run("inspect", folder, "--schema", SCHEMA).out
    (folder / "train.bin.json").write_text('{"image": "uint8(16)"}')
    result = run("verify", folder)
    assert result.status == 0, result.err
    assert f"ok  {folder / 'train.bin'}: packed records" in result.out
    (folder / "test.bin").write_bytes(cifar_binary(100))
    out = run("verify", folder).out
    assert "CIFAR-100" in out
    assert "packed records" in out
