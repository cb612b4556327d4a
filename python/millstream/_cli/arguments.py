"""Parses the arguments of the command line and runs the commands."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from millstream._cli.opening import error_text, joined, opened
from millstream._cli.output import OutputError, complain, end_output, flush, say
from millstream._core.errors import DataError
from millstream._formats.detect import KNOWN, DataSet, Options, find
from millstream._formats.schema import (
    DTYPES,
    MOST_DIGITS,
    Field,
    UsageError,
    is_utf8,
    parse_schema,
)

_FORMATS = f"Formats: {KNOWN}. A format is detected by content, then by file name."

_INSPECT = """examples:
  millstream inspect train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz
  millstream inspect train.npz --samples 5 --all
  millstream inspect records.bin --schema "image:uint8(28,28,1),label:int32"
  millstream inspect weather.csv --fields temperature,wind
"""
_VERIFY = """examples:
  millstream verify data/*.npy
  millstream verify cifar-10-binary.tar.gz
"""
_CONVERT = """examples:
  millstream convert train.npz train.packed
  millstream convert image=train-images-idx3-ubyte.gz \\
      label=train-labels-idx1-ubyte.gz train.npz
  millstream convert cifar-100-python.tar.gz cifar100 --split train
  millstream convert table.csv digits --to idx --cast column0=uint8,column1=float32

If DST has no suffix, it becomes a folder with one .npy file per field and a file
fields.json, which lists the fields in their order. With several sources, write
NAME=PATH for each: it gives the field NAME.
"""


def run(arguments: Sequence[str] | None) -> int:
    """Runs a command and returns its exit status. Does not catch Ctrl-C."""
    try:
        try:
            given = _parser().parse_args(arguments)
            status: int = given.run(given)
        except SystemExit as exit:  # argparse has printed the reason
            status = exit.code if isinstance(exit.code, int) else 2
        except (DataError, OSError, ValueError) as error:
            status = _failed(error)
        flush()
        return status
    except OutputError as error:
        end_output(error)
        return 1


def _failed(error: Exception) -> int:
    """Prints an error and returns the exit status for it."""
    complain(error_text(error))
    return 2 if isinstance(error, UsageError) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="millstream",
        description="Inspects, verifies and converts data sets on disk.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    inspect = _command(
        commands,
        "inspect",
        "show formats, fields, samples and histograms",
        _INSPECT,
        _run_inspect,
    )
    inspect.add_argument("paths", nargs="+", metavar="PATH", type=Path)
    inspect.add_argument(
        "--samples",
        type=_count,
        default=3,
        metavar="N",
        help="number of samples to show (default: 3)",
    )
    inspect.add_argument(
        "--all",
        action="store_true",
        help="compute the histograms from all samples, not from 64 MiB of them",
    )
    verify = _command(
        commands,
        "verify",
        "read all samples and report what is damaged, and where",
        _VERIFY,
        _run_verify,
    )
    verify.add_argument("paths", nargs="+", metavar="PATH", type=Path)
    convert = _command(
        commands,
        "convert",
        "write the samples in another format",
        _CONVERT,
        _run_convert,
    )
    convert.usage = "millstream convert [options] SRC... DST"
    convert.add_argument("sources", nargs="+", metavar="SRC", help="PATH or NAME=PATH")
    convert.add_argument("target", metavar="DST", type=Path)
    convert.add_argument(
        "--to",
        choices=("npy", "npz", "idx", "packed", "csv", "tsv"),
        help="format of DST (default: by its suffix)",
    )
    convert.add_argument(
        "--cast",
        type=_casts,
        default={},
        metavar="FIELD=DTYPE,...",
        help="convert fields to other dtypes; fails if a value does not fit",
    )
    convert.add_argument(
        "--force", action="store_true", help="replace DST if it exists"
    )
    for command in (inspect, verify, convert):
        _add_options(command)
    return parser


def _command(
    commands: Any, name: str, summary: str, examples: str, run: Callable[..., int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(f"{summary[0].upper()}{summary[1:]}. {_FORMATS}"),
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to read the files")
    group.add_argument(
        "--schema",
        type=_schema,
        metavar="FIELDS",
        help='fields of packed records without a header, such as "image:uint8(28,28,1),'
        'label:int32"; by default read from FILE.json next to FILE, such as '
        '{"image": "uint8(28,28,1)", "label": "int32"}',
    )
    group.add_argument(
        "--offset",
        type=_count,
        default=0,
        metavar="BYTES",
        help="offset of the first record, with --schema (default: 0)",
    )
    group.add_argument(
        "--fields",
        type=_names,
        default=(),
        metavar="NAME,...",
        help="use only these columns of a table, or arrays of an .npz or a folder",
    )
    group.add_argument(
        "--split", choices=("train", "test"), help="use only this split of CIFAR"
    )
    group.add_argument(
        "--delimiter",
        type=_character,
        metavar="CHARACTER",
        help="delimiter of a table (default: detected in its first line)",
    )
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line of a table names its columns (default: detected)",
    )
    group.add_argument(
        "--shards",
        action="store_true",
        help="treat all .npy files of a folder as shards of one array; by default only "
        "files whose names differ in a number at the end are shards",
    )


def _options(given: argparse.Namespace) -> Options:
    names = [field.name for field in dataclasses.fields(Options)]
    return Options(**{name: getattr(given, name) for name in names})


def _schema(text: str) -> tuple[Field, ...]:
    try:
        return parse_schema(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise argparse.ArgumentTypeError(
            f"expected a count of up to {MOST_DIGITS} digits, found {text!r:.60}"
        )
    return int(text)


def _character(text: str) -> str:
    text = "\t" if text == r"\t" else text
    if len(text) != 1 or not text.isascii() or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character, found {text!r}")
    return text


def _names(text: str) -> tuple[str, ...]:
    if not is_utf8(text):
        raise argparse.ArgumentTypeError(f"expected names in UTF-8, found {text!r}")
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _casts(text: str) -> dict[str, str]:
    casts = {}
    for word in _names(text):
        name, _, dtype = word.rpartition("=")
        if not name or dtype not in DTYPES:
            raise argparse.ArgumentTypeError(
                f"expected FIELD=DTYPE with a dtype of {', '.join(DTYPES)}, "
                f"found {word!r}"
            )
        casts[name] = dtype
    return casts


def _run_inspect(given: argparse.Namespace) -> int:
    from millstream._cli.inspect import describe

    def show(data: DataSet, options: Options) -> bool:
        with opened(data, fields=options.fields) as source:
            for line in describe(
                data, source, samples=given.samples, everything=given.all
            ):
                say(line)
        return True

    return _each(given, show)


def _run_verify(given: argparse.Namespace) -> int:
    from millstream._cli.verify import examine

    def check(data: DataSet, options: Options) -> bool:
        findings = examine(data, options.fields)
        for defect in findings.defects:
            complain(f"damaged: {defect}")
        if not findings.defects:
            say(f"ok  {data.name}: {findings.summary}")
        for note in findings.notes:
            say(f"    note: {note}")
        return not findings.defects

    return _each(given, check)


def _each(given: argparse.Namespace, act: Callable[[DataSet, Options], bool]) -> int:
    """Calls ``act`` on every data set at the paths. Returns the worst exit status."""
    options = _options(given)
    status = 0
    for path in given.paths:
        try:
            found = find(path, options)
        except (DataError, OSError, ValueError) as error:
            status = max(status, _failed(error))
            continue
        for data in found:
            try:
                status = max(status, int(not act(data, options)))
            except (DataError, OSError, ValueError) as error:
                status = max(status, _failed(error))
    return status


def _run_convert(given: argparse.Namespace) -> int:
    from millstream._cli.convert import target_of, write

    target = target_of(given.target, given.to)
    options = _options(given)
    data = joined(given.sources, options)
    with opened(data, fields=options.fields) as source:
        write(source, target, force=given.force, casts=given.cast)
        say(f"{target.path}: {len(source):,} samples from {data.name}")
    return 0
