"""Finds the files that are mapped into the memory of this process."""

from __future__ import annotations

import os
from typing import NamedTuple


class FileMap(NamedTuple):
    """A range of addresses that is mapped from a file."""

    begin: int
    end: int
    offset: int  # of ``begin`` in the file
    device: str
    inode: int
    path: str

    def can_reopen(self) -> bool:
        """Whether the path still names the file that is mapped."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        major, minor = (int(number, 16) for number in self.device.split(":"))
        there = os.major(status.st_dev), os.minor(status.st_dev), status.st_ino
        return there == (major, minor, self.inode) and os.access(self.path, os.R_OK)


def file_maps() -> list[FileMap]:
    """Returns all file maps of this process, in the order of their addresses."""
    maps = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            addresses, _, offset, device, inode, *path = line.rstrip("\n").split(
                None, 5
            )
            if inode == "0" or path[0].startswith("/dev/zero"):  # anonymous memory
                continue
            begin, end = (int(address, 16) for address in addresses.split("-"))
            maps.append(
                FileMap(begin, end, int(offset, 16), device, int(inode), path[0])
            )
    return maps
