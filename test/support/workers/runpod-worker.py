# A worker of the real runpod-python, if this machine has it: streams numbers, and returns all of them too.
import asyncio

import runpod


async def handler(job):
    n = job["input"]["n"]
    for index in range(job["input"]["count"]):
        await asyncio.sleep(0.005)
        yield {"n": n, "index": index}


runpod.serverless.start(
    {
        "handler": handler,
        "return_aggregate_stream": True,
        "concurrency_modifier": lambda _: 3,
    }
)
