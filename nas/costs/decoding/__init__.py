"""Decoding: a block continued token by token from what it keeps of earlier tokens."""

from nas.costs.decoding.decoder import Decoder

__all__ = ["Decoder"]
