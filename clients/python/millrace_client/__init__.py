"""Calls the endpoints of a Millrace platform: submits jobs, follows them, reads their streams.

    from millrace_client import Client

    client = Client("http://127.0.0.1:8000", "echo", key=os.environ["MILLRACE_KEY"])
    print(client.runsync({"hello": "world"})["output"])

    job = client.run({"prompt": "Hi"})["id"]
    for chunk in client.stream(job):
        print(chunk.output, end="")

No dependencies, Python 3.9 or newer. A client may be shared by threads. Every method raises `ApiError` if the platform
refuses the call, and `UnreachableError` if no answer arrives.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import random
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from typing import (
    Any,
    BinaryIO,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

__all__ = [
    "ApiError",
    "Chunk",
    "Client",
    "JobFailedError",
    "UnreachableError",
    "WebhookRefusedError",
    "verify_webhook",
]
__version__ = "0.1.0"

Json = Any
Record = Dict[str, Any]

_TERMINAL = frozenset(["COMPLETED", "FAILED", "TIMED_OUT", "CANCELLED"])
#: Longest wait of one request, s. Many proxies cut a request that has been silent for 60 s.
_REQUEST_WAIT_S = 30.0
#: If the platform asks for a longer wait, the call raises instead of waiting, s.
_MOST_WAIT_S = 60.0
#: Jobs of one request, and bytes of their bodies together.
_JOBS_AT_ONCE, _BYTES_AT_ONCE = 100, 8_000_000


class ApiError(Exception):
    """The platform refused the call. `problem` is its answer: https://www.rfc-editor.org/rfc/rfc9457"""

    def __init__(self, problem: Mapping[str, Any], retry_after: Optional[float] = None) -> None:
        super().__init__(f"{problem.get('title')} ({problem.get('status')}): {problem.get('detail')}")
        self.problem = dict(problem)
        #: Wait before a retry that the platform asks for, s.
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        return int(self.problem["status"])

    @property
    def code(self) -> str:
        return str(self.problem.get("code"))


class UnreachableError(Exception):
    """No answer arrived, or one that is not from Millrace."""


class JobFailedError(Exception):
    """A job of `run_all` did not complete. `record` has the details."""

    def __init__(self, record: Record) -> None:
        error = record.get("error") or {}
        super().__init__(f"{record['id']} is {record['status']}: {error.get('message', 'no message')}")
        self.record = record


class WebhookRefusedError(Exception):
    """The webhook may be forged, or is too old: answer 400 and do nothing else."""


@dataclass
class Chunk:
    """One value that the handler yielded."""

    output: Json
    metrics: Dict[str, float] = field(default_factory=dict)
    #: Pass it as `after` to continue after this chunk.
    position: str = ""
    #: If it grows, the job restarted, and chunks of earlier attempts are void.
    attempt: int = 0


