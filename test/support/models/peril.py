"""The model of the runs in which model processes are killed: each job has an output of its own."""
import os
import time

from millrace_model import handler, run


@handler
def numbers(input):
    for item in range(10):
        time.sleep(0.003)
        yield [input["n"], item]


@handler
def echo(input):
    time.sleep(0.01)
    if input["do"] == "die":
        os._exit(9)
    return {"n": input["n"]}


run()
