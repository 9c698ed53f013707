"""What words without their order tell of texts: TF-IDF and logistic regression, on a test part.

The usual baseline, by scikit-learn with its own settings: it reads whole texts, all training texts,
single words and pairs of them. What it reaches is what reading in order has to beat.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.figures import Figure
from nas.tasks.files import expanded
from nas.tasks.sequences.texts import TEST, TRAIN, read_folder

if TYPE_CHECKING:
    import argparse


def reviews(options: argparse.Namespace) -> list[Figure]:
    """Accuracy on the whole test part, and what reading and fitting took."""
    path = expanded(options.data.removeprefix("textfolder:"))
    (_, train), (_, test) = (read_folder(path, part) for part in (TRAIN, TEST))
    found = []
    for words, name in ((1, "words"), (2, "words and pairs")):
        began = time.process_time()
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, words)), LogisticRegression(max_iter=1000)
        )
        score = 100 * model.fit(*_columns(train)).score(*_columns(test))
        taken = time.process_time() - began
        found += [
            Figure(f"{name}: accuracy", score, "%", score, score),
            Figure(f"{name}: taken", taken, "core-seconds", taken, taken),
        ]
    return found


def _columns(texts: list[tuple[str, int]]) -> tuple[list[str], list[int]]:
    return [text for text, _ in texts], [label for _, label in texts]
