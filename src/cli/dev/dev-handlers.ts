// Manages the handler files of `millrace dev`: finds them, decides which ones a change concerns, and runs a worker process
// for each, which the next one replaces when the file changes.
import { existsSync } from 'node:fs';
import { dirname, sep } from 'node:path';
import { backoffMs } from '../../base/backoff.ts';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { launcherPath } from '../../base/package-info.ts';
import { PlatformOptionError } from '../../platform/option-error.ts';
import type { RunningPlatform } from '../../platform/running-platform.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import {
  describeEnd,
  type ProcessEnd,
  WorkerProcess,
} from '../../worker/supervisor/worker-process.ts';
import { EXIT } from '../command.ts';
import { inheritWithoutKeys } from '../config.ts';
import { readLogEntry, showLogLines } from '../terminal-log.ts';
import { DEVICE_SET_VARIABLE } from '../worker/worker-flags.ts';
import { findHandlers, type HandlerFile } from './handler-files.ts';

interface DevTerms {
  platform: RunningPlatform;
  workerKey: string;
  clock: Clock;
  log: Log;
  workerLogLevel: string;
  /** The machine's devices; the workers are not pinned, and each may use all of them. */
  devices: readonly Device[];
}

interface DevHandlersOptions extends DevTerms {
  /** Files and folders, as given. */
  paths: readonly string[];
  /** Called when a new file has become an endpoint after the start. */
  onAdded: (endpoint: DevEndpoint) => Promise<void>;
}

export class DevHandlers {
  readonly #options: DevHandlersOptions;
  /** Endpoints by file. */
  readonly #endpoints = new Map<string, DevEndpoint>();
  readonly #leaving = new Set<Promise<void>>();
  /** Number of workers started so far. */
  #workers = 0;
  #areDeclared = false;
  #isStopping = false;

  constructor(options: DevHandlersOptions) {
    this.#options = options;
  }

