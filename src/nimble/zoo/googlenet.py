"""GoogLeNet (Szegedy et al., 2015) with batch norm, without the auxiliary classifiers.

As in the weights that are in common use, the branch that is 5×5 in the paper is 3×3.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from nimble.zoo.blocks import Fork, classifier, conv_norm

conv = partial(conv_norm, eps=1e-3)


def googlenet() -> nn.Sequential:
    return nn.Sequential(
        conv(3, 64, 7, 2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        conv(64, 64),
        conv(64, 192, 3),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        _inception(192, 64, (96, 128), (16, 32), 32),
        _inception(256, 128, (128, 192), (32, 96), 64),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        _inception(480, 192, (96, 208), (16, 48), 64),
        _inception(512, 160, (112, 224), (24, 64), 64),
        _inception(512, 128, (128, 256), (24, 64), 64),
        _inception(512, 112, (144, 288), (32, 64), 64),
        _inception(528, 256, (160, 320), (32, 128), 128),
        nn.MaxPool2d(2, 2, ceil_mode=True),
        _inception(832, 256, (160, 320), (32, 128), 128),
        _inception(832, 384, (192, 384), (48, 128), 128),
        classifier(1024, dropout=0.2),
    )


def _inception(
    inputs: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int
) -> Fork:
    return Fork(
        conv(inputs, one),
        nn.Sequential(conv(inputs, three[0]), conv(*three, 3)),
        nn.Sequential(conv(inputs, five[0]), conv(*five, 3)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), conv(inputs, pool)),
    )
