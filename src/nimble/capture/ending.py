"""The end of a graph: what is handed out, as eager would, and what is written back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nimble.capture.draft import Draft
from nimble.capture.functional import Shown, Updates
from nimble.errors import CaptureError
from nimble.graph import Ref, Role, Task


def finish(
    draft: Draft,
    results: Sequence[int],
    roots: Mapping[str, int],
    *,
    strides: Sequence[tuple[int, ...] | None],
    assigned: Sequence[str],
    updates: Updates,
) -> tuple[int, ...]:
    """Write new contents into the roots that the model assigned or updated, and lay out what it
    returns. Of `results`, the first are the model's, with these `strides`; then come the new
    contents of `assigned`, then those of `updates`. Returns the outputs."""
    count = len(strides)
    ids, new = list(results[:count]), results[count:]
    replaced = {roots[buffer] for buffer in assigned}
    ids = [draft.copy(id) if draft.content(id).id in replaced else id for id in ids]
    # Assigned ones last: a buffer updated and then replaced holds what replaced it.
    order = [*new[len(assigned) :], *new[: len(assigned)]]
    written = dict(zip((*updates.names, *assigned), order, strict=True))
    versions = _write(draft, {roots[name]: id for name, id in written.items()})
    for i, shown in updates.shown.items():
        if i < count and roots[shown.argument] not in replaced:
            ids[i] = _show(draft, ids[i], shown, versions[roots[shown.argument]])
    ids = [_same_dtype(draft, id) for id in ids]
    alone = Counter(draft.content(id).id for id in ids)
    for i, (id, eager) in enumerate(zip(ids, strides, strict=True)):
        if eager is not None and alone[draft.content(id).id] == 1:
            ids[i] = _laid_out(draft, id, eager)
    _set_roles(draft, ids, versions)
    return tuple(ids)


def _write(draft: Draft, new: dict[int, int]) -> dict[int, int]:
    """Root → the version of it that holds what `new` has for it."""
    for root, id in new.items():
        _check_fit(draft, root, id)
    # Buffers may have changed places: what is overwritten is copied before.
    for root, id in new.items():
        if draft.content(id).id in new and id != root:
            new[root] = draft.copy(id)
    return {root: _update(draft, root, id) for root, id in new.items()}


def _check_fit(draft: Draft, root: int, new: int) -> None:
    now, was = draft.values[new], draft.values[root]
    if (now.shape, now.dtype) != (was.shape, was.dtype):
        raise CaptureError(
            f"the model replaces {was.name!r} of {was.type} by a tensor of {now.type}; a state "
            "keeps its shape and dtype"
        )
    if was.numel and any(n > 1 and s == 0 for n, s in zip(was.shape, was.strides, strict=True)):
        raise CaptureError(
            f"the model updates {was.name!r} in place, several elements of which share memory "
            "(made by expand, probably); give each its own with .contiguous()"
        )


def _update(draft: Draft, root: int, new: int) -> int:
    """A task that copies `new` into the memory of `root`; the version it writes."""
    old = draft.values[root]
    version = draft.add_like(root, name=f"{old.name}'", overwrites=root)
    # The destination is an argument too: the version is written where the root lies.
    draft.tasks.append(
        Task(
            name=f"update.{old.name}",
            op="aten.copy_.default",
            args=(Ref(root), Ref(new)),
            reads=(root, new),
            writes=(version,),
            results=(version,),
        )
    )
    return version


def _show(draft: Draft, id: int, shown: Shown, version: int) -> int:
    """A result that eager returns as a view of an updated root is a view of its new version."""
    of = draft.values[version]
    view: dict[str, Any] = {"role": of.role, "shape": shown.shape}
    view |= {"strides": shown.strides, "offset": shown.offset}
    alias = replace(draft.values[id], overwrites=None, **view)
    if replace(of, id=id, name=alias.name, overwrites=None) == replace(alias, base=None):
        return version
    return draft.add_like(id, overwrites=None, base=version, **view)


def _same_dtype(draft: Draft, id: int) -> int:
    """A copy, if an output shows memory that is not the engine's as another dtype: views that are
    handed out keep the dtype of what they view."""
    content = draft.content(id)
    if draft.values[id].dtype is content.dtype or content.role is Role.INTERMEDIATE:
        return id
    return draft.copy(id)


def _laid_out(draft: Draft, id: int, strides: tuple[int, ...]) -> int:
    """An output with eager's strides. One that others show too, or that is not the engine's, stays
    as it is."""
    value = draft.values[id]
    if value.strides == strides or draft.content(id).role is not Role.INTERMEDIATE:
        return id
    if any(v.base == id for v in draft.values) or value.base is not None:
        return draft.copy(id, strides)
    draft.values[id] = replace(value, strides=strides)
    return id


def _set_roles(draft: Draft, outputs: Iterable[int], versions: Mapping[int, int]) -> None:
    contents = [draft.content(id) for id in outputs]
    handed = {value.id for value in contents if value.role is Role.INTERMEDIATE}
    states = {r for r in versions if draft.values[r].role is Role.PARAMETER}
    states |= {versions[r] for r in states}
    for value in tuple(draft.values):
        content = draft.content(value.id).id
        if content in handed:
            draft.values[value.id] = replace(value, role=Role.OUTPUT)
        elif content in states:
            draft.values[value.id] = replace(value, role=Role.STATE)
