// Simulates the network behaviour of a runpod-python worker: its requests with their headers and spaces,
// and its reactions to answers. It polls again at once, repeats a result twice after a 5xx, drops it after
// any other error, and posts nothing for a stopped job.
import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

export interface PythonJob {
  id: string;
  input: unknown;
  s3Config?: unknown;
}

/** Returns the output, or yields outputs; a thrown error becomes a Python RuntimeError. */
export type PythonHandler = (
  job: PythonJob,
  tools: { signal: AbortSignal; progress: (value: unknown) => Promise<void> },
) => unknown;

export interface PythonWorkerOptions {
  /** As `millrace endpoints env --runpod` prints it. */
  environment: Readonly<Record<string, string>>;
  handler: PythonHandler;
  /** Default 1. */
  concurrency?: number;
  /** Waits between attempts to post a result, ms. Default: 2,000 and 3,000, as in runpod-python. */
  resultWaitsMs?: [number, number];
  /** Wait between polls while the queue is full, ms; 1,000 in runpod-python. Default: 20. */
  fullWaitMs?: number;
  /** Like `return_aggregate_stream`: the result of a generator contains all yielded values. */
  aggregates?: boolean;
  /** Like `refresh_worker`: requests its replacement with each result, and exits. */
  refreshes?: boolean;
  /** Whether the connection breaks when the worker posts the result, so that the result is lost. */
  losesResult?: (job: PythonJob) => boolean;
}

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

/** Writes JSON as Python does. */
export function toPythonJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(toPythonJson).join(', ')}]`;
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value ?? null);
  const members = Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}: ${toPythonJson(v)}`);
  return `{${members.join(', ')}}`;
}

export class PythonWorker {
  /** Job IDs in order of arrival; a redelivered job appears twice. */
  readonly ran: string[] = [];
  readonly stopped: string[] = [];
  readonly dropped: string[] = [];
  readonly #options: PythonWorkerOptions;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #ended = new AbortController();
  readonly #running = new Map<string, AbortController>();
  readonly #loops: Promise<void>[];
  #isLeaving = false;
  /** The last job with a post; all requests except pings send it as a header. */
  #requestId: string | undefined;

  constructor(options: PythonWorkerOptions) {
    this.#options = options;
    this.#loops = [this.#takeJobs(), this.#watchStops(), this.#ping()];
  }

