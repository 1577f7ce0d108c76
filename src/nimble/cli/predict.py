"""`nimble predict`: what a model would take on a GPU that is not here."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch.utils._pytree import tree_map_only

from nimble import zoo
from nimble.bench.training import OPTIMIZERS, goal, loss
from nimble.cli.console import check_writable, err, or_exit, out
from nimble.devices.sim import find_gpu, find_host, gpu_names, host_names, published_error
from nimble.errors import InputError
from nimble.foresee import Foreseen, Subject, capture_call, capture_step, foresee, page
from nimble.foresee.page import error_line, ways
from nimble.targets import Made, check_target, make


def predict_command(
    model: Annotated[
        str, typer.Argument(help="a network's name, module:factory or file.py:factory")
    ],
    gpu: Annotated[
        str, typer.Option(help=f"of {', '.join(gpu_names())}; or a file.toml of your own")
    ] = "v100",
    host: Annotated[
        str, typer.Option(help=f"whose eager PyTorch is predicted: {', '.join(host_names())}")
    ] = "recent",
    train: Annotated[
        str | None, typer.Option(help=f"a training step with one of {', '.join(OPTIMIZERS)}")
    ] = None,
    streams: Annotated[int | None, typer.Option(help="the most streams to use")] = None,
    memory_limit: Annotated[int | None, typer.Option(help="bytes the arena may take")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page with the streams")] = None,
) -> None:
    """Predict a model on a GPU: eager, one stream, several. Needs no GPU, and measures nothing."""
    if html is not None:
        or_exit(partial(check_writable, html))
    found = or_exit(lambda: (find_gpu(gpu), find_host(host)))
    with err.status(f"capturing {model}"):
        subject = or_exit(lambda: _captured(model, train))
    with err.status("predicting"):
        seen = or_exit(lambda: foresee(subject, *found, streams=streams, memory_limit=memory_limit))
    out.print(f"[bold]{subject.name}[/bold] on {found[0].name}: a prediction, nothing was measured")
    out.print(_table(seen))
    out.print(
        f"longest chain of tasks {seen.single.critical_path_ns / 1e6:.3f} ms; the arithmetic or "
        f"the bytes of all of them at least {seen.single.work_ns / 1e6:.3f} ms",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    out.print(f"[bold]{seen.verdict}[/bold]", highlight=False, soft_wrap=True)
    out.print(error_line(published_error()), highlight=False, soft_wrap=True)
    if html is not None:
        html.write_text(page(seen))
        typer.echo(f"page written to {html}")


def _captured(name: str, train: str | None) -> Subject:
    made = _made(name)
    if train is None:
        return capture_call(made.model, made.args, made.kwargs, name)
    if train not in OPTIMIZERS:
        raise InputError(f"--train {train}: expected one of {', '.join(OPTIMIZERS)}")
    if not isinstance(made.model, torch.nn.Module) or made.kwargs:
        raise InputError(f"{name}: only a module with positional arguments can be trained here")
    network = made.model.train()
    target = goal(_shapes(network, made.args))
    optimizer = OPTIMIZERS[train](network.parameters())
    batch = (*made.args, target)
    return capture_step(network, loss, optimizer, batch, f"{name} with {train}")


def _shapes(network: torch.nn.Module, args: tuple[Any, ...]) -> Any:
    """What a network gives, without its contents."""
    copied = deepcopy(network).to("meta")
    on_meta = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), args)
    with torch.no_grad():
        return copied(*on_meta)


def _made(name: str) -> Made:
    check_target(name)
    if ":" in name:
        return make(name)
    model, inputs = zoo.untrained(name)
    return Made(name, model, inputs, {})


def _table(seen: Foreseen) -> Table:
    table = Table(box=None, header_style="bold")
    for column in ("", "ms", "x eager", "x one stream", "streams", "GPU idle", "activations MB",
                   "weights MB"):  # fmt: skip
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, found in ways(seen):
        table.add_row(
            name, f"{found.ms:.3f}", f"{seen.eager.ns / found.ns:.2f}",
            f"{seen.single.ns / found.ns:.2f}", str(len(found.streams)), f"{found.idle:.0%}",
            f"{found.arena_bytes / 1e6:.2f}", f"{found.weights_bytes / 1e6:.1f}",
        )  # fmt: skip
    return table