class Client:
    """The jobs of one endpoint.

    `url`: of the platform. `endpoint`: ID or name. `key`: only `millrace dev` on the same machine answers without one.
    `repeats`: most retries of a call without an answer, or with 429 or 503. `timeout`: time without
    a byte, after which a request counts as unanswered, s.
    """

    def __init__(
        self, url: str, endpoint: str, *, key: Optional[str] = None, repeats: int = 5, timeout: float = 60.0
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"url: expected http://… or https://…, got {url}")
        self._base = f"{url.rstrip('/')}/v2/{urllib.parse.quote(endpoint, safe='')}"
        self._key = key
        self._repeats = repeats
        self._timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirect)

    # Jobs

    def run(self, input: Json, *, idempotency_key: Optional[str] = None, **options: Any) -> Record:
        """Submits a job: `{"id", "status"}`, when the job is on disk.

        `options` are members of the request: `policy` (with `tags`), `webhook`, `after`. The client repeats the call
        over outages: without a key of yours, the submission gets one of its own, so that the job exists once.
        """
        body = {"input": input, "idempotencyKey": idempotency_key or str(uuid.uuid4()), **options}
        return self._json("POST", "/run", body)

    def run_many(self, jobs: Iterable[Mapping[str, Any]]) -> Iterator[Union[Record, ApiError]]:
        """Submits many jobs, up to 100 with each request. Yields for each, in order, `{"id", "status"}` or its refusal.

        Each job is a mapping with `input`, and with options as those of `run`.
        """
        for some in _split_jobs({"idempotencyKey": str(uuid.uuid4()), **job} for job in jobs):
            for answer in self._json("POST", "/jobs", {"jobs": some})["jobs"]:
                yield ApiError(answer["error"]) if "error" in answer else answer

    def runsync(
        self, input: Json, *, wait: float = 90.0, idempotency_key: Optional[str] = None, **options: Any
    ) -> Record:
        """Runs a job and returns its record, as it is when the job has ended or after `wait` seconds."""
        body = {"input": input, "idempotencyKey": idempotency_key or str(uuid.uuid4()), **options}
        return self._json("POST", "/runsync", body, query={"wait": _ms(wait)}, timeout=wait + self._timeout)

    def run_all(self, inputs: Iterable[Json], *, concurrency: int = 16, **options: Any) -> List[Union[Json, Exception]]:
        """Runs one job for each input, at most `concurrency` at a time; outputs in the order of the inputs.

        A job that does not complete gives a `JobFailedError` in its place, one that could not run the error.
        """
        from concurrent.futures import ThreadPoolExecutor

        def run_one(input: Json) -> Union[Json, Exception]:
            try:
                record = self.wait(self.run(input, **options)["id"])
            except (ApiError, UnreachableError) as error:
                return error
            return record.get("output") if record["status"] == "COMPLETED" else JobFailedError(record)

        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(run_one, inputs))

    def status(self, job: str) -> Record:
        return self._json("GET", f"/status/{_quote(job)}")

    def wait(self, job: str, *, timeout: Optional[float] = None) -> Record:
        """The record when the job has ended. Raises `TimeoutError` after `timeout` seconds; the job goes on"""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _REQUEST_WAIT_S
            if ends is not None:
                left = min(left, max(0.0, ends - time.monotonic()))
            query = {"wait": _ms(left)}
            record = self._json("GET", f"/status/{_quote(job)}", query=query, timeout=left + self._timeout)
            if record["status"] in _TERMINAL:
                return record
            if ends is not None and time.monotonic() >= ends:
                raise TimeoutError(f"{job} has not ended after {timeout} s")

    def stream(self, job: str, *, after: str = "0") -> Iterator[Chunk]:
        """The values that the handler yields, from the first, however late you start to read.

        It continues after an outage, and loses and repeats none. A value over 1 MB arrives whole.
        """
        pieces: List[Record] = []
        while True:
            query = {"after": after, "wait": _ms(_REQUEST_WAIT_S)}
            path, timeout = f"/stream/{_quote(job)}", _REQUEST_WAIT_S + self._timeout
            body, headers = self._call("GET", path, query=query, timeout=timeout)
            chunks = _parse(body)
            following = headers.get("Millrace-Next", "")
            match = re.fullmatch(r"(\d+)(?:\.(-?\d+))?", following)
            if match is None:
                raise UnreachableError(f"the response has no position in Millrace-Next: {following}")
            if headers.get("Millrace-Reset") == "true":
                pieces = []
            attempt, last = int(match[1]), int(match[2] or -1)
            for number, chunk in enumerate(chunks, last - len(chunks) + 1):
                pieces.append(chunk)
                metrics = chunk["metrics"]
                if metrics.get("part", 0) + 1 < metrics.get("parts", 1):
                    continue
                yield Chunk(_join(pieces), _own_metrics(metrics), f"{attempt}.{number}", attempt)
                pieces = []
            if not chunks and headers.get("Millrace-Status") in _TERMINAL:
                return
            after = following

    def cancel(self, job: str) -> Record:
        return self._json("POST", f"/cancel/{_quote(job)}")

    def retry(self, job: str) -> Record:
        return self._json("POST", f"/retry/{_quote(job)}")

    def list(self, **filters: Any) -> Iterator[Record]:
        """The jobs of the endpoint, newest first, page by page. `filters`: `status`, `tags`, and others of the API."""
        cursor: Dict[str, Any] = {}
        while True:
            page = self._json("GET", "/jobs", query={**filters, **cursor})
            yield from page["jobs"]
            if not page.get("cursor"):
                return
            cursor = {"cursor": page["cursor"]}

    # Flows

    def run_flow(self, jobs: Sequence[Mapping[str, Any]], *, idempotency_key: Optional[str] = None) -> Record:
        """Submits a graph of jobs, all or none: `{"id", "jobs"}`. A job has a `name`, an `input`, perhaps `after`."""
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return self._json("POST", "/flows", {"jobs": list(jobs)}, headers=headers)

    def flow(self, flow: str) -> Record:
        return self._json("GET", f"/flows/{_quote(flow)}")

    def cancel_flow(self, flow: str) -> Record:
        return self._json("POST", f"/flows/{_quote(flow)}/cancel")

    def retry_flow(self, flow: str) -> Record:
        return self._json("POST", f"/flows/{_quote(flow)}/retry")

    # Batches, in the form of the OpenAI API

    def run_batch(
        self,
        lines: Union[BinaryIO, Iterable[Mapping[str, Any]]],
        *,
        route: str = "/v1/chat/completions",
        completion_window: str = "24h",
    ) -> Record:
        """Uploads requests and runs them: the batch. The whole file is in memory for the upload.

        `lines`: a file of JSON lines that is open for reading bytes, or the requests, each with a `custom_id`.
        """
        data = lines.read() if hasattr(lines, "read") else b"".join(_line(each) for each in lines)
        boundary = uuid.uuid4().hex
        head = 'Content-Disposition: form-data; name="%s"%s\r\n\r\n'
        body = b"".join(
            [
                f"--{boundary}\r\n{head % ('purpose', '')}batch\r\n--{boundary}\r\n".encode(),
                (head % ("file", '; filename="batch.jsonl"')).encode(),
                data,
                f"\r\n--{boundary}--\r\n".encode(),
            ]
        )
        content_type = f"multipart/form-data; boundary={boundary}"
        # Sent once: nobody knows whether an unanswered upload has made a file.
        answer, _ = self._call(
            "POST", "/openai/v1/files", body, headers={"Content-Type": content_type}, is_repeatable=False
        )
        batch = {"input_file_id": _parse(answer)["id"], "endpoint": route, "completion_window": completion_window}
        return self._json("POST", "/openai/v1/batches", batch, is_repeatable=False)

    def batch(self, batch: str) -> Record:
        return self._json("GET", f"/openai/v1/batches/{_quote(batch)}")

    def cancel_batch(self, batch: str) -> Record:
        return self._json("POST", f"/openai/v1/batches/{_quote(batch)}/cancel")

    def wait_for_batch(
        self, batch: str, *, every: float = 5.0, on_progress: Optional[Callable[[Record], None]] = None
    ) -> Record:
        """The batch when it has ended. `on_progress` is called with it each `every` seconds."""
        while True:
            record = self.batch(batch)
            if on_progress:
                on_progress(record)
            if record["status"] in ("completed", "failed", "expired", "cancelled"):
                return record
            time.sleep(every)

    def batch_results(self, batch: str) -> Iterator[Record]:
        """The lines of the output file and of the error file of a batch that has ended: each `custom_id` once."""
        record = self.batch(batch)
        for name in ("output_file_id", "error_file_id"):
            if record.get(name):
                body, _ = self._call("GET", f"/openai/v1/files/{_quote(record[name])}/content")
                yield from (_parse(line) for line in body.splitlines() if line)

    # Calls

    def _json(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        is_repeatable: bool = True,
    ) -> Record:
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        own = {"Content-Type": "application/json", **(headers or {})} if data is not None else headers
        answer, _ = self._call(
            method, path, data, query=query, headers=own, timeout=timeout, is_repeatable=is_repeatable
        )
        record: Record = _parse(answer)
        return record

    def _call(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        *,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        is_repeatable: bool = True,
    ) -> Tuple[bytes, HTTPMessage]:
        url = f"{self._base}{path}"
        if query:
            url += "?" + urllib.parse.urlencode(query, doseq=True)
        failures = 0
        while True:
            given = {"Accept": "application/json", **(headers or {})}
            request = urllib.request.Request(url, data=body, method=method, headers=given)
            if self._key:
                request.add_unredirected_header("Authorization", f"Bearer {self._key}")
            try:
                with self._opener.open(request, timeout=timeout or self._timeout) as response:
                    return response.read(), response.headers
            except urllib.error.HTTPError as error:
                with error:
                    refusal = _read_refusal(error)
                wait = _passing_wait(refusal, is_repeatable)
            except (OSError, HTTPException) as error:
                refusal = UnreachableError(f"{self._base} does not respond: {getattr(error, 'reason', error)}")
                wait = 0.0 if is_repeatable else None
            failures += 1
            if wait is None or failures > self._repeats:
                raise refusal
            time.sleep(max(wait, min(5.0, 0.2 * 2 ** (failures - 1)) * random.uniform(0.8, 1.2)))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key must not follow to another place."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _read_refusal(error: urllib.error.HTTPError) -> Exception:
    body = error.read()
    if not (error.headers.get("Content-Type") or "").startswith("application/"):
        return UnreachableError(f"HTTP {error.code}, not a response of Millrace: {body[:80]!r}")
    given = _parse(body)
    # Below /openai/v1 errors have the form of the OpenAI API.
    own = given.get("error") or {}
    problem = given if "status" in given else {**own, "detail": own.get("message")}
    problem.setdefault("status", error.code)
    problem.setdefault("title", error.reason)
    seconds = error.headers.get("Retry-After", "")
    return ApiError(problem, float(seconds) if seconds.isdigit() else None)


