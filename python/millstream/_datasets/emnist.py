"""EMNIST: handwritten letters and digits in MNIST's format."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from millstream._core.public import public
from millstream._datasets.archive import extract_member
from millstream._datasets.base import cache_folder, check_choice, fetched
from millstream._datasets.download import RemoteFile
from millstream._datasets.idx import IdxDataset

SUBSETS = ("balanced", "byclass", "bymerge", "digits", "letters")
_ARCHIVE_NAMES = ("gzip.zip", "emnist_gzip.zip")
_ARCHIVE = RemoteFile(
    "gzip.zip",
    (
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
    ),
    folder="emnist",
    size=561753746,
    sha256="fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
)


@public
@dataclass(frozen=True)
class EMNISTDataset(IdxDataset):
    """EMNIST: handwritten characters in five subsets.

    ``subset`` is ``"balanced"`` (47 classes), ``"byclass"`` (62), ``"bymerge"`` (47),
    ``"digits"`` (10) or ``"letters"`` (26, whose labels count from 1). Samples are
    ``{"image": uint8[28, 28, 1], "label": int32}``. The files store transposed images;
    the samples are upright.

    ``cache_dir`` is by default ``~/.cache/emnist/{subset}``. It may contain the files
    under their published names, or as ``{split}_{images,labels}.gz``. Otherwise they
    are unpacked from the archive of all subsets, which is downloaded if it is missing.
    """

    subset: str = "balanced"
    split: str = "train"
    _: KW_ONLY
    cache_dir: str | Path | None = None

    _remote: ClassVar[dict[str, RemoteFile]] = {}
    _transposed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the arguments."""
        check_choice("subset", self.subset, SUBSETS)
        super().__post_init__()

    def _folder(self) -> Path:
        return cache_folder(self.cache_dir, f"emnist/{self.subset}")

    def _names(self, content: str) -> tuple[str, ...]:
        member, role = self._member(content), f"{self.split}_{content}"
        plain = member.removesuffix(".gz")
        return (member, plain, f"gzip/{member}", f"{role}.gz", role)

    def _member(self, content: str) -> str:
        kind = "images-idx3" if content == "images" else "labels-idx1"
        return f"emnist-{self.subset}-{self.split}-{kind}-ubyte.gz"

    def _fetch(self, content: str, target: Path) -> Path:
        is_own = self.cache_dir is not None
        shared = self._folder() if is_own else self._folder().parent
        places = [
            folder / name
            for folder in (shared, self._folder())
            for name in _ARCHIVE_NAMES
        ]
        archive = next((path for path in places if path.exists()), places[0])
        fetched(_ARCHIVE, archive, trusted=is_own)
        return extract_member(archive, self._member(content), target)
