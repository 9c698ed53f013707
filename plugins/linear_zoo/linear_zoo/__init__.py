"""Fifteen attention mechanisms of linear and hybrid language models, with their primitives."""
