"""Runs a model as a long-lived process of a Millrace handler.

    from millrace_model import Call, handler, run

    model = load_model()

    @handler
    def embed(input, call: Call):
        return model.embed(input["text"])

    @handler
    def generate(input):
        for token in model.generate(input["prompt"]):
            yield token

    if __name__ == "__main__":
        run()

The handler in TypeScript starts this program with `createModelProcess` of `millrace/process` and
calls `embed` and `generate` by their names. One file, no dependencies, Python 3.9 or newer.

Functions and generators may be sync or async. Their parameters are the input and, if there is a
second one, a `Call`. Sync functions run in the main thread (with `maxConcurrent` above 1 also in
other threads); async ones run in one event loop.

Values are JSON. Bytes stay bytes in both directions: an attachment of the input is a writable
`memoryview`, which `numpy.frombuffer` wraps without a copy; what offers the buffer protocol in an
output (`bytes`, `bytearray`, `memoryview`, a numpy array) is sent as it lies in memory. Numbers of
numpy become JSON numbers.

Use stdout and stderr as you like: their lines appear in the log.

Declare how an idle model leaves its GPU and comes back: with `on_park` and `on_wake`, or with
`park_torch(model)` if the model consists of PyTorch modules.
"""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import functools
import inspect
import json
import logging
import os
import queue
import re
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

__all__ = [
    "Call",
    "Cancelled",
    "NonRetryableError",
    "RetryAfterError",
    "current_call",
    "handler",
    "on_park",
    "on_wake",
    "park_torch",
    "run",
]

PROTOCOL = 1

_PREFIX = struct.Struct(">II")
_ALIGNMENT = 8
_MAX_DEPTH = 1000
_MAX_STACK_CHARS = 16_000
_MAX_MESSAGE_CHARS = 16_000
# Of the exceptions in a group, the message names only the first.
_MAX_NAMED = 3
_MAX_NAMED_CHARS = 500
# Of Python 3.11 and newer.
_GROUPS: Any = getattr(builtins, "BaseExceptionGroup", ())
# Bytes from which a piece is not worth a copy.
_SEND_ALONE = 65_536

_Path = Tuple[Union[str, int], ...]


class NonRetryableError(Exception):
    """The job cannot succeed in any attempt: it is FAILED at once."""


class RetryAfterError(Exception):
    """The next attempt of the job, if any is left, starts after `ms`. With `counts=False` this attempt
    does not count as a failure; the job's time to live runs on.
    """

    def __init__(self, ms: float, message: Optional[str] = None, *, counts: bool = True) -> None:
        super().__init__(message or f"try again in {ms} ms")
        if not 0 <= ms < float("inf"):
            raise ValueError(f"RetryAfterError: ms must be 0 or more, got {ms}")
        self.ms = ms
        self.counts = counts


class Cancelled(BaseException):
    """The call was cancelled, or its time is over. Raised by `Call.check`, and in a generator at its
    next `yield`. Like KeyboardInterrupt it is no Exception, so that `except Exception` lets it pass.
    """


class _Imports:
    """Measures how long import statements of the main thread take, until the model is ready."""

    def __init__(self) -> None:
        self.began_at = time.time()
        self._seconds = 0.0
        self._import = builtins.__import__
        builtins.__import__ = self._measure

    def _measure(self, *args: Any, **options: Any) -> Any:
        # A package may have put its own function there, and call this one.
        if builtins.__import__ != self._measure:
            return self._import(*args, **options)
        # Only the outermost import is measured: stacks of errors stay short.
        builtins.__import__ = self._import
        began = time.monotonic()
        try:
            return self._import(*args, **options)
        finally:
            self._seconds += time.monotonic() - began
            if builtins.__import__ is self._import:
                builtins.__import__ = self._measure

    def end(self) -> Dict[str, int]:
        if builtins.__import__ == self._measure:
            builtins.__import__ = self._import
        return {"upAt": round(self.began_at * 1000), "importMs": round(self._seconds * 1000)}


# A program that is no model process, as a test of it, is left alone.
_imports = _Imports() if "MILLRACE_MODEL_FD" in os.environ else None