def _passing_wait(refusal: Exception, is_repeatable: bool) -> Optional[float]:
    """Wait before the call is repeated; None if it must not be. With 429 and 503 the platform has done nothing."""
    if not isinstance(refusal, ApiError):
        return 0.0 if is_repeatable else None
    wait = refusal.retry_after or 0.0
    return wait if refusal.status in (429, 503) and wait <= _MOST_WAIT_S else None


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise UnreachableError(f"the response is not JSON: {body[:80]!r}") from error


def _split_jobs(jobs: Iterable[Mapping[str, Any]]) -> Iterator[List[Mapping[str, Any]]]:
    some: List[Mapping[str, Any]] = []
    size = 0
    for job in jobs:
        length = len(json.dumps(job, allow_nan=False))
        if some and (len(some) == _JOBS_AT_ONCE or size + length > _BYTES_AT_ONCE):
            yield some
            some, size = [], 0
        some.append(job)
        size += length
    if some:
        yield some


def _join(pieces: Sequence[Mapping[str, Any]]) -> Json:
    """The value of its pieces. `encoding`: 0 for a string, 1 for an array, 2 for the JSON text of another value."""
    metrics = pieces[0]["metrics"]
    if "part" not in metrics:
        return pieces[0]["output"]
    if [piece["metrics"].get("part") for piece in pieces] != list(range(int(metrics["parts"]))):
        raise UnreachableError("the pieces of a large chunk are incomplete or out of order")
    outputs = [piece["output"] for piece in pieces]
    if metrics["encoding"] == 1:
        return [element for output in outputs for element in output]
    text = "".join(outputs)
    return text if metrics["encoding"] == 0 else json.loads(text)


