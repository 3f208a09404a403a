"""Starts model processes of Millrace as forks of a process that has imported their packages.

The worker writes one JSON line to standard input: the packages, the arguments of the model's program, and a socket
with a token. For each further line, this program forks a child. The child connects to the socket three times: for
its standard output, its standard error, and its descriptor for frames. It waits there for one byte, then it runs the
model's program as `__main__`. Standard output has one JSON line for each event.

A fork has only the thread that called it. So this program starts no thread, and after each fork it counts the
threads that still run. If a package has threads that survive a fork, or has touched CUDA, this program reports that
it is unfit, and ends. Python 3.9 or newer, Linux, no dependencies.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
import types
import warnings
from typing import Any, Dict, List, NoReturn, Optional

# Of the model process, as `createModelProcess` passes it.
FRAMES = 3
# Of cuDeviceGetCount: nothing has called cuInit.
CUDA_NOT_INITIALIZED = 3
PR_SET_PDEATHSIG = 1
MAX_LINE = 1_048_576


def die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def find_cuda() -> Optional[str]:
    """What has initialized CUDA, which does not work after a fork; None: nothing has."""
    torch = sys.modules.get("torch")
    is_initialized = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    if callable(is_initialized) and is_initialized():
        return "PyTorch has initialized CUDA"
    import ctypes

    try:
        # Only if a package has loaded it.
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        return None
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) == CUDA_NOT_INITIALIZED:
        return None
    return "a package has initialized CUDA (cuInit)"


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


class Launcher:
    def __init__(self, order: Dict[str, Any], report: int) -> None:
        self.args: List[str] = order["args"]
        self.packages: List[str] = order["preload"]
        self.address: str = "\0" + order["socket"]
        self.token: str = order["token"]
        self.report = report
        self.children: Dict[int, int] = {}
        self.pid = os.getpid()
        # A signal that a child has ended writes to the second one.
        self.wake, self.waker = socket.socketpair()

    def tell(self, kind: str, **members: Any) -> None:
        line = json.dumps(dict(members, type=kind)) + "\n"
        os.write(self.report, line.encode())

    def prepare(self) -> Optional[str]:
        """Imports the packages. Returns why this process cannot fork."""
        # A package of the program's folder is found as the program finds it.
        if not getattr(sys.flags, "safe_path", False):
            is_module = self.args[0] == "-m"
            sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(self.args[0]))
        # `torch.cuda.is_available` then asks NVML, which survives a fork, in place of CUDA.
        own = os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        for package in self.packages:
            try:
                importlib.import_module(package)
            except BaseException as error:
                return f"cannot import {package}: {type(error).__name__}: {error}"
        if own is None:
            os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
        gc.collect()
        # Objects that the collector does not visit stay shared with the forks.
        gc.freeze()
        return self.find_obstacle()

    def find_obstacle(self) -> Optional[str]:
        others = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
        if others:
            return f"the packages have started threads: {', '.join(others[:5])}"
        return find_cuda()

    def fork(self, number: int) -> None:
        """Raises OSError."""
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python warns of the threads that are counted below.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            self.run_child(number)
        self.children[pid] = number
        left = count_threads() - 1
        if left > 0:
            os.kill(pid, signal.SIGKILL)
            reason = f"threads of the packages still run after a fork: {left}"
            self.tell("unfit", reason=reason)
            sys.exit(0)
        self.tell("forked", number=number, pid=pid)

    def run_child(self, number: int) -> NoReturn:
        # A stack of the program's error must not show frames of the launcher.
        try:
            self.become_child(number)
        except BaseException as error:
            os.write(2, f"millrace_launch.py: {error}\n".encode())
            os._exit(1)
        run_program(self.args)

    def become_child(self, number: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        die_with_parent()
        if os.getppid() != self.pid:
            os._exit(1)
        for own in (self.wake, self.waker):
            own.close()
        os.close(self.report)
        sockets = []
        for role in ("stdout", "stderr", "frames"):
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            end.connect(self.address)
            end.sendall(f"{self.token} {number} {role}\n".encode())
            sockets.append(end)
        frames = sockets[2]
        if frames.recv(1) != b"!":
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        high = [os.dup(end.fileno()) for end in sockets]
        os.dup2(nothing, 0)
        for target, end in zip((1, 2, FRAMES), high):
            os.dup2(end, target, inheritable=True)
        for end in sockets:
            if end.fileno() == FRAMES:
                end.detach()
            else:
                end.close()
        for end in [nothing, *high]:
            if end > FRAMES:
                os.close(end)
        os.environ["MILLRACE_MODEL_FD"] = str(FRAMES)
        seed = getattr(sys.modules.get("numpy.random"), "seed", None)
        if callable(seed):
            # Else each start would draw the same numbers.
            seed()

    def reap(self) -> None:
        for pid in list(self.children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found == 0:
                continue
            number = self.children.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            end = {"signal": name_signal(-code)} if code < 0 else {"code": code}
            self.tell("ended", number=number, pid=pid, **end)

    def serve(self) -> None:
        began = time.monotonic()
        obstacle = self.prepare()
        if obstacle is not None:
            self.tell("unfit", reason=obstacle)
            return
        self.tell("ready", importMs=round((time.monotonic() - began) * 1000))
        self.wake.setblocking(False)
        self.waker.setblocking(False)
        signal.set_wakeup_fd(self.waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([0, self.wake], [], [])
            if self.wake in ready:
                self.wake.recv(4096)
                self.reap()
            if 0 in ready:
                orders = os.read(0, 4096)
                if not orders:
                    return
                for number in orders.split():
                    self.fork(int(number))


def run_program(args: List[str]) -> NoReturn:
    """Runs the program as the interpreter would, to its end."""
    code = 0
    try:
        if args[0] == "-m":
            sys.argv = args[1:]
            runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = args
            run_file(args[0])
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        error = sys.exc_info()[1]
        assert error is not None
        # Without the frames of this file.
        stack = error.__traceback__
        while stack is not None and stack.tb_frame.f_code.co_filename == __file__:
            stack = stack.tb_next
        sys.excepthook(type(error), error.with_traceback(stack), stack)
        code = 1
    finish(code or 0)


def run_file(path: str) -> None:
    from importlib.machinery import SourceFileLoader

    module = types.ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __loader__=loader, __builtins__=__builtins__)
    # `multiprocessing` and `pickle` look for it there.
    sys.modules["__main__"] = module
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def finish(code: int) -> NoReturn:
    """Ends as the interpreter does: waits for threads that are no daemons, runs the functions of atexit, writes what is buffered."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        import atexit

        atexit._run_exitfuncs()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)


def main() -> None:
    die_with_parent()
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65_536)
        if not piece or len(line) > MAX_LINE:
            sys.exit("millrace_launch.py is started by createModelProcess of millrace/process.")
        line += piece
    # Lines that a package prints while it is imported must not mix with the reports.
    report = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(report, False)
    Launcher(json.loads(line), report).serve()


if __name__ == "__main__":
    main()