class Call:
    """What a function may know and tell about its call. All methods may be called in any thread."""

    def __init__(
        self, process: _Process, head: Dict[str, Any], target: _Handler, inputs: int
    ) -> None:
        self.id: int = head["id"]
        self.name: str = head["name"]
        remaining = head.get("remainingMs")
        #: When the call times out, on the clock of `time.monotonic`; None: not known.
        self.deadline: Optional[float] = (
            None if remaining is None else time.monotonic() + remaining / 1000
        )
        self._process = process
        self._wants: str = head["wants"]
        self._inputs = inputs
        self._target = target
        self._lock = threading.Condition()
        self._credit: int = head.get("credit") or 0
        self._cancelled = False
        self._over = False
        self._metrics: Dict[str, Dict[str, float]] = {}
        self._task: Optional[asyncio.Task[Any]] = None
        self._credit_event: Optional[asyncio.Event] = None

    @property
    def cancelled(self) -> bool:
        """The caller no longer wants the result: return soon."""
        return self._cancelled

    def check(self) -> None:
        """Raises Cancelled if the call was cancelled. Call it between the steps of long work."""
        if self._cancelled:
            raise Cancelled()

    def remaining(self) -> Optional[float]:
        """Seconds until the call times out; None: not known."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def progress(self, value: Any) -> None:
        """Shows `value`, any JSON, as the progress of the job. A later one replaces an earlier one."""
        if not self._over:
            self._process.send({"type": "progress", "id": self.id}, value)

    def log(self, message: str, level: str = "info", **fields: Any) -> None:
        """Writes a line to the log of the job. Levels: debug, info, warn, error."""
        self._process.log(self, level, message, fields)

    def add_metric(self, name: str, value: float) -> None:
        """Adds to a metric of the next item or result."""
        with self._lock:
            metrics = self._metrics.setdefault("add", {})
            metrics[name] = metrics.get(name, 0) + _to_number(name, value)

    def set_metric(self, name: str, value: float) -> None:
        """Sets a metric of the next item or result."""
        with self._lock:
            self._metrics.setdefault("set", {})[name] = _to_number(name, value)

    def _take_metrics(self) -> Optional[Dict[str, Dict[str, float]]]:
        with self._lock:
            metrics, self._metrics = self._metrics, {}
        return metrics or None

    def _cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            self._lock.notify_all()
        task = self._task
        if task is not None:
            self._process.loop.call_soon_threadsafe(task.cancel)

    def _grant(self, count: int) -> None:
        with self._lock:
            self._credit += count
            self._lock.notify_all()
        event = self._credit_event
        if event is not None:
            self._process.loop.call_soon_threadsafe(event.set)

    def _emit(self, value: Any) -> None:
        """Sends an item as soon as there is credit. Raises Cancelled."""
        if self._credit <= 0:
            with self._lock:
                while self._credit <= 0 and not self._cancelled:
                    self._lock.wait()
        self.check()
        sent = self._process.send(self._with_metrics({"type": "item", "id": self.id}), value)
        with self._lock:
            self._credit -= sent

    def _with_metrics(self, head: Dict[str, Any]) -> Dict[str, Any]:
        metrics = self._take_metrics() if self._metrics else None
        if metrics is not None:
            head["metrics"] = metrics
        return head

    def _end(self, head: Dict[str, Any], *value: Any) -> None:
        """Sends the last frame of the call."""
        self._over = True
        self._process.forget(self)
        try:
            self._process.send(self._with_metrics(dict(head, id=self.id)), *value)
        except Exception as error:  # The result is not JSON, or too large.
            if "error" not in head:
                head = {"error": _describe(error)}
            try:
                self._process.send({"type": "error", "id": self.id, "error": head["error"]})
            except ValueError:  # Even the error is larger than a frame.
                small = dict(head["error"], message=head["error"]["message"][:200])
                small.pop("stack", None)
                self._process.send({"type": "error", "id": self.id, "error": small})


_current: contextvars.ContextVar[Optional[Call]] = contextvars.ContextVar(
    "millrace_call", default=None
)


def current_call() -> Optional[Call]:
    """The call that this code runs for, also deep inside a library; None outside of calls."""
    return _current.get()


class _Handler:
    def __init__(self, function: Callable[..., Any], name: str, batch: Union[bool, int]) -> None:
        if not callable(function):
            raise TypeError(f"@handler is for functions, not for {function!r}")
        if batch is not False and batch is not True and batch < 1:
            raise ValueError(f"@handler: batch is {batch}; give True or a size of 1 or more")
        self.function = function
        self.name = name
        self.is_batch = batch is not False
        self.max_batch: Optional[int] = None if isinstance(batch, bool) else batch
        self.streams_async = inspect.isasyncgenfunction(function)
        self.is_async = self.streams_async or inspect.iscoroutinefunction(function)
        self.takes_call = _count_parameters(function) > 1

    def arguments(self, value: Any, call: Call) -> Tuple[Any, ...]:
        if self.is_batch:
            if not isinstance(value, list):
                raise NonRetryableError(
                    f"{self.name} takes a list of inputs, got {type(value).__name__}"
                )
            if self.max_batch is not None and len(value) > self.max_batch:
                raise NonRetryableError(
                    f"{self.name} takes at most {self.max_batch} inputs, got {len(value)}"
                )
        return (value, call) if self.takes_call else (value,)


def _count_parameters(function: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return 2
    return sum(each.kind in kinds for each in parameters)


_handlers: Dict[str, _Handler] = {}


def handler(
    function: Optional[Callable[..., Any]] = None,
    *,
    name: Optional[str] = None,
    batch: Union[bool, int] = False,
) -> Callable[..., Any]:
    """Makes a function callable from the handler, by its name or by `name`.

    With `batch=True`, or the largest size as in `batch=32`, the function receives a list of inputs.
    It returns a list of outputs in the same order, of which any may be an exception that fails this
    one alone; or it is a generator and yields pairs `(index, output)`.
    """
    if function is None:
        return functools.partial(handler, name=name, batch=batch)
    own = name or function.__name__
    if own in _handlers:
        raise ValueError(f"@handler: there are two functions named {own}")
    _handlers[own] = _Handler(function, own, batch)
    return function


_park_hooks: List[Callable[[], Any]] = []
_wake_hooks: List[Callable[[], Any]] = []
# Work that may take long and that no call waits for; begins when the process serves.
_preparations: List[Callable[[], None]] = []


def on_park(function: Callable[[], Any]) -> Callable[[], Any]:
    """Declares a function that moves the model from the GPU to the host's memory. It may be async, and
    should return the number of bytes that it has freed on the GPU. It runs while no call runs, after the
    `on_park` functions that are declared later.
    """
    _park_hooks.append(function)
    return function


def on_wake(function: Callable[[], Any]) -> Callable[[], Any]:
    """Declares a function that moves the model back to the GPU. `on_wake` functions run in the order of
    their declaration. Calls wait meanwhile.
    """
    _wake_hooks.append(function)
    return function


def park_torch(*models: Any) -> None:
    """Parks PyTorch modules, pipelines with `components`, or tensors: their memory on the GPU moves to
    pinned memory of the host, and back. Call it after the model is on the GPU.

    The pinned memory is allocated once, in the background, after the start. Views and tied weights stay
    as they are. A captured CUDA graph does not: its addresses change. Leave such a model to the driver.
    """
    parking = _TorchParking(models)
    _preparations.append(parking.prepare)
    on_park(parking.park)
    on_wake(parking.wake)


class _TorchParking:
    #: Of tensors that are parked.
    kind = "cuda"

    def __init__(self, models: Tuple[Any, ...]) -> None:
        # The program has imported it, or has no modules to park.
        self._torch: Any = sys.modules.get("torch")
        if self._torch is None:
            raise RuntimeError("park_torch: the program has not imported torch")
        self._models = models
        self._lock = threading.Lock()
        # Pinned buffers, by size.
        self._buffers: Dict[int, List[Any]] = {}
        self._parked: List[Tuple[Any, int, Any, Any]] = []
        self._storages()

    def _storages(self) -> List[Tuple[Any, Any]]:
        """Every storage on a GPU once, with its device: tied weights and views share one."""
        found: Dict[int, Tuple[Any, Any]] = {}
        for model in self._models:
            for tensor in _tensors(model):
                if tensor.device.type == self.kind:
                    storage = tensor.untyped_storage()
                    # Memory that another library owns cannot be let go; old versions cannot tell.
                    resizable = getattr(storage, "resizable", lambda: True)
                    if storage.nbytes() > 0 and resizable():
                        found.setdefault(storage.data_ptr(), (storage, tensor.device))
        return list(found.values())

    def prepare(self) -> None:
        wanted: Dict[int, int] = {}
        for storage, _ in self._storages():
            size = storage.nbytes()
            wanted[size] = wanted.get(size, 0) + 1
            # One at a time: a park that comes meanwhile waits for one buffer only.
            with self._lock:
                buffers = self._buffers.setdefault(size, [])
                if len(buffers) < wanted[size]:
                    buffers.append(self._allocate(size))

    def _allocate(self, size: int) -> Any:
        torch = self._torch
        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        except RuntimeError:
            # The system limits locked memory: slower, but it works.
            return torch.empty(size, dtype=torch.uint8)

    def _bytes_of(self, storage: Any, device: Any) -> Any:
        view = self._torch.empty(0, dtype=self._torch.uint8, device=device)
        return view.set_(storage, 0, (storage.nbytes(),), (1,))

    def park(self) -> int:
        torch = self._torch
        with self._lock, torch.no_grad():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            taken: Dict[int, int] = {}
            for storage, device in self._storages():
                size = storage.nbytes()
                buffers = self._buffers.setdefault(size, [])
                place = taken.get(size, 0)
                taken[size] = place + 1
                if place == len(buffers):
                    buffers.append(self._allocate(size))
                buffers[place].copy_(self._bytes_of(storage, device), non_blocking=True)
                self._parked.append((storage, size, device, buffers[place]))
            self._settle()
            for storage, _, _, _ in self._parked:
                storage.resize_(0)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return sum(size for _, size, _, _ in self._parked)

    def wake(self) -> None:
        with self._lock, self._torch.no_grad():
            for storage, size, device, buffer in self._parked:
                storage.resize_(size)
                self._bytes_of(storage, device).copy_(buffer, non_blocking=True)
            self._settle()
            self._parked = []

    def _settle(self) -> None:
        if self._torch.cuda.is_available():
            self._torch.cuda.synchronize()


def _tensors(model: Any) -> Any:
    if hasattr(model, "parameters"):
        yield from model.parameters()
        yield from model.buffers()
    elif isinstance(getattr(model, "components", None), dict):
        for part in model.components.values():
            if hasattr(part, "parameters"):
                yield from _tensors(part)
    elif hasattr(model, "untyped_storage"):
        yield model
    else:
        raise TypeError(f"park_torch: {type(model).__name__} is no module, pipeline or tensor")


def run() -> None:
    """Reports that the model is ready, and serves calls until the worker ends the process.

    Call it in the main thread, after the model is loaded. It returns when the worker stops the
    process in order; then the program may clean up and exit.
    """
    descriptor = os.environ.pop("MILLRACE_MODEL_FD", None)
    if descriptor is None:
        sys.exit(
            "This program is a model process of Millrace: a handler starts it with createModelProcess "
            "of millrace/process. MILLRACE_MODEL_FD is not set."
        )
    if not _handlers:
        sys.exit("There is no @handler; decorate at least one function.")
    if bool(_park_hooks) != bool(_wake_hooks):
        missing = "on_wake" if _park_hooks else "on_park"
        sys.exit(f"@{missing} is missing; declare both @on_park and @on_wake.")
    _Process(int(descriptor)).serve()


class _Process:
    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        # A signal handler or a finalizer may log while this very thread sends a frame.
        self._send_lock = threading.RLock()
        self._is_sending = False
        self._deferred: List[bytes] = []
        self._is_fork = False
        self._calls: Dict[int, Call] = {}
        # Calls with their inputs, and steps of the process itself; None ends a thread.
        self._pending: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._threads = 1
        self._max_frame_bytes = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def serve(self) -> None:
        _die_with_parent()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_fork)
        hello, _ = self._read_frame()
        if hello.get("type") != "hello" or hello.get("protocol") != PROTOCOL:
            sys.exit(f"The worker speaks another protocol than {PROTOCOL}: {hello}")
        self._threads = hello["maxConcurrent"]
        self._max_frame_bytes = hello["maxFrameBytes"]
        _send_logs(self)
        if any(each.is_async for each in _handlers.values()):
            self._start_loop()
        threading.Thread(target=self._read, name="millrace-read", daemon=True).start()
        # A sync function finds the main thread as it was while the model was loaded.
        for number in range(1, self._threads):
            name = f"millrace-call-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        ready: Dict[str, Any] = {"type": "ready", "protocol": PROTOCOL, "handlers": list(_handlers)}
        if _park_hooks:
            ready["parks"] = True
        if _imports is not None:
            ready.update(_imports.end())
        self.send(ready)
        for prepare in _preparations:
            threading.Thread(target=prepare, name="millrace-prepare", daemon=True).start()
        self._work()

    def log(self, call: Optional[Call], level: str, message: str, fields: Dict[str, Any]) -> None:
        if self._is_fork:
            print(f"{level}: {message}", file=sys.stderr)
            return
        head: Dict[str, Any] = {"type": "log", "level": level, "message": message}
        if call is not None and not call._over:
            head["id"] = call.id
        if fields:
            head["fields"] = json.loads(json.dumps(fields, default=str))
        self.send(head)

    def send(self, head: Dict[str, Any], *value: Any) -> int:
        """Sends a frame and returns its size. Raises ValueError if the value is not JSON."""
        if self._is_fork:
            return 0
        text = json.dumps(head, separators=(",", ":"))
        buffers: List[memoryview] = []
        if value:
            encoded, attachments, buffers = _encode(value[0])
            more = f',"attachments":{json.dumps(attachments)}' if attachments else ""
            text = f'{text[:-1]}{more},"value":{encoded}}}'
        data = text.encode()
        pieces: List[Union[bytes, memoryview]] = [data]
        body = 0
        for buffer in buffers:
            pieces.append(buffer)
            padding = -buffer.nbytes % _ALIGNMENT
            if padding:
                pieces.append(bytes(padding))
            body += buffer.nbytes + padding
        size = _PREFIX.size + len(data) + body
        if size > self._max_frame_bytes:
            raise ValueError(
                f"the value is {size} bytes; the limit is {self._max_frame_bytes} (maxFrameBytes)"
            )
        prefix = _PREFIX.pack(len(data), body)
        with self._send_lock:
            if self._is_sending:
                # Copied: between its frames, the outer `send` writes what came in the middle of one.
                self._deferred.append(b"".join([prefix, *pieces]))
                return size
            self._is_sending = True
            try:
                if body == 0:
                    self._socket.sendall(prefix + data)
                else:
                    _send_all(self._socket, [prefix, *pieces])
                while self._deferred:
                    self._socket.sendall(self._deferred.pop(0))
            finally:
                self._is_sending = False
        return size

    def _leave_fork(self) -> None:
        """A process that a library forks, as those of multiprocessing, has no part in the protocol:
        its frames would get in between those of this process."""
        self._is_fork = True
        self._socket.close()

    def forget(self, call: Call) -> None:
        self._calls.pop(call.id, None)

    def _read(self) -> None:
        """Reads frames until the worker closes the socket. It never runs code of the handlers."""
        try:
            while self._receive(*self._read_frame()):
                pass
        except (EOFError, OSError):
            # The worker is gone, or gave this process up: whatever runs has no use any more.
            os._exit(1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _receive(self, head: Dict[str, Any], body: memoryview) -> bool:
        kind = head["type"]
        if kind == "call":
            self._begin(head, body)
        elif kind == "too_deep":
            message = "the input is nested deeper than json.loads of this Python allows"
            error = {"type": "NonRetryableError", "message": message, "retry": "never"}
            self.send({"type": "error", "id": head["id"], "error": error})
        elif kind == "ping":
            self.send({"type": "pong"})
        elif kind == "park":
            self._pending.put(self._park)
        elif kind == "wake":
            self._pending.put(self._wake)
        elif kind == "stop":
            for _ in range(self._threads):
                self._pending.put(None)
            return False
        else:
            call = self._calls.get(head.get("id", 0))
            # A call that has just ended may still be cancelled.
            if call is not None and kind == "cancel":
                call._cancel()
            elif call is not None and kind == "credit":
                call._grant(head["bytes"])
        return True

    def _park(self) -> None:
        try:
            results = [self._call_hook(hook) for hook in reversed(_park_hooks)]
            sizes = [each for each in results if isinstance(each, int) and each >= 0]
            self.send({"type": "parked", "bytes": sum(sizes)})
        except BaseException as error:
            self.send({"type": "park_failed", "error": _describe(error)})

    def _wake(self) -> None:
        try:
            for hook in _wake_hooks:
                self._call_hook(hook)
            self.send({"type": "woken"})
        except BaseException as error:
            self.send({"type": "park_failed", "error": _describe(error)})

    def _call_hook(self, hook: Callable[[], Any]) -> Any:
        result = hook()
        if not inspect.iscoroutine(result):
            return result
        # A model of asyncio belongs to the loop of its calls.
        if self._loop is None:
            return asyncio.run(result)
        return asyncio.run_coroutine_threadsafe(result, self._loop).result()

    def _begin(self, head: Dict[str, Any], body: memoryview) -> None:
        value = _attach(head.get("value"), head.get("attachments") or [], body)
        target = _handlers.get(head["name"])
        if target is None:
            message = f"there is no function {head['name']}; there are {', '.join(_handlers)}"
            error = {"type": "NonRetryableError", "message": message, "retry": "never"}
            self.send({"type": "error", "id": head["id"], "error": error})
            return
        call = Call(self, head, target, len(value) if isinstance(value, list) else 1)
        self._calls[call.id] = call
        if target.is_async:
            asyncio.run_coroutine_threadsafe(self._run_async(call, value), self.loop)
        else:
            self._pending.put((call, value))

    def _work(self) -> None:
        """Runs sync calls one after the other, until the worker stops the process."""
        while True:
            pending = self._pending.get()
            if pending is None:
                return
            if callable(pending):
                pending()
                continue
            # Its own context: variables that a call sets do not reach the next one.
            contextvars.copy_context().run(self._run, *pending)
            del pending

    def _run(self, call: Call, value: Any) -> None:
        _current.set(call)
        target = call._target
        try:
            call.check()
            result = target.function(*target.arguments(value, call))
            del value
            # Asked of the result: a decorator may hide that the function is a generator.
            streams = inspect.isgenerator(result)
            if streams:
                result = _drive(result, call)
            elif call._wants == "items":
                for item in _iterate(target, result):
                    call._emit(item)
                result = None
            call._end({"type": "result"}, _check_batch(call, result, streams))
        except BaseException as error:
            self._fail(call, error)

    async def _run_async(self, call: Call, value: Any) -> None:
        _current.set(call)
        target = call._target
        try:
            # From here on `_cancel` can reach the task; what came before is checked.
            call._task = asyncio.current_task()
            call.check()
            result = target.function(*target.arguments(value, call))
            del value
            if target.streams_async:
                result = await self._drive_async(result, call)
            else:
                result = await result
                if call._wants == "items":
                    for item in _iterate(target, result):
                        await self._emit_async(call, item)
                    result = None
            checked = _check_batch(call, result, target.streams_async)
            call._end({"type": "result"}, checked)
        except BaseException as error:
            self._fail(call, error)

    async def _drive_async(self, items: Any, call: Call) -> Any:
        collected: List[Any] = []
        streams = call._wants == "items"
        try:
            async for item in items:
                if streams:
                    await self._emit_async(call, item)
                else:
                    collected.append(item)
        finally:
            await items.aclose()
        return None if streams else collected

    async def _emit_async(self, call: Call, item: Any) -> None:
        # No thread waits: the threads of the loop belong to the functions, and an item that another
        # thread sends could arrive after the end of a cancelled call.
        event = call._credit_event
        if event is None:
            event = call._credit_event = asyncio.Event()
        while call._credit <= 0:
            event.clear()
            # The credit may have arrived before the event was cleared.
            if call._credit <= 0:
                await event.wait()
        call._emit(item)
        # A generator that never waits must not keep other calls from running.
        await asyncio.sleep(0)

    def _fail(self, call: Call, error: BaseException) -> None:
        is_cancel = isinstance(error, (Cancelled, asyncio.CancelledError, GeneratorExit))
        if is_cancel and call.cancelled:
            call._end({"type": "cancelled"})
            return
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            # As in any other program; the worker reads the end of the process.
            _exit(error)
        call._end({"type": "error", "error": _describe(error)})

    def _start_loop(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="millrace-async", daemon=True).start()

    def _read_frame(self) -> Tuple[Dict[str, Any], memoryview]:
        head_bytes, body_bytes = _PREFIX.unpack(self._read_exactly(_PREFIX.size))
        text = bytes(self._read_exactly(head_bytes))
        body = self._read_exactly(body_bytes)
        try:
            return json.loads(text), body
        except RecursionError:
            # Only the value of a call can be that deep; its ID is in front of it.
            found = re.match(rb'\{"type":"call","id":(\d+),', text)
            if found is None:
                raise
            return {"type": "too_deep", "id": int(found[1])}, body

    def _read_exactly(self, count: int) -> memoryview:
        whole = memoryview(bytearray(count))
        rest = whole
        while rest:
            received = self._socket.recv_into(rest)
            if received == 0:
                raise EOFError
            rest = rest[received:]
        return whole


def _exit(error: BaseException) -> None:
    code = getattr(error, "code", 1)
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _drive(items: Any, call: Call) -> Any:
    """Runs a sync generator: sends its items, or collects them if the caller wants one value."""
    collected: List[Any] = []
    streams = call._wants == "items"
    try:
        while True:
            try:
                item = next(items)
            except StopIteration as stop:
                return stop.value if streams or stop.value is not None else collected
            if streams:
                call._emit(item)
            else:
                call.check()
                collected.append(item)
    except Cancelled as cancelled:
        # The generator sees it at its `yield` and may clean up; it is closed even if it goes on.
        try:
            items.throw(cancelled)
        except (Cancelled, StopIteration):
            pass
        raise
    finally:
        items.close()


def _iterate(target: _Handler, result: Any) -> Any:
    """The items of a function that is called as a stream without being a generator."""
    if isinstance(result, (list, tuple)):
        return enumerate(result) if target.is_batch else result
    return [result]


def _check_batch(call: Call, result: Any, streams: bool) -> Any:
    """The results of a batch function as the caller expects them: each has a value or an error."""
    if call._wants != "batch":
        return result
    target = call._target
    count = call._inputs
    if not target.is_batch:
        raise NonRetryableError(f"{target.name} is no batch function; declare it with batch=True")
    if streams:
        pairs = dict(result)
        if sorted(pairs) != list(range(count)) or len(result) != count:
            raise NonRetryableError(
                f"{target.name} yielded {len(result)} outputs for {count} inputs; "
                "yield one pair (index, output) for each"
            )
        result = [pairs[index] for index in range(count)]
    if not isinstance(result, (list, tuple)) and hasattr(result, "__len__"):
        result = list(result)
    if not isinstance(result, (list, tuple)) or len(result) != count:
        found = f"{len(result)} outputs" if isinstance(result, (list, tuple)) else type(result)
        raise NonRetryableError(f"{target.name} returned {found} for {count} inputs")
    return [
        {"error": _describe(each)} if isinstance(each, BaseException) else {"value": each}
        for each in result
    ]


def _join_messages(error: BaseException) -> str:
    """Returns the message; that of a group names its first exceptions, and the stack has all."""
    try:
        message = str(error)
        parts = getattr(error, "exceptions", ()) if isinstance(error, _GROUPS) else ()
        named = [str(part)[:_MAX_NAMED_CHARS] or type(part).__name__ for part in parts[:_MAX_NAMED]]
    except Exception:  # The author's own class may not be able to tell.
        return ""
    return f"{message}: {'; '.join(named)}" if named else message


def _describe(error: BaseException) -> Dict[str, Any]:
    retry: Any = "default"
    if isinstance(error, NonRetryableError):
        retry = "never"
    elif isinstance(error, RetryAfterError):
        retry = error.ms
    # Without the frames of this file, of which the author knows nothing.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    stack = "".join(traceback.format_exception(type(error), error, trace))
    described = {
        "type": type(error).__name__,
        "message": _join_messages(error)[:_MAX_MESSAGE_CHARS] or type(error).__name__,
        "stack": stack[-_MAX_STACK_CHARS:].rstrip(),
        "retry": retry,
    }
    if isinstance(error, RetryAfterError) and not error.counts:
        described["counts"] = False
    return described


class _HoldsBytes(Exception):
    pass


def _convert(value: Any) -> Any:
    """What json.dumps cannot write: numbers of numpy; bytes are taken out first."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    if _view(value) is not None:
        raise _HoldsBytes
    raise TypeError(f"{type(value).__name__} is not JSON; convert it")


