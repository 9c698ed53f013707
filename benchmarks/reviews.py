"""Measure a bag-of-words baseline of text classification: TF-IDF and logistic regression.

It is scikit-learn with default settings, on all training texts at full length, with single words
and with pairs of words. Attention has to exceed its test accuracy to show a gain from word order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.figures import Figure, single
from nas.tasks.files import expanded
from nas.tasks.sequences.texts import TEST, TRAIN, read_folder

if TYPE_CHECKING:
    import argparse


def reviews(options: argparse.Namespace) -> list[Figure]:
    """Return accuracy on the whole test set, and core-seconds of fitting and evaluation."""
    path = expanded(options.data.removeprefix("textfolder:"))
    (_, train), (_, test) = (read_folder(path, part) for part in (TRAIN, TEST))
    figures = []
    for words, name in ((1, "words"), (2, "words and pairs")):
        start = time.process_time()
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, words)), LogisticRegression(max_iter=1000)
        )
        score = 100 * model.fit(*_columns(train)).score(*_columns(test))
        seconds = time.process_time() - start
        figures += [
            single(f"{name}: accuracy", score, "%"),
            single(f"{name}: time", seconds, "core-seconds"),
        ]
    return figures


def _columns(texts: list[tuple[str, int]]) -> tuple[list[str], list[int]]:
    return [text for text, _ in texts], [label for _, label in texts]
