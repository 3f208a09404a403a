// The `ctx` object of one attempt. It is created for every job, so expensive members are created on
// first use.
import { mkdirSync, mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { clearTimeout, setTimeout } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { checkMetrics, type Metrics } from '../../wire/chunk/chunk.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { stringifyJson } from '../../wire/json.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import type { ChunkWithMetrics, Context, MetricsRecorder } from '../define.ts';
import { createLinesLog, type LogBindings, type LogLines } from '../log-lines.ts';
import { type EndHold, type Held, HOLD } from './hold.ts';
import type { AttemptSteps } from './steps.ts';

/** At most one progress value is sent in this time, ms; the latest wins. */
const PROGRESS_EVERY_MS = 50;
const MAX_PROGRESS_BYTES = LIMITS.progressBytes;

/** Only the worker's user can read the files: jobs of other workers on the machine cannot. */
const OWN_ONLY = 0o700;
/** Code that the attempt left running may still create files. */
const REMOVE = { recursive: true, force: true, maxRetries: 3, retryDelay: 100 };

interface AttemptContextOptions {
  /** Number of the attempt within its thread. */
  number: number;
  attempt: number;
  /** The job must not share a batch. */
  solo: boolean;
  /** Members of every line of `log`. */
  logBindings: LogBindings;
  /** Unix ms. */
  deadline: number;
  traceparent: string | undefined;
  tracestate: string | undefined;
  devices: readonly Device[];
  /** Folder for the folders of attempts. Default: the system's temporary folder. */
  tempParent: string | undefined;
  lines: LogLines;
  /** Begins a hold: see hold.ts. */
  hold: () => EndHold;
  sendProgress: (value: Uint8Array) => void;
  /** Of the machine, Unix ms. */
  now: () => number;
  /** `limit`: name of a shared limit; without it, the job's group. */
  pause: (forMs: number, limit?: string) => void;
  /** Created on the first use of `step`, `run` or `sleep`. */
  steps: () => AttemptSteps;
}

/** Result of `ctx.chunk`; a plain object of the same shape is an ordinary output. */
export class MarkedChunk<Output> implements ChunkWithMetrics<Output> {
  readonly output: Output;
  readonly metrics: Metrics;

  constructor(output: Output, metrics: Metrics) {
    this.output = output;
    this.metrics = metrics;
  }
}

export class AttemptContext implements Context, Held {
  readonly devices: readonly Device[];
  readonly number: number;
  readonly attempt: number;
  readonly solo: boolean;
  /** Moves when the attempt has stood still. */
  deadline: number;
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
  readonly #options: AttemptContextOptions;
  #abortListener: ((reason: Error) => void) | undefined;
  #abort: AbortController | undefined;
  #log: Log | undefined;
  #recorder: PendingMetrics | undefined;
  #progress: Buffer | undefined;
  #progressTimer: NodeJS.Timeout | undefined;
  #tempFolder: TempFolder | undefined;
  #isClosed = false;
  #mustRecycle = false;

  constructor(options: AttemptContextOptions) {
    this.#options = options;
    this.devices = options.devices;
    this.number = options.number;
    this.solo = options.solo;
    this.attempt = options.attempt;
    this.deadline = options.deadline;
    this.traceparent = options.traceparent;
    this.tracestate = options.tracestate;
  }

  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    return this.#abort.signal;
  }

  get log(): Log {
    const { lines, logBindings } = this.#options;
    this.#log ??= createLinesLog(lines, logBindings);
    return this.#log;
  }

  get metrics(): MetricsRecorder {
    this.#recorder ??= new PendingMetrics();
    return this.#recorder;
  }

  get step(): Context['step'] {
    return this.#options.steps().step;
  }

  get run(): Context['run'] {
    return this.#options.steps().run;
  }

  get sleep(): Context['sleep'] {
    return this.#options.steps().sleep;
  }

  [HOLD] = (): EndHold => this.#options.hold();

  // Fields and not methods, so that `const { progress, chunk } = ctx` works.
  progress = (value: unknown): void => {
    const json = Buffer.from(stringifyJson(value, 'progress'));
    if (json.length > MAX_PROGRESS_BYTES) {
      throw new TypeError(
        `progress is ${json.length} bytes of JSON; the limit is ${MAX_PROGRESS_BYTES}`,
      );
    }
    if (this.#isClosed) return;
    this.#progress = json;
    if (this.#progressTimer === undefined) this.#sendProgress();
  };

  pauseGroup = (until: Date | number): void => {
    const forMs = this.#measurePause('pauseGroup', until);
    if (forMs > 0) this.#options.pause(Math.min(forMs, LIMITS.pauseGroupMs));
  };

  pauseLimit = (name: string, until: Date | number): void => {
    const forMs = this.#measurePause('pauseLimit', until);
    if (forMs > 0) this.#options.pause(Math.min(forMs, LIMITS.pauseLimitMs), String(name));
  };

  /** @throws TypeError */
  #measurePause(method: string, until: Date | number): number {
    const at = until instanceof Date ? until.getTime() : until;
    if (typeof at !== 'number' || !Number.isFinite(at)) {
      throw new TypeError(`${method} takes a Date or Unix ms`);
    }
    return this.#isClosed ? 0 : Math.ceil(at - this.#options.now());
  }

  chunk = <Output>(output: Output, metrics: Metrics): ChunkWithMetrics<Output> => {
    checkMetrics(metrics);
    return new MarkedChunk(output, { ...metrics });
  };

  tempFolder = (): string => {
    if (!this.#tempFolder) {
      const { number, tempParent: parent } = this.#options;
      this.#tempFolder = new TempFolder(parent ? { parent, name: `${number}` } : undefined);
      if (this.#isClosed) void this.#tempFolder.remove();
    }
    return this.#tempFolder.open();
  };

  refreshWorker = (): void => {
    this.#mustRecycle = true;
  };

  /** `refreshWorker` was called. */
  get mustRecycle(): boolean {
    return this.#mustRecycle;
  }

  /** Returns the metrics for the next chunk and starts over. */
  takeMetrics(): Metrics | undefined {
    return this.#recorder?.take();
  }

  abort(reason: Error): void {
    this.#abort ??= new AbortController();
    this.#abort.abort(reason);
    this.#abortListener?.(reason);
  }

  /** Sets the one listener, which is called with the reason when the attempt is stopped. */
  onAbort(listener: (reason: Error) => void): void {
    this.#abortListener = listener;
  }

  /** The attempt is over: sends the held-back progress value and ignores later calls. */
  close(): void {
    this.#isClosed = true;
    // The outcome does not wait for the disk.
    void this.#tempFolder?.remove();
    if (this.#progressTimer) clearTimeout(this.#progressTimer);
    if (this.#progress) this.#options.sendProgress(this.#progress);
    this.#progress = undefined;
  }

  #sendProgress(): void {
    this.#progressTimer = undefined;
    if (!this.#progress) return;
    this.#options.sendProgress(this.#progress);
    this.#progress = undefined;
    this.#progressTimer = setTimeout(() => this.#sendProgress(), PROGRESS_EVERY_MS);
  }
}

class PendingMetrics implements MetricsRecorder {
  #values: Metrics | undefined;

  add = (name: string, value: number): void => {
    checkMetrics({ [name]: value });
    this.#store(name, (this.#values?.[name] ?? 0) + value);
  };

  set = (name: string, value: number): void => {
    this.#store(name, value);
  };

  take(): Metrics | undefined {
    const values = this.#values;
    this.#values = undefined;
    return values;
  }

  #store(name: string, value: number): void {
    // All names are checked only when a new one is added: the size hardly changes otherwise.
    const isNew = this.#values === undefined || !Object.hasOwn(this.#values, name);
    checkMetrics(isNew ? { ...this.#values, [name]: value } : { [name]: value });
    this.#values ??= {};
    this.#values[name] = value;
  }
}

class TempFolder {
  readonly #choosePath: () => string;
  #path: string | undefined;
  #isOver = false;

  /** `place`: folder of the thread, and a name that is unique in it. Default: in the system's temporary folder. */
  constructor(place?: { parent: string; name: string }) {
    this.#choosePath = () => {
      if (!place) return mkdtempSync(join(tmpdir(), 'millrace-attempt-'));
      const path = join(place.parent, place.name);
      mkdirSync(path, { recursive: true, mode: OWN_ONLY });
      return path;
    };
  }

  /** Creates the folder on the first call. @throws Error if the attempt has ended, or of the file system */
  open(): string {
    if (this.#isOver) throw new Error('the attempt has ended: it has no temporary folder any more');
    this.#path ??= this.#choosePath();
    return this.#path;
  }

  /** The attempt has ended. What cannot be removed now is removed with the thread's folder. */
  async remove(): Promise<void> {
    this.#isOver = true;
    if (this.#path !== undefined) await rm(this.#path, REMOVE).catch(() => undefined);
  }
}
