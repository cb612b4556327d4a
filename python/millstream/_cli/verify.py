"""``millstream verify``: reads a whole data set and reports what is damaged."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from millstream import _engine
from millstream._cli.histogram import is_whole
from millstream._cli.opening import TemporaryError, error_text, opened
from millstream._cli.output import printable
from millstream._cli.reading import Reader, sample_bytes
from millstream._core.errors import DataError
from millstream._core.progress_bar import ProgressBar, amount_text
from millstream._formats.detect import DataSet
from millstream._formats.tables import Form

_MOST_DEFECTS = 20  # per data set
_CHUNK = 1 << 20
_LOCAL_HEADER = 30


class Findings:
    """The defects of a data set, notes about it and a summary."""

    def __init__(self) -> None:
        self.defects: list[str] = []
        self.notes: list[str] = []
        self.summary = ""

    def add(self, defect: str) -> None:
        """Adds a defect unless it is known. Adds one line for all after the 20th."""
        full = len(self.defects) >= _MOST_DEFECTS
        defect = "and more, which are not listed" if full else defect
        if defect not in self.defects:
            self.defects.append(defect)


def examine(data: DataSet, fields: tuple[str, ...] = ()) -> Findings:
    """Reads a whole data set and returns its defects.

    Raises ``TemporaryError`` if it cannot be unpacked into the temporary folder.
    """
    findings = Findings()
    if data.zipped:
        for defect in _changed_members(data.path):
            findings.add(defect)
    try:
        with opened(data, fields=fields) as source:
            _read_all(data, source, findings)
    except TemporaryError:
        raise
    except (DataError, OSError) as error:
        # The engine stops at the first defect.
        if data.table:
            findings.add(error_text(error))
            _read_lines(data.path, data.table, fields, findings)
        elif len(data.parts) > 1:
            _read_parts(data, findings)
        if not (data.zipped and findings.defects):
            findings.add(error_text(error))
    return findings


def _read_parts(data: DataSet, findings: Findings) -> None:
    """Reads each part of a data set, and adds the defects of all."""
    for opener in data.parts:
        part = Findings()
        try:
            with opened(data, opener=opener) as source:
                _read_all(data, source, part)
        except TemporaryError:
            raise
        except (DataError, OSError, ValueError) as error:
            part.add(error_text(error))
        for defect in part.defects:
            findings.add(defect)


def _read_lines(
    path: Path, form: Form, fields: tuple[str, ...], findings: Findings
) -> None:
    """Adds all damaged lines of a table except the first, which is added already."""
    defects, last = _engine.csv_defects(
        path, form.delimiter, form.header, fields, _MOST_DEFECTS + 1
    )
    for defect in defects[1:]:
        findings.add(defect)
    if last:
        findings.notes.append(f"lines after line {last} were not checked")


def _read_all(data: DataSet, source: _engine.Source, findings: Findings) -> None:
    reader = Reader(source)
    each = sample_bytes(source)
    not_finite: dict[str, tuple[int, int]] = {}  # field: count, first sample
    label = printable(f"verify {data.path.name}")
    with ProgressBar(label, reader.samples * each) as bar:
        for step in range(reader.steps):
            first = step * reader.rows
            last = min(first + reader.rows, reader.samples)
            try:
                columns = reader.batch(step)
            except OSError as error:
                findings.add(f"{error_text(error)} (samples {first} to {last - 1})")
                break  # later samples cannot be read either
            except DataError:
                _read_each(source, range(first, last), findings)
                continue
            for field, column in zip(reader.fields, columns, strict=True):
                if not is_whole(field) and not (finite := np.isfinite(column)).all():
                    sample = first + int(np.argwhere(~finite)[0][0])
                    count, sample = not_finite.get(field.name, (0, sample))
                    not_finite[field.name] = count + int((~finite).sum()), sample
            bar.update(last * each)
    findings.notes += [
        f"{name}: values that are not finite: {count:,}, the first in sample {sample}"
        for name, (count, sample) in not_finite.items()
    ]
    findings.summary = f"{data.title}, {reader.samples:,} samples, " + amount_text(
        reader.samples * each
    )


def _read_each(source: _engine.Source, samples: range, findings: Findings) -> None:
    """Adds every sample that cannot be read. A batch reports only the first."""
    for sample in samples:
        try:
            source.read(np.array([sample]))
        except DataError as error:
            findings.add(error_text(error))


def _members(path: Path) -> list[zipfile.ZipInfo]:
    """Returns the members of an archive, or none if the archive is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return []


def _changed_members(path: Path) -> Iterator[str]:
    """Yields an error for each uncompressed member with a wrong checksum.

    The engine maps these members and does not check them.
    """
    with path.open("rb") as file:
        for member in _members(path):
            if member.compress_type != zipfile.ZIP_STORED:
                continue
            file.seek(member.header_offset)
            header = file.read(_LOCAL_HEADER)
            names = int.from_bytes(header[26:28], "little")
            extra = int.from_bytes(header[28:30], "little")
            start = member.header_offset + _LOCAL_HEADER + names + extra
            file.seek(start)
            crc, left = 0, member.file_size
            while left and (chunk := file.read(min(_CHUNK, left))):
                crc = zlib.crc32(chunk, crc)
                left -= len(chunk)
            if crc != member.CRC:
                yield _engine.error_text(
                    path=f"{path}[{member.filename}]",
                    offset=start,
                    expected=f"CRC {member.CRC:#010x} of {member.file_size} bytes",
                    found=f"{crc:#010x}",
                )
