"""Serve a network at several batch sizes from one engine: a ladder, padded where a size is missing.

python examples/serve.py
"""

import torch

import nimble
from nimble import zoo

model, (image,) = zoo.build("mobilenet_v2@96")
engine = nimble.compile(model, (image,), shapes=[1, 4, 8], pad="batch", strict_shapes=True)

for requests in (1, 3, 8):
    batch = torch.randn(requests, *image.shape[1:])
    answers = engine(batch)  # three requests run on the plan for four
    assert torch.allclose(answers, model(batch), rtol=1e-3, atol=1e-4)
    print(f"{requests} requests -> {tuple(answers.shape)}")

print(engine.explain())
