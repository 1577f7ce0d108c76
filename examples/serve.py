"""Serves a model over HTTP: compiled once for a ladder of batch sizes, replayed for every request.

    python examples/serve.py resnet50
    python examples/serve.py transformers:BertForSequenceClassification

Requests that arrive together are answered by one replay. They are padded up to the next rung of the
ladder, so that no batch size is ever compiled while somebody waits.

    curl -s localhost:8000 -d '[[[[0.1, ...]]]]'
"""

from __future__ import annotations

import argparse
import json
import queue
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from torch import Tensor, nn

import nimble
from nimble import zoo

LADDER = (1, 2, 4, 8)


class Batcher:
    """Gathers what waits in a queue into batches, and answers every batch with one replay."""

    def __init__(self, engine: nimble.Engine, example: Tensor) -> None:
        self.engine = engine
        self.example = example
        self.waiting: queue.Queue[tuple[Tensor, Future[Tensor]]] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def answer(self, row: Tensor) -> Tensor:
        future: Future[Tensor] = Future()
        self.waiting.put((row, future))
        return future.result()

    def _run(self) -> None:
        while True:
            batch = [self.waiting.get()]
            while len(batch) < LADDER[-1] and not self.waiting.empty():
                batch.append(self.waiting.get())
            try:
                rows = self._replay([row for row, _ in batch])
            except nimble.NimbleError as error:
                for _, future in batch:
                    future.set_exception(error)
                continue
            for (_, future), row in zip(batch, rows, strict=True):
                future.set_result(row)

    def _replay(self, rows: list[Tensor]) -> list[Tensor]:
        size = next(rung for rung in LADDER if rung >= len(rows))
        padded = torch.stack([*rows, *[torch.zeros_like(rows[0])] * (size - len(rows))])
        output = self.engine(padded)
        logits = output if isinstance(output, Tensor) else output[0]
        return list(logits[: len(rows)])


def load(name: str) -> tuple[nn.Module, Tensor]:
    """A network of the zoo, or a model of transformers in its default configuration."""
    package, _, model = name.partition(":")
    if package != "transformers":
        network, (example,) = zoo.build(name)
        return network, example
    import transformers

    cls = getattr(transformers, model)
    network = cls(cls.config_class(return_dict=False)).eval()
    return network, torch.randint(network.config.vocab_size, (1, 128))


def handler(batcher: Batcher) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            row = torch.tensor(json.loads(body), dtype=batcher.example.dtype)
            expected = batcher.example.shape[1:]
            if row.shape != expected:
                self._reply(400, {"error": f"expected {list(expected)}, came {list(row.shape)}"})
                return
            self._reply(200, {"output": batcher.answer(row).tolist()})

        def _reply(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a name of nimble.zoo, or transformers:<class>")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()

    model, example = load(arguments.model)
    shapes = [((size, *example.shape[1:]),) for size in LADDER]
    engine = nimble.compile(model, (example,), shapes=shapes)
    print(engine.explain())
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), handler(Batcher(engine, example)))
    print(f"serving {arguments.model} on http://127.0.0.1:{arguments.port}")
    server.serve_forever()


if __name__ == "__main__":
    main()