  /** Resolves when the worker has exited on its own. */
  get left(): Promise<unknown> {
    return Promise.all(this.#loops);
  }

  /** Kills the worker. */
  async die(): Promise<void> {
    this.#ended.abort();
    for (const running of this.#running.values()) running.abort();
    this.#agent.destroy();
    await Promise.all(this.#loops);
  }

  get jobIds(): string[] {
    return [...this.#running.keys()];
  }

  async #takeJobs(): Promise<void> {
    const { concurrency = 1, fullWaitMs = 20 } = this.#options;
    while (!this.#ended.signal.aborted && !this.#isLeaving) {
      const needed = concurrency - this.#running.size;
      if (needed <= 0) {
        await sleep(fullWaitMs);
        continue;
      }
      const busy = `job_in_progress=${this.#running.size > 0 ? 1 : 0}`;
      const url = this.#variable('GET_JOB').replaceAll('$ID', this.#id);
      const answer = await this.#poll(
        needed === 1
          ? `${url}&${busy}`
          : `${url.replace('/job-take/', '/job-take-batch/')}&batch_size=${needed}&${busy}`,
      );
      if (answer?.status === 429) await sleep(50);
      const isJson = answer?.headers['content-type']?.startsWith('application/json');
      if (answer?.status !== 200 || !isJson) continue;
      const jobs: PythonJob[] = [JSON.parse(answer.body)].flat();
      for (const job of jobs) void this.#run(job);
    }
  }

  async #watchStops(): Promise<void> {
    const url = this.#variable('GET_JOB').replaceAll('$ID', this.#id);
    while (!this.#ended.signal.aborted && !this.#isLeaving) {
      const answer = await this.#poll(url.replace('/job-take/', '/job-stop/'));
      if (answer?.status === 204) continue;
      if (answer?.status !== 200) {
        await sleep(20);
        continue;
      }
      for (const id of JSON.parse(answer.body).jobsToStop) {
        if (!this.#running.has(id)) continue;
        this.stopped.push(id);
        this.#running.get(id)?.abort();
      }
    }
  }

  async #ping(): Promise<void> {
    const interval = Number(this.#options.environment['RUNPOD_PING_INTERVAL']);
    while (!this.#ended.signal.aborted && !this.#isLeaving) {
      const url = this.#variable('PING').replaceAll('$RUNPOD_POD_ID', this.#id);
      const ids = [...this.#running.keys()].join('%2C');
      const named = ids === '' ? '' : `job_id=${ids}&`;
      const separator = url.includes('?') ? '&' : '?';
      await this.#get(`${url}${separator}${named}runpod_version=1.12.0`);
      await sleep(interval, undefined, { signal: this.#ended.signal }).catch(() => {});
    }
  }

  async #run(job: PythonJob): Promise<void> {
    this.ran.push(job.id);
    const stop = new AbortController();
    this.#running.set(job.id, stop);
    try {
      await this.#handle(job, stop.signal);
    } finally {
      this.#running.delete(job.id);
    }
  }

  async #handle(job: PythonJob, signal: AbortSignal): Promise<void> {
    let isStream = false;
    let body: string;
    try {
      const progress = async (output: unknown) => {
        const report = toPythonJson({ status: 'IN_PROGRESS', output });
        await this.#postOnce('OUTPUT', job.id, report, false);
      };
      const returned: unknown = await this.#options.handler(job, { signal, progress });
      isStream = isIterable(returned);
      if (isIterable(returned)) {
        const outputs: unknown[] = [];
        for await (const output of returned) {
          if (signal.aborted) return;
          if (this.#options.aggregates) outputs.push(output);
          await this.#post('STREAM', job.id, toPythonJson({ output }), false);
        }
        body = toPythonJson({ output: outputs });
      } else body = encodeReturned(returned);
    } catch (error) {
      body = encodeRaised(error, this.#id);
    }
    if (signal.aborted) return;
    if (this.#options.losesResult?.(job)) return void this.dropped.push(job.id);
    if (this.#options.refreshes) body = `${body.slice(0, -1)}, "stopPod": true}`;
    await this.#post('OUTPUT', job.id, body, isStream);
    if (this.#options.refreshes) this.#isLeaving = true;
  }

  async #post(kind: 'OUTPUT' | 'STREAM', id: string, body: string, isStream: boolean) {
    const waits = [...(this.#options.resultWaitsMs ?? [2_000, 3_000]), 0];
    for (const waitMs of waits) {
      const answer = await this.#postOnce(kind, id, body, isStream);
      if (answer && answer.status < 400) return;
      if (!answer || answer.status < 500) break;
      await sleep(waitMs);
    }
    this.dropped.push(id);
  }

  #postOnce(kind: 'OUTPUT' | 'STREAM', id: string, body: string, isStream: boolean) {
    this.#requestId = id;
    const template = this.#variable(`POST_${kind}`);
    const url = template.replaceAll('$RUNPOD_POD_ID', this.#id).replaceAll('$ID', id);
    const headers = {
      'Content-Type': 'application/x-www-form-urlencoded',
      charset: 'utf-8',
      'X-Request-ID': id,
    };
    return this.#call('POST', `${url}&isStream=${isStream}`, { headers, body });
  }

  #get(url: string): Promise<Answer | undefined> {
    return this.#call('GET', url, { headers: { 'Content-Type': 'application/json' } });
  }

  #poll(url: string): Promise<Answer | undefined> {
    const headers = { 'Content-Type': 'application/json' };
    const stale = this.#requestId === undefined ? {} : { 'X-Request-ID': this.#requestId };
    return this.#call('GET', url, { headers: { ...headers, ...stale } });
  }

  /** Returns undefined if the connection broke. */
  #call(
    method: string,
    url: string,
    { body, headers }: { body?: string; headers: Record<string, string> },
  ): Promise<Answer | undefined> {
    const { hostname, port } = new URL(url);
    // Sends the path unchanged, without normalization.
    const path = url.slice(url.indexOf('/', 'http://'.length));
    const own = {
      Authorization: this.#options.environment['RUNPOD_AI_API_KEY'] ?? '',
      'User-Agent': 'RunPod-Python-SDK/1.12.0 (Linux 6.1.0; x86_64) Language/Python 3.11.2',
      'Accept-Encoding': 'gzip, deflate',
      Accept: '*/*',
      ...headers,
      ...(body !== undefined && { 'Content-Length': String(Buffer.byteLength(body)) }),
    };
    return new Promise((resolve) => {
      const { signal } = this.#ended;
      const sent = request(
        { method, hostname, port, path, headers: own, agent: this.#agent, signal },
        (response) => {
          let text = '';
          response.setEncoding('utf8');
          response.on('data', (piece) => {
            text += piece;
          });
          const { headers: given, statusCode = 0 } = response;
          response.on('end', () => resolve({ status: statusCode, headers: given, body: text }));
          response.on('error', () => resolve(undefined));
        },
      );
      sent.on('error', () => resolve(undefined));
      sent.end(body);
    });
  }

  get #id(): string {
    return this.#options.environment['RUNPOD_POD_ID'] ?? '';
  }

  #variable(name: string): string {
    return this.#options.environment[`RUNPOD_WEBHOOK_${name}`] ?? '';
  }
}

function isIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
}

function encodeReturned(returned: unknown): string {
  if (typeof returned !== 'object' || returned === null || Array.isArray(returned)) {
    return toPythonJson({ output: returned });
  }
  const members = new Map(Object.entries(returned));
  const error = members.get('error');
  const recycle = Boolean(members.get('refresh_worker'));
  members.delete('error');
  members.delete('refresh_worker');
  return toPythonJson({
    ...(members.size > 0 && { output: Object.fromEntries(members) }),
    ...(error ? { error } : {}),
    ...(recycle && { stopPod: true }),
  });
}

function encodeRaised(error: unknown, worker: string): string {
  const message = error instanceof Error ? error.message : String(error);
  const raised = {
    error_type: "<class 'RuntimeError'>",
    error_message: message,
    error_traceback: `Traceback (most recent call last):\nRuntimeError: ${message}\n`,
    hostname: `${worker}-host`,
    worker_id: worker,
    runpod_version: '1.12.0',
  };
  return toPythonJson({ error: toPythonJson(raised) });
}
