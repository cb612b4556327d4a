"""Wrong pytrees of shardings. test_sharding.py runs it in a process."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import pytest
import worker_functions as fns
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from meshes import BATCH, SIZES, loader_of, mesh_of, rows, samples, shardings


def fails(given: Any, match: str, kind: type[Exception] = ValueError) -> None:
    source = ms.ArraySampleSource(samples())
    with pytest.raises(kind, match=match):
        loader_of(source, given)


def test_rows_that_are_split_in_different_ways() -> None:
    for label in (P("model"), P(("data", "model")), P(), P(None, "data")):
        fails(
            shardings({"label": label, "tokens": P("data", "model")}),
            r"\['label'\] has P\(.*\) and \['tokens'\] has P\('data', 'model'\)\. Use "
            "the same first entry in both",
        )


def test_different_meshes() -> None:
    turned = Mesh(mesh_of(SIZES).devices[::-1], tuple(SIZES))
    for mesh in (mesh_of({"data": 2, "model": 2}), turned, mesh_of({"data": 8})):
        given = {**shardings(), "tokens": NamedSharding(mesh, P("data"))}
        fails(given, r"same mesh, but \['label'\] has Mesh.*\['tokens'\] has Mesh")


def test_structures_that_do_not_fit() -> None:
    tokens, label = shardings()["tokens"], shardings()["label"]
    fails({"tokens": tokens}, r": \['label'\] has no sharding\. Pass one .*'label': \*")
    fails({"tokens": tokens, "label": None}, r"\['label'\] has no sharding")
    fails(
        {"tokens": tokens, "label": label, "other": label},
        r": the batch has no array \['other'\]\.",
    )
    fails(
        {"tokens": tokens, "labels": label},
        r"\['label'\] has no sharding; the batch has no array \['labels'\]",
    )
    fails({"tokens": [tokens], "label": label}, r"no array \['tokens'\]\[0\]")
    fails([tokens, label], r"\['label'\] has no sharding.*no array \[0\]")
    pair = ms.ArraySampleSource(tuple(samples().values()))
    with pytest.raises(
        ValueError, match=r"batch: found PyTreeDef\(\[\*, \*\]\)\. Pass"
    ):
        loader_of(pair, [tokens, label])
    single = ms.ArraySampleSource(samples()["tokens"])
    with pytest.raises(
        ValueError, match=r"which is one array\. Pass one NamedSharding"
    ):
        loader_of(single, {"tokens": tokens})
    batch = ms.BatchTransform(BATCH)
    wider = lambda x, mask: {"pair": x["tokens"], "twice": x["tokens"] * 2}  # noqa: E731
    traced = [ms.ArraySampleSource(samples()), batch, ms.MapTransform(wider)]
    with pytest.raises(
        ValueError, match=r"\['pair'\] has no sharding; .*no array \['l"
    ):
        ms.DataLoader([*traced, ms.DevicePutTransform(shardings())])


def test_arrays_that_do_not_fit() -> None:
    fails(
        shardings({"tokens": P("data"), "label": P("data", "model")}),
        r"at least 2 axes, but \['label'\] has the shape \[16\]\. Use a spec",
    )
    narrow = ms.ArraySampleSource({**samples(), "tokens": samples()["tokens"][:, :6]})
    with pytest.raises(
        ValueError, match=r"axis 1 of \['tokens'\] has length 6.*'model"
    ):
        loader_of(narrow, shardings())
    put = ms.DevicePutTransform(shardings())
    source = ms.ArraySampleSource(samples())
    with pytest.raises(ValueError, match="after BatchTransform"):
        ms.DataLoader([source, put, ms.BatchTransform(BATCH)])
    with pytest.raises(ValueError, match=r"batch of 15 samples .* 2 shards"):
        ms.DataLoader([source, ms.BatchTransform(15), put])
    partial = ms.BatchTransform(BATCH, remainder="partial")
    with pytest.raises(ValueError, match=r"'partial'.*sharding"):
        ms.DataLoader([source, partial, put])


def test_leaves_that_are_no_shardings() -> None:
    label = shardings()["label"]
    mesh = mesh_of(SIZES)
    fails(
        {"label": label, "tokens": P("data", "model")},
        r"\['tokens'\]: expected a sharding, found P\('data', 'model'\)\. Pass .*"
        r"NamedSharding\(mesh, P\('data', 'model'\)\)",
        TypeError,
    )
    fails({"label": mesh}, r"\['label'\]: expected a sharding, found Mesh", TypeError)
    single = SingleDeviceSharding(jax.devices()[0])
    for leaf in (
        jax.devices()[0],
        "cpu",
        3,
        single,
        NamedSharding(mesh.abstract_mesh, P()),
    ):
        fails(
            {"label": label, "tokens": leaf},
            r"\['tokens'\]: expected a NamedSharding over a Mesh, found",
            TypeError,
        )
    fails(
        {"label": label, "tokens": NamedSharding(mesh, P("data", P.UNCONSTRAINED))},
        r"\['tokens'\]: P\(.*leaves an axis unconstrained",
    )
    fails(
        {"label": label, "tokens": label.with_memory_kind("unpinned_host")},
        r"\['tokens'\]: jit does not preserve memory_kind='unpinned_host'",
    )
    for empty in ({}, (), {"tokens": None}):
        fails(empty, "has no shardings. Pass one for each array")


def test_stages_of_the_engine_that_change_the_structure() -> None:
    source, put = ms.ArraySampleSource(samples()), ms.DevicePutTransform(shardings())
    renamed = ms.RenameTransform({"label": "target"})
    mapped = ms.PythonMapTransform(fns.doubled)
    for stage in (renamed, mapped):
        with pytest.raises(
            ValueError,
            match=r"^stage 3, \w+, changes .*DevicePutTransform after stage 3",
        ):
            ms.DataLoader([source, ms.BatchTransform(BATCH), put, stage])
    ms.DataLoader(
        [source, ms.BatchTransform(BATCH), ms.DevicePutTransform(rows()), renamed]
    )
