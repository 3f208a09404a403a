"""The model: a Python program that the worker starts once and calls for every job."""

from typing import Iterator

from millrace_model import Call, handler, run

# Load the model here, at the top of the file: the worker takes jobs when `run()` is called below.


@handler
def count_words(input: dict, call: Call) -> Iterator[dict]:
    """Each `yield` reaches the client at once, as a chunk."""
    for number, line in enumerate(input["text"].splitlines(), start=1):
        words = len(line.split())
        call.log("counted", line=number, words=words)
        call.add_metric("words", words)
        yield {"line": number, "words": words}


if __name__ == "__main__":
    run()
