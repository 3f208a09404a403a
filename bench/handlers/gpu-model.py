"""A model of MODEL_GB gigabytes on the GPU: PyTorch's layers, or without PyTorch plain memory of libcuda. PARK_BY: hooks, driver."""

import ctypes
import os
import time

from millrace_model import handler, on_park, on_wake, park_torch, run

BYTES = int(float(os.environ.get("MODEL_GB", "1")) * 2**30)
HOOKS = os.environ.get("PARK_BY") == "hooks"

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    SIDE = 4096
    generator = torch.Generator(device="cuda").manual_seed(1)
    layers = torch.nn.ParameterList(
        torch.nn.Parameter(
            torch.randint(-(2**31), 2**31 - 1, (SIDE, SIDE), generator=generator, device="cuda", dtype=torch.int32),
            requires_grad=False,
        )
        for _ in range(max(1, BYTES // (4 * SIDE * SIDE)))
    )
    if HOOKS:
        park_torch(layers)
    square = torch.ones(1024, 1024, device="cuda") / 1024

    def digest():
        """Depends on every bit of the model."""
        sums = [layer.sum(dtype=torch.int64) * (place + 1) for place, layer in enumerate(layers)]
        return int(torch.stack(sums).sum().item())

    def multiply(value):
        return value @ square

    def begin():
        return torch.ones(1024, 1024, device="cuda")

    def read(value):
        return float(value.sum().item())

else:
    cuda = ctypes.CDLL("libcuda.so.1")
    address = ctypes.c_uint64()

    def check(code):
        if code != 0:
            raise MemoryError(f"CUDA error {code}")

    def allocate():
        check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(BYTES)))
        check(cuda.cuMemsetD8_v2(address, ctypes.c_ubyte(0x5A), ctypes.c_size_t(BYTES)))

    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    allocate()

    if HOOKS:

        @on_park
        def park():
            check(cuda.cuMemFree_v2(address))
            return BYTES

        on_wake(allocate)

    def digest():
        sample = (ctypes.c_ubyte * 65_536)()
        check(cuda.cuMemcpyDtoH_v2(sample, address, ctypes.c_size_t(len(sample))))
        return sum(sample)

    def multiply(value):
        check(cuda.cuCtxSynchronize())
        return value + 1

    def begin():
        return 0

    def read(value):
        return float(value)


@handler
def work(input):
    return {"digest": digest(), "pid": os.getpid()}


@handler
def steps(input):
    """Many short kernels after each other, as a decode loop has them."""
    value = begin()
    for _ in range(input["count"]):
        value = multiply(value)
        time.sleep(input["pauseMs"] / 1000)
    return {"value": read(value), "pid": os.getpid()}


run()
