"""Decoding token by token, from a cache of earlier tokens."""

from nas.costs.decoding.decoder import Decoder

__all__ = ["Decoder"]
