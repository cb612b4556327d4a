"""The interface of the Hydrax library, implemented by Millstream.

To switch from Hydrax, change the import and keep your code.

Importing this package does not import jax. A module that defines a loader function can
therefore import it in a worker process. docs/hydrax.md lists the differences from
Hydrax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream._core.lazy import lazy

if TYPE_CHECKING:
    from millstream.hydrax._batch import Batch as Batch
    from millstream.hydrax._batch import TrainingBatch as TrainingBatch
    from millstream.hydrax._batch import ValidationBatch as ValidationBatch
    from millstream.hydrax._groups import DataGroup as DataGroup
    from millstream.hydrax._layout import ArrayLayout as ArrayLayout
    from millstream.hydrax._layout import ArraySpec as ArraySpec
    from millstream.hydrax._loader import Dataloader as Dataloader
    from millstream.hydrax._place import PlacementFunc as PlacementFunc
    from millstream.hydrax._run import BatchTimeoutError as BatchTimeoutError
    from millstream.hydrax._run import debug_batch_references as debug_batch_references
    from millstream.hydrax._work import LoaderFunc as LoaderFunc
    from millstream.hydrax._work import StartupFunc as StartupFunc
    from millstream.hydrax._work import is_worker as is_worker

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy()