def _own_metrics(metrics: Mapping[str, float]) -> Dict[str, float]:
    return {name: value for name, value in metrics.items() if name not in ("part", "parts", "encoding")}


def _line(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request, allow_nan=False).encode() + b"\n"


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    secret: Union[str, Sequence[str]],
    *,
    tolerance: float = 300.0,
    now: Optional[float] = None,
) -> Record:
    """The record in a webhook of the platform, if it is signed with the secret of the endpoint, or one of several.

    `body`: the raw bytes. `tolerance`: largest age of the signature, s. The format: https://www.standardwebhooks.com

    Raises `WebhookRefusedError` if no signature is valid, `ValueError` if a secret is not one that Millrace printed.
    """
    given = {name.lower(): value for name, value in headers.items()}
    values = [given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")]
    message, seconds, signatures = values
    if not message or not re.fullmatch(r"\d{1,12}", seconds) or not signatures:
        raise WebhookRefusedError("the webhook has no valid webhook-id, webhook-timestamp and webhook-signature")
    if abs((time.time() if now is None else now) - int(seconds)) > tolerance:
        raise WebhookRefusedError("the webhook was signed too long ago, or clocks differ")
    signed = f"{message}.{seconds}.".encode() + body
    for each in [secret] if isinstance(secret, str) else secret:
        right = b"v1," + base64.b64encode(hmac.new(_read_secret(each), signed, hashlib.sha256).digest())
        if any(hmac.compare_digest(right, one.encode()) for one in signatures.split(" ")):
            record: Record = json.loads(body)
            return record
    raise WebhookRefusedError("the webhook is not signed with this secret")


def _read_secret(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret[len("whsec_") :], validate=True) if secret.startswith("whsec_") else b""
    except binascii.Error:
        key = b""
    if len(key) != 32:
        raise ValueError("secret: expected whsec_ and 32 bytes in base64")
    return key
