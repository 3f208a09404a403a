"""A small model on numpy: letters that follow each other, and embeddings of texts.

It stands for a real one. The worker starts this program once and calls its functions for each job.
"""

import time
from typing import Iterator, List

import numpy as np

from millrace_model import Call, NonRetryableError, handler, run

LETTERS = "abcdefghijklmnopqrstuvwxyz "
CORPUS = (
    "the quick brown fox jumps over the lazy dog while the river turns the wheel of the mill "
    "and the miller grinds the grain that the farmers bring in the morning "
)
DIMENSIONS = 8


def count_pairs(text: str) -> np.ndarray:
    """How often each letter follows each other one."""
    pairs = np.zeros((len(LETTERS), len(LETTERS)), dtype=np.float32)
    indices = [LETTERS.index(letter) for letter in text]
    np.add.at(pairs, (indices[:-1], indices[1:]), 1)
    return pairs


# Everything at the top of the file runs once, before the process reports that it is ready.
pairs = count_pairs(CORPUS)
# A real model has learned its weights.
weights = np.cos(np.arange(256 * DIMENSIONS, dtype=np.float32)).reshape(256, DIMENSIONS)


@handler
def generate(input: dict, call: Call) -> Iterator[str]:
    """Continues a text letter by letter: each `yield` reaches the client at once."""
    prompt = input["prompt"].lower()
    if not prompt or any(letter not in LETTERS for letter in prompt):
        raise NonRetryableError("prompt must consist of letters and spaces")
    left = pairs.copy()
    letter = LETTERS.index(prompt[-1])
    for _ in range(input["letters"]):
        following = int(left[letter].argmax())
        # Rarer the next time, so that the text does not go in circles.
        left[letter, following] *= 0.5
        letter = following
        # As long as a larger model would take.
        time.sleep(input["pauseMs"] / 1000)
        call.add_metric("letters", 1)
        yield LETTERS[letter]


@handler(batch=32)
def embed(inputs: List[dict]) -> List[np.ndarray]:
    """One matrix product for the whole batch, whatever its size."""
    counts = np.zeros((len(inputs), 256), dtype=np.float32)
    for row, input in enumerate(inputs):
        # `bytes` of the handler arrive as a memoryview: numpy wraps them without a copy.
        letters = np.frombuffer(input["text"], dtype=np.uint8)
        counts[row] = np.bincount(letters, minlength=256)
    embeddings = counts @ weights
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return list(embeddings)


if __name__ == "__main__":
    run()