  /** Resolves when each handler is served or has failed to load. */
  async start(): Promise<void> {
    const found = findHandlers(this.#options.paths);
    const declared = await Promise.all(found.map((handler) => this.#declare(handler)));
    this.#areDeclared = true;
    await Promise.all(declared.map((endpoint) => endpoint?.reload()));
  }

  /** Each handler found at the start has its endpoint, with or without a worker. */
  get areDeclared(): boolean {
    return this.#areDeclared;
  }

  list(): DevEndpoint[] {
    return [...this.#endpoints.values()].sort((a, b) => (a.endpointId < b.endpointId ? -1 : 1));
  }

  /** What is known of the worker of the endpoint, for the reason why its jobs wait. */
  scalingOf(endpointId: string): KnownScaling {
    const all = [...this.#endpoints.values()];
    return all.find((endpoint) => endpoint.endpointId === endpointId)?.scaling ?? 'none';
  }

  /** Adds, removes and reloads handlers after these modules were changed. */
  async follow(changed: ReadonlySet<string>): Promise<void> {
    if (this.#isStopping) return;
    const found = this.#findFiles();
    if (!found) return;
    const files = new Set(found.map(({ path }) => path));
    const handlerFiles = new Set([...files, ...this.#endpoints.keys()]);
    for (const [file, endpoint] of this.#endpoints) {
      // A build may be making the folder again.
      if (!files.has(file) && existsSync(dirname(file))) this.#remove(endpoint);
    }
    const added = found.filter(({ path }) => !this.#endpoints.has(path));
    const change = { changed, handlerFiles };
    const concerned = this.list().filter(({ file }) => isConcerned(file, change));
    await Promise.all([
      ...added.map(async (handler) => {
        this.#options.log.info({ endpoint: handler.endpointId }, 'handler added');
        const endpoint = await this.#declare(handler);
        await endpoint?.reload();
        if (endpoint) await this.#options.onAdded(endpoint);
      }),
      ...concerned.map((endpoint) => endpoint.reload()),
    ]);
  }

  /** Drains; resolves when all workers have exited. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all([...this.list().map((endpoint) => endpoint.stop()), ...this.#leaving]);
  }

  /** Finds the handler files. Undefined if two files have the same endpoint name. */
  #findFiles(): HandlerFile[] | undefined {
    try {
      return findHandlers(this.#options.paths, { missing: 'skipped' });
    } catch (error) {
      this.#options.log.error(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }

  /** Returns undefined if the file's name is no valid endpoint name, or is taken. */
  async #declare(handler: HandlerFile): Promise<DevEndpoint | undefined> {
    const { path } = handler;
    const { log, platform } = this.#options;
    try {
      await platform.declareEndpoint(handler.endpointId);
    } catch (error) {
      const reason = error instanceof PlatformOptionError ? error.problem : String(error);
      log.error({ file: path }, `file name is not a valid endpoint ID: ${reason}`);
      return undefined;
    }
    if (this.#isStopping || this.#endpoints.has(path)) return undefined;
    const endpoint = new DevEndpoint(handler, this.#options, () => {
      this.#workers += 1;
      return this.#workers;
    });
    this.#endpoints.set(path, endpoint);
    return endpoint;
  }

  #remove(endpoint: DevEndpoint): void {
    this.#options.log.info({ endpoint: endpoint.endpointId }, 'handler removed');
    this.#endpoints.delete(endpoint.file);
    const left = endpoint.stop().finally(() => this.#leaving.delete(left));
    this.#leaving.add(left);
  }
}

interface FileChange {
  changed: ReadonlySet<string>;
  /** A change of a handler file reloads only its own endpoint. */
  handlerFiles: ReadonlySet<string>;
}

function isConcerned(file: string, { changed, handlerFiles }: FileChange): boolean {
  if (changed.has(file)) return true;
  const folder = dirname(file) + sep;
  for (const path of changed) {
    const isOwn = path.startsWith(folder) && !/\.(test|spec)\.[a-z]+$/.test(path);
    if (isOwn && !handlerFiles.has(path)) return true;
  }
  return false;
}

const RESTART_PACE = { baseMs: 500, maxMs: 30_000, jitter: 0.2 };
/** After this run time, the next crash of a worker counts as its first, ms. */
const WELL_AFTER_MS = 60_000;

export class DevEndpoint {
  readonly file: string;
  readonly endpointId: string;
  readonly #terms: DevTerms;
  readonly #nextWorkerNumber: () => number;
  readonly #log: Log;
  readonly #alive = new Set<WorkerProcess>();
  /** The worker that takes jobs. */
  #current: WorkerProcess | undefined;
  /** The worker that loads the handler and will replace the current one. */
  #candidate: WorkerProcess | undefined;
  #starting: DevWorkerState['starting'];
  #failure: DevFailure | undefined;
  #starts = 0;
  #crashes = 0;
  #cancelRestart: () => void = () => {};
  /** A candidate was given up for a newer one, and none has been decided on since. */
  #hasGivenUp = false;
  /** The file has changed again since the candidate started. */
  #isOutdated = false;
  #isStopping = false;

  /** `nextWorkerNumber` returns a new number for each worker of any endpoint. */
  constructor(handler: HandlerFile, terms: DevTerms, nextWorkerNumber: () => number) {
    this.file = handler.path;
    this.endpointId = handler.endpointId;
    this.#terms = terms;
    this.#nextWorkerNumber = nextWorkerNumber;
    this.#log = terms.log.child({ endpoint: handler.endpointId });
  }

  get isServed(): boolean {
    return this.#current !== undefined;
  }

  /** For the reason why jobs wait. */
  get scaling(): KnownScaling {
    const starting = this.#candidate ? this.#starting : undefined;
    return describeDevScaling({ isServed: this.isServed, starting, failure: this.#failure });
  }

  /**
   * Starts a worker for the current version of the file. When it takes jobs, the previous worker
   * drains; if it cannot be started, the previous worker stays. Resolves when that is decided.
   *
   * A newer version replaces a worker that still loads, but not twice in a row: a file that never rests would keep all
   * of them from loading.
   */
  async reload(): Promise<void> {
    if (this.#isStopping) return;
    if (this.#candidate && this.#hasGivenUp) {
      this.#isOutdated = true;
      return;
    }
    this.#cancelRestart();
    this.#hasGivenUp = this.#candidate !== undefined;
    this.#candidate?.kill();
    const candidate = this.#start();
    this.#candidate = candidate;
    const isReady = await candidate.ready;
    if (this.#candidate !== candidate) return;
    this.#candidate = undefined;
    this.#hasGivenUp = false;
    if (isReady) this.#replace(candidate);
    else this.#explainFailure(candidate);
    if (!this.#isOutdated) return;
    this.#isOutdated = false;
    await this.reload();
  }

  #replace(candidate: WorkerProcess): void {
    this.#failure = undefined;
    const before = this.#current;
    this.#current = candidate;
    if (before) {
      this.#log.info('handler reloaded');
      before.drain();
    } else if (this.#starts > 1) this.#log.info('handler ready');
  }

  /** Drains; resolves when every worker of the endpoint has exited. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#cancelRestart();
    this.#candidate?.kill();
    this.#candidate = undefined;
    for (const worker of this.#alive) worker.drain();
    await Promise.all([...this.#alive].map((worker) => worker.ended));
  }

  #start(): WorkerProcess {
    const { clock } = this.#terms;
    this.#starts += 1;
    const workerId = `dev-${this.endpointId}-${this.#nextWorkerNumber()}`;
    this.#starting = { workerId, since: clock.now() };
    const worker = this.#startProcess(workerId);
    const startedAt = clock.now();
    this.#alive.add(worker);
    void worker.ended.then((end) => this.#takeLeave(worker, end, clock.now() - startedAt));
    return worker;
  }

  #startProcess(workerId: string): WorkerProcess {
    const { devices, platform, workerKey, workerLogLevel } = this.#terms;
    const { endpointId, file } = this;
    const named = [`--worker-id=${workerId}`, `--endpoint=${endpointId}`, `--url=${platform.url}`];
    const flags = ['--under-dev', '--link=http', ...named, `--log-level=${workerLogLevel}`];
    return new WorkerProcess({
      command: [process.execPath, launcherPath, 'worker', file, ...flags],
      environment: inheritWithoutKeys({ [DEVICE_SET_VARIABLE]: JSON.stringify(devices) }),
      input: JSON.stringify({ MILLRACE_KEY: workerKey }),
      onLine: (line) => showWorkerLine(endpointId, line),
    });
  }

  async #takeLeave(worker: WorkerProcess, end: ProcessEnd, livedMs: number): Promise<void> {
    this.#alive.delete(worker);
    const wasCurrent = this.#current === worker;
    if (wasCurrent) this.#current = undefined;
    if (end.code !== 0) await this.#sayBye(worker, end);
    if (!wasCurrent || this.#isStopping) return;
    this.#crashes = livedMs >= WELL_AFTER_MS ? 1 : this.#crashes + 1;
    const waitMs = backoffMs(this.#crashes, RESTART_PACE);
    const since = this.#terms.clock.now();
    const reason = describeEnd(end);
    this.#failure = { reason, isHandler: false, since, restartAt: since + Math.ceil(waitMs) };
    this.#log.error({ ...end, restartInMs: waitMs }, 'worker process exited');
    if (this.#candidate) return;
    this.#cancelRestart = this.#terms.clock.after(waitMs, () => void this.reload());
  }

  /** Returns the worker's jobs to the queue at once, not when their leases expire. */
  async #sayBye({ identity }: WorkerProcess, end: ProcessEnd): Promise<void> {
    if (!identity) return;
    try {
      const bye = { reason: 'crashed' as const, outbox: [], detail: describeEnd(end) };
      await this.#terms.platform.queue.link(this.endpointId).bye({ ...identity, ...bye });
    } catch (error) {
      // The worker sent no hello, or its leases will expire.
      this.#log.debug({ err: error, ...identity }, 'releasing the jobs of the worker failed');
    }
  }

  #explainFailure({ failure }: WorkerProcess): void {
    this.#failure = {
      reason: failure?.reason ?? 'its worker ended before it was ready',
      isHandler: failure?.exitCode === EXIT.notLoaded,
      since: this.#terms.clock.now(),
      restartAt: null,
    };
    const instead = this.#current
      ? 'Still serving the previous version.'
      : 'Its jobs wait until the file changes.';
    const [first = '', ...stack] = this.#failure.reason
      .replaceAll(process.cwd() + sep, '')
      .split('\n');
    // On a terminal, the stack has lines of its own.
    const err = stack.length > 0 && {
      err: { type: 'HandlerNotLoadedError', message: stack.join('\n') },
    };
    const text = `${first.replace(/\.?$/, '.')} ${instead}`;
    this.#log.error({ file: this.file, ...err }, text);
  }
}

interface DevWorkerState {
  /** A worker takes jobs. */
  isServed: boolean;
  /** The worker that loads the handler. */
  starting: { workerId: string; since: number } | undefined;
  /** Why the last worker ended. */
  failure: DevFailure | undefined;
}

interface DevFailure {
  reason: string;
  isHandler: boolean;
  /** Unix ms. */
  since: number;
  /** Unix ms; null: none starts before a file changes. */
  restartAt: number | null;
}

function describeDevScaling(state: DevWorkerState): KnownScaling {
  const { failure, isServed, starting } = state;
  // All that can keep a job from a worker that runs is known to the queue.
  if (isServed) return 'none';
  if (!starting && !failure) return 'unknown';
  const { isHandler = false, reason = '', restartAt = null, since = 0 } = failure ?? {};
  return {
    workersMax: 1,
    workers: starting ? 1 : 0,
    unversioned: null,
    since,
    costPerHour: 0,
    ...(failure ? { cause: 'crashed', reason } : { cause: 'first', reason: 'a worker starts' }),
    crashes: {
      streak: failure ? 1 : 0,
      reason,
      isHandler,
      notBefore: starting ? starting.since : restartAt,
    },
    starting: starting
      ? { podId: starting.workerId, since: starting.since, isPulling: false, reason: null }
      : null,
  };
}

/** Logs a line that a library or a child process of the handler wrote. */
function showWorkerLine(endpoint: string, line: string): void {
  const entry: Record<string, unknown> = readLogEntry(line) ?? {
    level: 30,
    time: Date.now(),
    msg: line,
  };
  // The endpoint prints the reason, with what follows from it.
  if (entry['msg'] === 'worker failed' && 'reason' in entry) return;
  showLogLines(`${JSON.stringify({ ...entry, endpoint })}\n`);
}
