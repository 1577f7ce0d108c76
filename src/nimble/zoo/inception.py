"""Inception-v3 (Szegedy et al., 2016), without the auxiliary classifier."""

from __future__ import annotations

from functools import partial

from torch import nn

from nimble.zoo.blocks import Fork, classifier, conv_norm

conv = partial(conv_norm, eps=1e-3)


def inception_v3() -> nn.Sequential:
    return nn.Sequential(
        conv(3, 32, 3, 2, padding=0),
        conv(32, 32, 3, padding=0),
        conv(32, 64, 3),
        nn.MaxPool2d(3, 2),
        conv(64, 80),
        conv(80, 192, 3, padding=0),
        nn.MaxPool2d(3, 2),
        _five_by_five(192, 32),
        _five_by_five(256, 64),
        _five_by_five(288, 64),
        _reduce_to_17(288),
        *[_seven_by_seven(768, width) for width in (128, 160, 160, 192)],
        _reduce_to_8(768),
        _widest(1280),
        _widest(2048),
        classifier(2048, dropout=0.5),
    )


def _pooled(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(inputs, outputs))


def _five_by_five(inputs: int, pool: int) -> Fork:
    return Fork(
        conv(inputs, 64),
        nn.Sequential(conv(inputs, 48), conv(48, 64, 5)),
        nn.Sequential(conv(inputs, 64), conv(64, 96, 3), conv(96, 96, 3)),
        _pooled(inputs, pool),
    )


def _reduce_to_17(inputs: int) -> Fork:
    return Fork(
        conv(inputs, 384, 3, 2, padding=0),
        nn.Sequential(conv(inputs, 64), conv(64, 96, 3), conv(96, 96, 3, 2, padding=0)),
        nn.MaxPool2d(3, 2),
    )


def _seven_by_seven(inputs: int, width: int) -> Fork:
    return Fork(
        conv(inputs, 192),
        nn.Sequential(conv(inputs, width), conv(width, width, (1, 7)), conv(width, 192, (7, 1))),
        nn.Sequential(
            conv(inputs, width),
            conv(width, width, (7, 1)),
            conv(width, width, (1, 7)),
            conv(width, width, (7, 1)),
            conv(width, 192, (1, 7)),
        ),
        _pooled(inputs, 192),
    )


def _reduce_to_8(inputs: int) -> Fork:
    return Fork(
        nn.Sequential(conv(inputs, 192), conv(192, 320, 3, 2, padding=0)),
        nn.Sequential(
            conv(inputs, 192),
            conv(192, 192, (1, 7)),
            conv(192, 192, (7, 1)),
            conv(192, 192, 3, 2, padding=0),
        ),
        nn.MaxPool2d(3, 2),
    )


def _widest(inputs: int) -> Fork:
    return Fork(
        conv(inputs, 320),
        nn.Sequential(conv(inputs, 384), _cross()),
        nn.Sequential(conv(inputs, 448), conv(448, 384, 3), _cross()),
        _pooled(inputs, 192),
    )


def _cross() -> Fork:
    return Fork(conv(384, 384, (1, 3)), conv(384, 384, (3, 1)))
