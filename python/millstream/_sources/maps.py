"""Finds the files that are mapped into the memory of this process."""

from __future__ import annotations

import os
from typing import NamedTuple


class FileMap(NamedTuple):
    """A range of addresses that is mapped from a file."""

    begin: int
    end: int
    offset: int  # of ``begin`` in the file
    mode: str  # such as "r--s"
    inode: int
    path: str

    def can_reopen(self) -> bool:
        """Whether the path still names the file, and the file has the same bytes.

        A private map that was written to has bytes of its own.
        """
        if "w" in self.mode and "p" in self.mode:
            return False
        try:
            found = os.stat(self.path).st_ino
        except OSError:
            return False
        return found == self.inode and os.access(self.path, os.R_OK)


def file_maps() -> list[FileMap]:
    """Returns all file maps of this process, in the order of their addresses."""
    maps = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            addresses, mode, offset, _, inode, *path = line.rstrip("\n").split(None, 5)
            if inode == "0" or path[0].startswith("/dev/zero"):  # anonymous memory
                continue
            begin, end = (int(address, 16) for address in addresses.split("-"))
            maps.append(FileMap(begin, end, int(offset, 16), mode, int(inode), path[0]))
    return maps