def _dump(value: Any) -> str:
    return json.dumps(
        value, default=_convert, allow_nan=False, ensure_ascii=False, separators=(",", ":")
    )


def _encode(value: Any) -> Tuple[str, List[Dict[str, Any]], List[memoryview]]:
    try:
        return _dump(value), [], []
    except _HoldsBytes:
        attachments: List[Dict[str, Any]] = []
        buffers: List[memoryview] = []
        rest = _detach(value, (), attachments, buffers)
        return _dump(rest), attachments, buffers


def _view(value: Any) -> Optional[memoryview]:
    if isinstance(value, (str, int, float, dict, list, tuple)) or value is None:
        return None
    try:
        view = memoryview(value)
    except (BufferError, TypeError, ValueError):
        return None
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B") if view.nbytes else memoryview(b"")


def _detach(
    value: Any, path: _Path, attachments: List[Dict[str, Any]], buffers: List[memoryview]
) -> Any:
    if len(path) > _MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {
            key: _detach(member, (*path, _key(key)), attachments, buffers)
            for key, member in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _detach(member, (*path, index), attachments, buffers)
            for index, member in enumerate(value)
        ]
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    view = _view(value)
    if view is None:
        return value
    attachments.append({"path": list(path), "bytes": view.nbytes})
    buffers.append(view)
    return None


