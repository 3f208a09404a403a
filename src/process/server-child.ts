// A child that is an HTTP server: its port, its readiness, its health, its sleep, and the requests to it. program.ts runs its
// program; child-keeper.ts replaces it.
import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { Dispatcher } from 'undici';
import { loadUndici } from '../base/net/undici.ts';
import type { KeptChild } from './child-keeper.ts';
import { type ChildEnd, type OutputStream, Program } from './program.ts';
import { bindPort, type CompleteServerOptions, type ServerHook } from './server-options.ts';
import type { RunningRequests } from './server-requests.ts';

/** Between two checks of whether it is ready. */
const POLL_MS = 100;
/** A server that loads its model may accept connections and not answer. */
const ANSWER_MS = 2_000;
/** The server is replaced after this many bad checks in a row. */
const CHECKS = 4;
/** Of an answer, in an error, characters. */
const MAX_ANSWER = 500;

export interface SentRequest {
  method: Dispatcher.HttpMethod;
  path: string;
  headers?: Readonly<Record<string, string>>;
  body?: string | Uint8Array | null;
  signal?: AbortSignal | undefined;
}

export type ServerAnswer = Dispatcher.ResponseData;

/** `silent`: there was no answer in time. */
type Health = 'good' | 'bad' | 'silent';

export class ServerChild implements KeptChild {
  readonly url: string;
  readonly ready: Promise<readonly string[]>;
  readonly ended: Promise<ChildEnd>;
  isSuspended = false;
  readonly #options: CompleteServerOptions;
  readonly #requests: RunningRequests;
  readonly #program: Program;
  readonly #guard: ChildProcess | undefined;
  readonly #dispatcher: Dispatcher;
  /** Aborts when it has ended. */
  readonly #end = new AbortController();
  #isEnding = false;
  #isAsleep = false;
  #health: NodeJS.Timeout | undefined;

  constructor(
    options: CompleteServerOptions,
    requests: RunningRequests,
    line: (stream: OutputStream, line: string) => void,
  ) {
    this.#options = options;
    this.#requests = requests;
    const port = findFreePort();
    this.url = `http://127.0.0.1:${port}`;
    // No connection is kept: the server may close it at the moment when a request is sent. It decides how long an answer takes.
    this.#dispatcher = new (loadUndici().Agent)({
      pipelining: 0,
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    const { command, cwd } = options;
    this.#program = new Program(
      {
        ...bindPort(options, port),
        command,
        cwd,
        stdio: ['ignore', 'pipe', 'pipe'],
        explains: ['stdout', 'stderr'],
      },
      {
        line,
        exit: () => {
          this.#isEnding = true;
          this.#guard?.kill('SIGKILL');
        },
        settle: (reason) => {
          clearInterval(this.#health);
          this.#end.abort(new Error(reason));
          void this.#dispatcher.destroy();
        },
      },
    );
    this.#guard = this.pid === undefined ? undefined : guardGroup(this.pid);
    this.ended = this.#program.ended;
    this.ready = this.#becomeReady();
    this.ready.catch(() => undefined);
  }

  get pid(): number | undefined {
    return this.#program.pid;
  }

  get isEnding(): boolean {
    return this.#isEnding;
  }

  get hasHooks(): boolean {
    return this.#options.hooks !== undefined;
  }

  /** @throws Error of the connection, or the reason of `signal` */
  request({ body = null, headers = {}, method, path, signal }: SentRequest): Promise<ServerAnswer> {
    const request = { origin: this.url, method, path, headers: { ...headers }, body };
    return this.#dispatcher.request({ ...request, ...(signal && { signal }) });
  }

