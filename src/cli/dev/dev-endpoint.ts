// Serves one handler file of `millrace dev`: keeps one worker running with the newest version that
// loads, across changes and crashes, and loses no job.
import { sep } from 'node:path';
import { backoffMs } from '../../base/backoff.ts';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { launcherPath } from '../../base/package-info.ts';
import type { Device, WorkerLink } from '../../wire/link/worker-link.ts';
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

const RESTART_PACE = { baseMs: 500, maxMs: 30_000, jitter: 0.2 };
/** After this run time, the next crash of a worker counts as its first, ms. */
const WELL_AFTER_MS = 60_000;

interface DevEndpointOptions {
  endpointId: string;
  file: string;
  /** URL at which the worker process reaches the platform. */
  url: string;
  workerKey: string;
  /** The endpoint's queue, to which crashes are reported. */
  link: WorkerLink;
  clock: Clock;
  log: Log;
  workerLogLevel: string;
  devices: readonly Device[];
  /** Returns a new number for each worker of any endpoint. */
  nextWorkerNumber: () => number;
}

export class DevEndpoint {
  readonly file: string;
  readonly endpointId: string;
  readonly #options: DevEndpointOptions;
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

  constructor(options: DevEndpointOptions) {
    this.#options = options;
    this.file = options.file;
    this.endpointId = options.endpointId;
    this.#log = options.log.child({ endpoint: options.endpointId });
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
    const { clock, devices, endpointId, file, url, workerKey, workerLogLevel } = this.#options;
    this.#starts += 1;
    const workerId = `dev-${endpointId}-${this.#options.nextWorkerNumber()}`;
    this.#starting = { workerId, since: clock.now() };
    const worker = startDevWorker({
      file,
      endpointId,
      url,
      key: workerKey,
      workerId,
      logLevel: workerLogLevel,
      devices,
    });
    const startedAt = clock.now();
    this.#alive.add(worker);
    void worker.ended.then((end) => this.#takeLeave(worker, end, clock.now() - startedAt));
    return worker;
  }

  async #takeLeave(worker: WorkerProcess, end: ProcessEnd, livedMs: number): Promise<void> {
    this.#alive.delete(worker);
    const wasCurrent = this.#current === worker;
    if (wasCurrent) this.#current = undefined;
    if (end.code !== 0) await this.#sayBye(worker, end);
    if (!wasCurrent || this.#isStopping) return;
    this.#crashes = livedMs >= WELL_AFTER_MS ? 1 : this.#crashes + 1;
    const waitMs = backoffMs(this.#crashes, RESTART_PACE);
    const since = this.#options.clock.now();
    const reason = describeEnd(end);
    this.#failure = { reason, isHandler: false, since, restartAt: since + Math.ceil(waitMs) };
    this.#log.error({ ...end, restartInMs: waitMs }, 'worker process exited');
    if (this.#candidate) return;
    this.#cancelRestart = this.#options.clock.after(waitMs, () => void this.reload());
  }

  /** Returns the worker's jobs to the queue at once, not when their leases expire. */
  async #sayBye({ identity }: WorkerProcess, end: ProcessEnd): Promise<void> {
    if (!identity) return;
    try {
      const bye = { reason: 'crashed' as const, outbox: [], detail: describeEnd(end) };
      await this.#options.link.bye({ ...identity, ...bye });
    } catch (error) {
      // The worker sent no hello, or its leases will expire.
      this.#log.debug({ err: error, ...identity }, 'releasing the jobs of the worker failed');
    }
  }

  #explainFailure({ failure }: WorkerProcess): void {
    this.#failure = {
      reason: failure?.reason ?? 'its worker ended before it was ready',
      isHandler: failure?.exitCode === EXIT.notLoaded,
      since: this.#options.clock.now(),
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

interface DevWorkerOptions {
  file: string;
  endpointId: string;
  url: string;
  /** Worker key. */
  key: string;
  workerId: string;
  logLevel: string;
  /** The workers of `dev` are not pinned; each sees all devices. */
  devices: readonly Device[];
}

function startDevWorker(options: DevWorkerOptions): WorkerProcess {
  const { devices, endpointId, file, key, logLevel, url, workerId } = options;
  const named = [`--worker-id=${workerId}`, `--endpoint=${endpointId}`, `--url=${url}`];
  const args = ['worker', file, '--under-dev', '--link=http', ...named, `--log-level=${logLevel}`];
  return new WorkerProcess({
    command: [process.execPath, launcherPath, ...args],
    environment: inheritWithoutKeys({ [DEVICE_SET_VARIABLE]: JSON.stringify(devices) }),
    input: JSON.stringify({ MILLRACE_KEY: key }),
    onLine: (line) => showWorkerLine(endpointId, line),
  });
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
