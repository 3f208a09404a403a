"""A model that holds memory of the stand-in device, for the tests of parking."""
import ctypes
import os
import threading
import time

import millrace_model
from millrace_model import handler, run

cuda = ctypes.CDLL("libcuda.so.1")
MB = 2**20
addresses = []
released = threading.Event()


def allocate(mb):
    address = ctypes.c_uint64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mb * MB))
    if code != 0:
        raise MemoryError(f"cuMemAlloc: {code}")
    addresses.append(address.value)


if cuda.cuInit(0) != 0:
    raise SystemExit("no device")
allocate(int(os.environ.get("TENANT_MB", "1024")))
weights = [index * 7 for index in range(1000)]

if os.environ.get("TENANT_HOOKS"):

    @millrace_model.on_park
    def park():
        if os.environ["TENANT_HOOKS"] == "broken":
            raise RuntimeError("cannot let go")
        mb = sum(addresses) // MB
        while addresses:
            cuda.cuMemFree_v2(ctypes.c_uint64(addresses.pop()))
        return None if os.environ["TENANT_HOOKS"] == "silent" else mb * MB

    @millrace_model.on_wake
    def wake():
        if os.environ["TENANT_HOOKS"] == "asleep":
            raise RuntimeError("cannot wake up")
        allocate(int(os.environ.get("TENANT_MB", "1024")))


@handler
def answer(input):
    return {"sum": sum(weights), "mb": sum(addresses) // MB, "pid": os.getpid()}


@handler
def touch(input):
    """A CUDA call: it waits while the process is suspended."""
    room, total = ctypes.c_size_t(), ctypes.c_size_t()
    return cuda.cuMemGetInfo_v2(ctypes.byref(room), ctypes.byref(total))


@handler
def compute(input):
    """Steps with a CUDA call each: it stands still while the process is suspended."""
    value = 1
    for step in range(input["steps"]):
        touch(None)
        value = (value * 31 + step) % 1_000_003
        time.sleep(input.get("ms", 2) / 1000)
    return {"value": value, "pid": os.getpid()}


@handler
def hold_kernel(input):
    """A kernel that never ends."""
    cuda.standInBusy(1)


@handler
def nap(input):
    time.sleep(input["ms"] / 1000)
    return input["ms"]


run()
