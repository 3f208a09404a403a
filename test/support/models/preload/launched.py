"""A model process that says how it was started."""

import json
import os
import random
import sys

import quiet

from millrace_model import handler, run


def read_status(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1])


class Pickled:
    pass


@handler
def describe(input):
    import pickle

    return {
        "argv": sys.argv,
        "cwd": os.getcwd(),
        "main": pickle.loads(pickle.dumps(Pickled)).__module__ + " " + sys.modules["__main__"].__file__,
        "path": sys.path[0],
        "own": os.environ.get("OWN"),
        "group": os.getpgid(0) == os.getpid(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": read_status("Threads"),
        "forked": quiet.imported_by != os.getpid(),
        "parent": os.getppid(),
        "random": random.random(),
    }


@handler
def multiply(input):
    import numpy

    size = input["size"]
    product = numpy.ones((size, size)) @ numpy.ones((size, size))
    return {"value": float(product[0][0]), "random": float(numpy.random.rand())}


@handler
def leave(input):
    print("it leaves", file=sys.stderr)
    sys.exit(7)


@handler
def crash(input):
    print(f"printed {input}")
    os.abort()


if "--fail" in sys.argv and quiet.imported_by != os.getpid():
    raise ValueError("no weights")
if __name__ == "__main__":
    print(json.dumps(["started", quiet.imported_by != os.getpid()]))
    run()
    print("cleaned up", flush=True)
