"""The model process of the benchmarks: no model, so that only the way there and back takes time."""

from millrace_model import handler, run


@handler
def echo(input):
    return input


@handler
def count(input):
    for number in range(input["count"]):
        yield {"number": number}


run()