  async move(to: 'park' | 'wake', limitMs: number): Promise<number> {
    const { hooks } = this.#options;
    if (!hooks) throw new Error('the model server has no sleep and wake');
    const signal = AbortSignal.any([this.#end.signal, AbortSignal.timeout(limitMs)]);
    // It may not answer on its way there and back. After a failure it is ended.
    this.#isAsleep = true;
    try {
      const told = await this.#run(hooks[to], 'POST', signal);
      this.#isAsleep = to === 'park';
      return typeof told === 'number' && Number.isSafeInteger(told) && told > 0 ? told : 0;
    } catch (error) {
      if (!signal.aborted || this.#end.signal.aborted) throw error;
      const name = to === 'park' ? 'sleep' : 'wake';
      throw new Error(`${name} of the model server took longer than ${limitMs} ms`);
    }
  }

  fail(reason: string, culprit?: number): void {
    this.#isEnding = true;
    this.#program.fail(reason, culprit);
  }

  /** Waits for its requests, asks it to exit, and kills it after `stopTimeoutMs`. */
  async stop(): Promise<void> {
    this.setActive(true);
    this.#isEnding = true;
    const { stopTimeoutMs } = this.#options;
    const timer = setTimeout(() => this.fail('was stopped'), stopTimeoutMs);
    const { signal } = this.#end;
    const half = delay(stopTimeoutMs / 2, undefined, { signal }).catch(() => undefined);
    await Promise.race([this.#requests.untilIdle(), half]);
    this.#program.terminate();
    await this.ended;
    clearTimeout(timer);
  }

  setActive(isActive: boolean): void {
    this.#program.setActive(isActive);
  }

  async #becomeReady(): Promise<readonly string[]> {
    const { signal } = this.#end;
    while ((await this.#check(ANSWER_MS)) !== 'good') {
      signal.throwIfAborted();
      await delay(POLL_MS);
    }
    this.#watchHealth();
    return [];
  }

  #watchHealth(): void {
    const { hangTimeoutMs } = this.#options;
    if (hangTimeoutMs === 0 || this.#end.signal.aborted) return;
    const everyMs = Math.max(1, hangTimeoutMs / CHECKS);
    let bad = 0;
    let isChecking = false;
    const check = async () => {
      if (isChecking || this.isSuspended || this.#isAsleep) return;
      isChecking = true;
      const health = await this.#check(everyMs);
      isChecking = false;
      if (health === 'good') bad = 0;
      else if (health === 'bad' || this.#requests.size === 0) bad += 1;
      if (bad >= CHECKS && !this.isSuspended && !this.#isAsleep) {
        this.fail(`has not been healthy for ${hangTimeoutMs} ms`);
      }
    };
    this.#health = setInterval(() => void check(), everyMs).unref();
  }

  async #check(limitMs: number): Promise<Health> {
    const signal = AbortSignal.any([this.#end.signal, AbortSignal.timeout(limitMs)]);
    try {
      return (await this.#run(this.#options.ready, 'GET', signal)) ? 'good' : 'bad';
    } catch {
      return signal.aborted ? 'silent' : 'bad';
    }
  }

  /** @returns true if the path answered with success, or the result of the function. @throws Error if it did not, or `signal` aborts */
  async #run(
    hook: ServerHook<unknown>,
    method: Dispatcher.HttpMethod,
    signal: AbortSignal,
  ): Promise<unknown> {
    signal.throwIfAborted();
    if (typeof hook === 'function') {
      const { promise, reject } = Promise.withResolvers<never>();
      const abort = () => reject(signal.reason);
      signal.addEventListener('abort', abort, { once: true });
      try {
        return await Promise.race([hook(this.url, signal), promise]);
      } finally {
        signal.removeEventListener('abort', abort);
      }
    }
    const { body, statusCode } = await this.request({ method, path: hook, signal });
    if (statusCode >= 200 && statusCode < 300) {
      await body.dump();
      return true;
    }
    const text = (await readStart(body, MAX_ANSWER)).toString('utf8');
    throw new Error(`${method} ${hook} of the model server answered ${statusCode}: ${text}`);
  }
}

/** The first bytes of a body; the rest is discarded. */
export async function readStart(body: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes >= maxBytes) break;
  }
  return Buffer.concat(pieces).subarray(0, maxBytes);
}

/** It was free a moment ago on all addresses. */
function findFreePort(): number {
  // Without an address, the system binds at once.
  const probe = createServer().listen(0);
  const address = probe.address();
  probe.close();
  if (typeof address === 'object' && address !== null) return address.port;
  throw new Error('the system has no free port');
}

/**
 * Kills the group when this thread or process ends in any way: only its descriptor tells the guard. The caller kills the guard
 * when the group has ended.
 */
function guardGroup(id: number): ChildProcess {
  const guard = spawn('sh', ['-c', 'read _; kill -s KILL -- "-$1"', 'sh', String(id)], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  guard.on('error', () => undefined);
  guard.stdin.on('error', () => undefined);
  guard.unref();
  if ('unref' in guard.stdin && typeof guard.stdin.unref === 'function') guard.stdin.unref();
  return guard;
}
