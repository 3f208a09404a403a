"""A model of modules of a stand-in for PyTorch, whose storages count their bytes, for the tests of park_torch."""
import sys
import types

fake = types.ModuleType("torch")
held = {"gpu": 0, "pinned": 0}


class Device:
    def __init__(self, kind):
        self.type = kind


class Storage:
    made = 0

    def __init__(self, data, kind, resizable=True):
        Storage.made += 1
        self._address, self.kind, self.data = Storage.made, kind, bytearray(data)
        self._resizable = resizable
        self._count(len(data))

    def _count(self, change):
        if self.kind == "cuda":
            held["gpu"] += change

    def nbytes(self):
        return len(self.data)

    def data_ptr(self):
        return self._address if self.data else 0

    def resizable(self):
        return self._resizable

    def resize_(self, size):
        if not self._resizable:
            raise RuntimeError("Trying to resize storage that is not resizable")
        self._count(size - len(self.data))
        self.data = bytearray(size)


class Tensor:
    def __init__(self, storage):
        self._storage, self.device = storage, Device(storage.kind)

    def untyped_storage(self):
        return self._storage

    def set_(self, storage, offset, size, stride):
        assert (offset, size, stride) == (0, (storage.nbytes(),), (1,))
        self._storage = storage
        return self

    def copy_(self, other, non_blocking=False):
        source = other._storage.data
        assert len(source) == len(self._storage.data)
        self._storage.data[:] = source
        return self


def empty(size, dtype=None, device=None, pin_memory=False):
    if pin_memory:
        held["pinned"] += size
    return Tensor(Storage(bytes(size), device.type if device else "cpu"))


class no_grad:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


fake.empty, fake.uint8, fake.no_grad = empty, "uint8", no_grad
fake.cuda = types.SimpleNamespace(
    is_available=lambda: True, synchronize=lambda: None, empty_cache=lambda: None
)
sys.modules["torch"] = fake

from millrace_model import handler, park_torch, run  # noqa: E402


class Module:
    def __init__(self, parameters, buffers):
        self._parameters, self._buffers = parameters, buffers

    def parameters(self):
        return iter(self._parameters)

    def buffers(self):
        return iter(self._buffers)


weight = Tensor(Storage(b"weight" * 100, "cuda"))
tied = Tensor(weight.untyped_storage())
twin = Tensor(Storage(b"twin01" * 100, "cuda"))
buffer = Tensor(Storage(b"buffer", "cuda"))
foreign = Tensor(Storage(b"foreign", "cuda", resizable=False))
on_host = Tensor(Storage(b"host", "cpu"))
pipeline = types.SimpleNamespace(
    components={"unet": Module([weight, tied, twin], [buffer]), "scheduler": object()}
)
park_torch(pipeline, Module([], [foreign, on_host]), Tensor(Storage(b"single", "cuda")))


@handler
def contents(input):
    tensors = {"weight": weight, "tied": tied, "twin": twin, "buffer": buffer, "foreign": foreign}
    whole = {name: bytes(each.untyped_storage().data).decode() for name, each in tensors.items()}
    return {"contents": whole, **held}


run()