def _key(key: Any) -> str:
    """As json.dumps writes a key."""
    if key is True:
        return "true"
    if key is False:
        return "false"
    return "null" if key is None else str(key)


def _attach(value: Any, attachments: List[Dict[str, Any]], body: memoryview) -> Any:
    start = 0
    for attachment in attachments:
        count: int = attachment["bytes"]
        piece = body[start : start + count]
        start += count + -count % _ALIGNMENT
        path = attachment["path"]
        if not path:
            return piece
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = piece
    return value


def _send_all(target: socket.socket, pieces: List[Union[bytes, memoryview]]) -> None:
    """Sends small pieces together, and large ones as they lie in memory."""
    small = bytearray()
    for piece in pieces:
        if len(piece) < _SEND_ALONE:
            small += piece
            continue
        target.sendall(small)
        target.sendall(piece)
        small = bytearray()
    target.sendall(small)


def _to_number(name: str, value: float) -> float:
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"metric {name} is {value!r}; it must be a number")
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"metric {name} is {value!r}; it must be finite")
    return number


class _CallLog(logging.Handler):
    """Sends records of `logging` to the log of the call that made them."""

    _LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"))

    def __init__(self, process: _Process) -> None:
        super().__init__()
        self._process = process

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for least, name in self._LEVELS if record.levelno >= least), "debug")
        try:
            self._process.log(current_call(), level, self.format(record), {"logger": record.name})
        except Exception:
            self.handleError(record)


def _send_logs(process: _Process) -> None:
    """Unless the program has set up `logging` itself; then its lines arrive by stderr."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_CallLog(process))
        if root.level == logging.WARNING:
            root.setLevel(logging.INFO)


def _die_with_parent() -> None:
    """On Linux the kernel kills this process with the thread of the worker that started it, even
    while native code keeps this one from seeing that the socket is closed."""
    if not sys.platform.startswith("linux"):
        return
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
    except Exception:
        # Without ctypes, the closed socket ends the process.
        pass
