"""Suspends and resumes the CUDA part of another process of the same user: its memory moves from the GPU to the host.

    python3 millrace_park.py

Reads one JSON request a line on standard input and writes one JSON answer a line on standard output, in order. It ends when
its standard input is closed. Every answer has the `id` of its request and `ok`; with `ok: false` it has `reason`.

    {"id": 1, "do": "probe"}                     can this machine do it, and by what
    {"id": 2, "do": "memory", "device": UUID}    total and used bytes of a device
    {"id": 3, "do": "park", "group": ID, "device": UUID, "lockMs": 10000}
                                                 suspends the processes of a process group that use CUDA
    {"id": 4, "do": "wake", "pids": [..], "bytes": N, "device": UUID}
                                                 resumes them, if N bytes are free; without room a resume would destroy them

Without a device it is the only one that CUDA shows. Nothing is suspended whose room could not be checked at the wake.

    python3 millrace_park.py hold BYTES

Holds memory of the GPU for a trial: says `held`, and for each line on standard input whether the memory is the `same`.

It calls `cuCheckpointProcess…` of libcuda (driver 570 or newer), or the program cuda-checkpoint if libcuda lacks them.
One file, no dependencies, Python 3.9 or newer. Millrace starts it; it is not for your program.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from typing import Any, Callable, Dict, List, Optional, Tuple

_MIN_DRIVER = 570
_RUNNING, _LOCKED, _CHECKPOINTED = 0, 1, 2
_STATES = ("running", "locked", "checkpointed", "failed")
_REFUSED = 304
_ERRORS = {
    1: "the process does not use CUDA",
    2: "out of memory",
    100: "no GPU",
    304: "the driver refuses: a process of another user, or one that a failed resume destroyed",
    401: "the process is in another state",
    600: "the time is over: a kernel still runs",
    700: "the process has lost its context",
    801: "not supported, as with managed memory",
}
# A copy to pageable memory was measured at 1.6 GB/s: 100 GB take about a minute.
_PROGRAM_LIMIT_S = 600


class _Refusal(Exception):
    """`fields`: more members of the answer."""

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.fields = fields


class _Library:
    """The calls of libcuda."""

    name = "libcuda"

    def __init__(self) -> None:
        self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        # Raises AttributeError: the driver is too old.
        self._cuda.cuCheckpointProcessRestore
        code = self._cuda.cuInit(0)
        if code != 0:
            raise OSError(f"cuInit failed with {code}: {_ERRORS.get(code, 'see CUDA')}")
        count = ctypes.c_int(0)
        self._cuda.cuDeviceGetCount(ctypes.byref(count))
        self.devices = count.value

    def device(self) -> List[str]:
        """Names that NVML may have for the first device: CUDA does not say whether it is a GPU or a part of one."""
        device, number = ctypes.c_int(0), (ctypes.c_ubyte * 16)()
        if self._cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
            return []
        # The first version has the number of the whole GPU also for its part.
        read = getattr(self._cuda, "cuDeviceGetUuid_v2", None)
        if read is None or read(number, device) != 0:
            return []
        return [f"{kind}-{uuid.UUID(bytes=bytes(number))}" for kind in ("GPU", "MIG")]

    def state(self, pid: int) -> Optional[int]:
        value = ctypes.c_int(-1)
        code = self._cuda.cuCheckpointProcessGetState(pid, ctypes.byref(value))
        return value.value if code == 0 else None

    def uses(self, pid: int) -> bool:
        value = ctypes.c_int(-1)
        code = self._cuda.cuCheckpointProcessGetState(pid, ctypes.byref(value))
        if code == _REFUSED:
            raise _Refusal(_explain("state", pid, code), step="state", code=code, isUndone=True)
        return bool(code == 0)

    def call(self, step: str, pid: int, lock_ms: int = 0) -> int:
        # The arguments of all calls are structures of 64 bytes, zero but for the timeout of the lock.
        arguments = (ctypes.c_char * 256)()
        if step == "lock":
            ctypes.cast(arguments, ctypes.POINTER(ctypes.c_uint))[0] = lock_ms
        function = getattr(self._cuda, f"cuCheckpointProcess{step.capitalize()}")
        return int(function(pid, arguments))


class _Program:
    """NVIDIA's program cuda-checkpoint."""

    name = "cuda-checkpoint"
    devices: Optional[int] = None

    def __init__(self, path: str) -> None:
        self._path = path

    def device(self) -> List[str]:
        return []

    def _run(self, *arguments: str) -> Tuple[int, str]:
        try:
            ended = subprocess.run(
                [self._path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_PROGRAM_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return -1, ""
        return ended.returncode, ended.stdout.decode(errors="replace").strip()

    def state(self, pid: int) -> Optional[int]:
        code, text = self._run("--get-state", "--pid", str(pid))
        return _STATES.index(text) if code == 0 and text in _STATES else None

    def uses(self, pid: int) -> bool:
        return self.state(pid) is not None

    def call(self, step: str, pid: int, lock_ms: int = 0) -> int:
        more = ["--timeout", str(lock_ms)] if step == "lock" else []
        return self._run("--action", step, "--pid", str(pid), *more)[0]


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _ProcessInfo(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Figures:
    """Memory of a device by NVML, which needs no context and so no memory of the device."""

    def __init__(self) -> None:
        self._nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
        if self._nvml.nvmlInit_v2() != 0:
            raise OSError("nvmlInit failed")

    def driver(self) -> str:
        text = ctypes.create_string_buffer(96)
        code = self._nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text)))
        return text.value.decode() if code == 0 else ""

    def _device(self, uuid: str) -> Any:
        device, name = ctypes.c_void_p(), uuid.encode()
        code = self._nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(device))
        if code != 0:
            raise _Refusal(f"NVML does not find {uuid}: error {code}")
        return device

    def memory(self, uuid: str) -> Tuple[int, int]:
        found = _Memory()
        code = self._nvml.nvmlDeviceGetMemoryInfo(self._device(uuid), ctypes.byref(found))
        if code != 0:
            raise _Refusal(f"NVML does not tell the memory of {uuid}: error {code}")
        return int(found.total), int(found.used)

    def of_processes(self, uuid: str, pids: List[int]) -> Optional[int]:
        """Bytes of these processes; None if NVML does not list them, as in a container."""
        count = ctypes.c_uint(256)
        infos = (_ProcessInfo * 256)()
        listing = getattr(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if listing is None or listing(self._device(uuid), ctypes.byref(count), infos) != 0:
            return None
        found = [int(each.bytes) for each in infos[: count.value] if each.pid in pids]
        # NVML says -1 for an unknown size.
        return sum(found) if found and max(found) < 2**63 else None


class _Parking:
    def __init__(self) -> None:
        self._way: Any = None
        self._figures: Optional[_Figures] = None
        self._why = ""
        if not sys.platform.startswith("linux"):
            self._why = "only Linux has it"
            return
        try:
            self._figures = _Figures()
        except (OSError, AttributeError):
            # Then no room can be checked.
            pass
        try:
            self._way = _Library()
        except AttributeError:
            self._why = "libcuda.so.1 has no cuCheckpointProcess calls"
        except OSError as error:
            self._why = f"libcuda.so.1: {error}"
        program = shutil.which("cuda-checkpoint")
        if self._way is None and program is not None:
            self._way = _Program(program)

    def _require(self) -> Any:
        driver = self._read_driver()
        major = re.match(r"\d+", driver)
        if self._way is None or (major and int(major[0]) < _MIN_DRIVER):
            old = f"the driver is {driver}" if driver else self._why
            raise _Refusal(f"{old}; parking needs an NVIDIA driver {_MIN_DRIVER} or newer")
        if self._way.devices is not None and self._way.devices != 1:
            raise _Refusal(f"CUDA shows {self._way.devices} GPUs; the driver parks processes of one")
        return self._way

    def _measure(self, request: Dict[str, Any]) -> Tuple[str, int, int]:
        """The device, its size and what is in use. A resume whose room nobody has checked may destroy the process."""
        if self._figures is None:
            raise _Refusal("libnvidia-ml.so.1 cannot be loaded, so nothing tells the memory of the GPU", isUndone=True)
        given = request.get("device")
        why = "CUDA_VISIBLE_DEVICES does not name the GPU by its UUID, and libcuda does not tell it"
        for name in [given] if given else self._require().device():
            try:
                return (name, *self._figures.memory(name))
            except _Refusal as refusal:
                why = str(refusal)
        raise _Refusal(why, isUndone=True)

    def _read_driver(self) -> str:
        if self._figures is not None:
            return self._figures.driver()
        try:
            with open("/proc/driver/nvidia/version") as file:
                found = re.search(r"  (\d+\.\d+(?:\.\d+)?)  ", file.read())
        except OSError:
            return ""
        return found[1] if found else ""

    def probe(self, request: Dict[str, Any]) -> Dict[str, Any]:
        name = self._require().name
        self._measure(request)
        return {"by": name, "driver": self._read_driver()}

    def memory(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if self._figures is None:
            raise _Refusal("libnvidia-ml.so.1 cannot be loaded")
        total, used = self._figures.memory(request["device"])
        return {"total": total, "used": used}

    def park(self, request: Dict[str, Any]) -> Dict[str, Any]:
        way = self._require()
        device, _, before = self._measure(request)
        pids = [pid for pid in _find_users(request["group"]) if way.uses(pid)]
        own = self._figures.of_processes(device, pids) if self._figures else None
        since = time.monotonic()
        done: List[Tuple[str, int]] = []
        for step in ("lock", "checkpoint"):
            for pid in pids:
                code = way.call(step, pid, request["lockMs"])
                if code != 0:
                    undone = self._undo(way, done, pid)
                    raise _Refusal(_explain(step, pid, code), step=step, code=code, isUndone=undone)
                done.append((step, pid))
        if not own and pids:
            own = self._find_freed(device, before)
        return {"pids": pids, "bytes": own or 0, "ms": round((time.monotonic() - since) * 1000)}

    def _find_freed(self, device: str, before: int) -> int:
        """Others may have taken as much meanwhile. Then it is at most what was in use."""
        try:
            freed = before - self._figures.memory(device)[1] if self._figures else 0
        except _Refusal:
            freed = 0
        return freed if freed > 0 else before

    def _undo(self, way: Any, done: List[Tuple[str, int]], failed: int) -> bool:
        """Every process runs again; False: at least one does not, and can only be ended."""
        pids = [pid for step, pid in done if step == "lock"]
        if failed not in pids:
            pids.append(failed)
        for pid in pids:
            if way.state(pid) == _CHECKPOINTED:
                way.call("restore", pid)
            if way.state(pid) == _LOCKED:
                way.call("unlock", pid)
        return all(way.state(pid) == _RUNNING for pid in pids)

    def wake(self, request: Dict[str, Any]) -> Dict[str, Any]:
        way = self._require()
        since = time.monotonic()
        pids = request["pids"]
        for pid in pids:
            state = way.state(pid)
            if state != _CHECKPOINTED:
                name = "gone" if state is None else _STATES[state]
                raise _Refusal(f"process {pid} is {name}, not suspended", step="state")
        if pids:
            device, total, used = self._measure(request)
            if total - used < request["bytes"]:
                text = f"{total - used} bytes of {device} are free, the model needs {request['bytes']}"
                raise _Refusal(text, step="room")
        for step in ("restore", "unlock"):
            for pid in pids:
                code = way.call(step, pid)
                if code != 0:
                    raise _Refusal(_explain(step, pid, code), step=step, code=code)
        for pid in pids:
            # Otherwise the end of the process would be blamed on the calls that it runs.
            if _is_ending(pid):
                raise _Refusal(f"process {pid} was killed while it was suspended", step="state")
        return {"ms": round((time.monotonic() - since) * 1000)}


def _explain(step: str, pid: int, code: int) -> str:
    return f"{step} of process {pid} failed with {code}: {_ERRORS.get(code, 'see CUDA')}"


def _find_users(group: int) -> List[int]:
    """The processes of a group that have loaded libcuda: the program itself, or one that it has started."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            # state, parent, group
            if int(fields[2]) != group or fields[0] in "ZX":
                continue
            with open(f"/proc/{name}/maps") as file:
                if any("/libcuda.so" in line for line in file):
                    found.append(int(name))
        except PermissionError as error:
            # It may have memory on the GPU, which would stay there.
            raise _Refusal(f"process {name} of the model cannot be read: {error}", isUndone=True)
        except (OSError, ValueError, IndexError):
            continue
    return sorted(found)


def _is_ending(pid: int) -> bool:
    """Also if its parent does not know yet. See proc(5); the flags are PF_EXITING and PF_SIGNALED of linux/sched.h."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/status") as file:
            pending = re.findall(r"^(?:Sig|Shd)Pnd:\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
    except OSError:
        return True
    is_killed = any(int(each, 16) & 1 << signal.SIGKILL - 1 for each in pending)
    return fields[0] in "ZX" or int(fields[6]) & 0x404 != 0 or is_killed


def _die_with_parent() -> None:
    """A request of a worker that is dead must not take memory of the device: nobody accounts for it."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)


def _serve() -> None:
    _die_with_parent()
    parking = _Parking()
    actions: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
        "probe": parking.probe,
        "memory": parking.memory,
        "park": parking.park,
        "wake": parking.wake,
    }
    for line in sys.stdin:
        request = json.loads(line)
        answer: Dict[str, Any] = {"id": request["id"]}
        try:
            answer.update(actions[request["do"]](request), ok=True)
        except _Refusal as refusal:
            answer.update(refusal.fields, ok=False, reason=str(refusal))
        except Exception as error:
            answer.update(ok=False, reason=f"{type(error).__name__}: {error}")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _hold(size: int) -> None:
    cuda: Any = ctypes.CDLL("libcuda.so.1")

    def check(name: str, *arguments: Any) -> None:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            sys.exit(f"{name} failed with {code}: {_ERRORS.get(code, 'see CUDA')}")

    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    check("cuInit", 0)
    check("cuDeviceGet", ctypes.byref(device), 0)
    check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    check("cuCtxSetCurrent", context)
    check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    check("cuMemsetD8_v2", address, ctypes.c_ubyte(0x5A), ctypes.c_size_t(size))
    check("cuCtxSynchronize")
    print("held", flush=True)
    sample = (ctypes.c_ubyte * 65_536)()
    for _ in sys.stdin:
        check("cuMemcpyDtoH_v2", sample, address, ctypes.c_size_t(len(sample)))
        print("same" if all(each == 0x5A for each in sample) else "other", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["hold"]:
        _die_with_parent()
        _hold(int(sys.argv[2]))
    else:
        _serve()
