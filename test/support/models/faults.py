"""Functions that get in the way of the library, as real ones do: for the tests of model processes."""
import asyncio
import functools
import logging
import os
import signal
import subprocess
import sys
import time

from millrace_model import Call, handler, run


class SlowNumber:
    """Its conversion to JSON ends some time after the call was cancelled."""

    ndim = 0

    def __init__(self, call):
        self.call = call

    def item(self):
        self.call.log("encoding")
        while not self.call.cancelled:
            time.sleep(0.005)
        time.sleep(0.3)
        return 1


@handler
def echo(input):
    return input


@handler
async def slow_item(input, call: Call):
    yield "x" * 1000
    yield SlowNumber(call)


@handler
async def endless(input):
    while True:
        yield "x" * 1000


@handler
async def in_thread(input):
    return await asyncio.get_running_loop().run_in_executor(None, lambda: "done")


class Odd(Exception):
    def __str__(self):
        raise ValueError("no text")


@handler
def odd(input):
    raise Odd()


@handler
def long_error(input):
    raise ValueError("x" * input)


@handler
def fork_and_log(input):
    child = os.fork()
    if child == 0:
        for number in range(input["lines"]):
            logging.getLogger("fork").info("line %d", number)
        os._exit(0)
    try:
        return b"x" * input["bytes"]
    finally:
        children.append(child)


children = []


@handler
def wait_for_children(input):
    return [os.waitpid(child, 0)[1] for child in children]


@handler
def log_in_signals(input):
    signal.signal(signal.SIGALRM, lambda *_: logging.getLogger("alarm").info("tick"))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.02)
    return b"x" * input


@handler
def end_signals(input):
    signal.setitimer(signal.ITIMER_REAL, 0)


def decorate(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


@handler(batch=True)
@decorate
def reversed_pairs(inputs):
    for index in reversed(range(len(inputs))):
        yield index, inputs[index]


@handler
def start_helper(input):
    """It is in the group of this process."""
    return subprocess.Popen(["sleep", "600"]).pid


@handler
def start_daemon(input):
    """It holds the standard descriptors of this process, outside of its group."""
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid


context = {"lost": False}


@handler
def use_device(input):
    """As native code: once the context is lost, every later call fails."""
    if input.get("lose"):
        context["lost"] = True
    if context["lost"] and input.get("hide"):
        print("CUDA error: device-side assert triggered", file=sys.stderr, flush=True)
        raise ValueError("inference failed")
    if context["lost"]:
        raise RuntimeError("CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA")
    if "quote" in input:
        raise ValueError("no answer to: " + input["quote"])
    time.sleep(input.get("s", 0))
    return os.getpid()


@handler(batch=True)
def use_device_each(inputs):
    return [RuntimeError("CUDA error: device-side assert triggered") if each else 1 for each in inputs]


@handler
def print_line(input):
    print(input["line"], file=sys.stderr, flush=True)
    return os.getpid()


run()
if os.environ.get("EXIT_SECONDS"):
    time.sleep(float(os.environ["EXIT_SECONDS"]))
