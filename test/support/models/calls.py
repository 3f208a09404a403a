"""A model without a model: functions of every kind, for the tests of model processes."""
import asyncio
import builtins
import logging
import os
import signal
import sys
import threading
import time

from millrace_model import (
    Call,
    Cancelled,
    NonRetryableError,
    RetryAfterError,
    current_call,
    handler,
    run,
)

print("loading the model")


@handler
def echo(input):
    return input


@handler
def importer(input):
    return type(builtins.__import__).__name__


@handler
async def echo_async(input):
    await asyncio.sleep(0)
    return input


@handler
def types(input):
    """What the input consists of, as Python sees it."""
    return {key: type(value).__name__ for key, value in input.items()}


@handler
def double(input):
    view = input["data"]
    for index in range(len(view)):
        view[index] = view[index] * 2 % 256
    return {"data": view, "more": [b"", bytearray(b"abc")], "size": len(view)}


@handler
def count(input, call: Call):
    for number in range(input["to"]):
        call.add_metric("tokens", 2)
        call.set_metric("last", number)
        yield number
    if input.get("fail"):
        raise ValueError("failed after the last item")
    return input.get("result")


@handler
async def count_async(input, call: Call):
    for number in range(input["to"]):
        yield number


@handler
def large_items(input):
    for number in range(input["to"]):
        emitted["count"] = number + 1
        yield b"x" * input["bytes"]


emitted = {"count": 0}


@handler
def how_many(input):
    return emitted["count"]


@handler(batch=4)
def halves(inputs):
    return [ValueError(f"{each} is odd") if each % 2 else each // 2 for each in inputs]


@handler(batch=True)
def too_few(inputs):
    return inputs[1:]


@handler(batch=True)
def letters(inputs):
    for index, text in reversed(list(enumerate(inputs))):
        for letter in text:
            yield index, letter


@handler
def wait(input, call: Call):
    deadline = time.monotonic() + input["s"]
    while time.monotonic() < deadline:
        call.check()
        time.sleep(0.005)
    return "waited"


@handler
async def wait_async(input, call: Call):
    try:
        await asyncio.sleep(input["s"])
    except asyncio.CancelledError:
        notes.append(f"cancelled: {call.cancelled}")
        raise


notes = []


@handler
def take_notes(input):
    taken = list(notes)
    notes.clear()
    return taken


@handler
def endless(input):
    number = 0
    try:
        while True:
            yield number
            number += 1
    except Cancelled:
        notes.append("endless was cancelled")
        raise
    finally:
        notes.append("endless cleaned up")


@handler
def deaf(input, call: Call):
    """Leaves only when it is done, whatever the caller wants."""
    time.sleep(input["s"])


@handler
def block_in_native_code(input):
    """No other thread of this process runs meanwhile."""
    import ctypes

    ctypes.PyDLL(None).sleep(int(input["s"]))


@handler
def remaining(input, call: Call):
    return call.remaining()


@handler
def talk(input, call: Call):
    print("to stdout")
    os.write(2, "to stderr: é\n".encode())
    call.log("by the call", level="warn", size=3)
    logging.getLogger("library").info("by logging")
    call.progress({"done": 0.5})
    time.sleep(input.get("s", 0))


@handler
def whose(input):
    call = current_call()
    return {
        "call": call.name if call else None,
        "main": threading.current_thread() is threading.main_thread(),
    }


@handler
def fail(input):
    kinds = {
        "plain": KeyError("missing"),
        "never": NonRetryableError("hopeless"),
        "later": RetryAfterError(1500, "busy"),
        "uncounted": RetryAfterError(1500, "busy", counts=False),
        "silent": AssertionError(),
    }
    if input["kind"] == "group":
        no_weights = RuntimeError("no weights")
        no_weights.__cause__ = OSError("disk")
        raise ExceptionGroup("two models", [no_weights, MemoryError("no memory")])
    raise kinds[input["kind"]]


@handler
def not_json(input):
    return {"kind": {1, 2}} if input["kind"] == "set" else float("nan")


@handler
def large(input):
    return b"x" * input["bytes"]


ended = threading.Event()
end_call = Call._end


def end_and_tell(call, *frame):
    end_call(call, *frame)
    ended.set()


Call._end = end_and_tell


@handler
def die(input, call: Call):
    """Ends the process, with `after_end` right after the last frame of another call."""
    time.sleep(input.get("s", 0))
    if input.get("after_end"):
        ended.wait(60)
    print("about to die", file=sys.stderr)
    sys.stderr.flush()
    if input["how"] == "exit":
        os._exit(7)
    if input["how"] == "sys.exit":
        sys.exit(3)
    os.kill(os.getpid(), getattr(signal, input["how"]))
    time.sleep(60)


@handler
def pid(input):
    return os.getpid()


@handler
def write_raw(input):
    """Breaks the protocol."""
    os.write(int(input.get("fd", 3)), bytes(input["bytes"]))
    time.sleep(60)


@handler
def start_child(input):
    child = os.fork()
    if child == 0:
        time.sleep(600)
    return child


@handler
def environment(input):
    return {name: os.environ.get(name) for name in input}


if os.environ.get("FAIL_FILE") and os.path.exists(os.environ["FAIL_FILE"]):
    print("the weights are gone", file=sys.stderr)
    sys.exit(5)
if os.environ.get("LOAD_SECONDS"):
    time.sleep(float(os.environ["LOAD_SECONDS"]))
run()
print("ended in order")
