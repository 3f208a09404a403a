// A platform for a worker under test: the real queue and server, with a recorder between them and a
// relay in front.
import type { Log } from '../../base/log.ts';
import { type Client, createClient } from '../../client.ts';
import { openPlatform } from '../../platform/platform.ts';
import type { PlatformOptions } from '../../platform/platform-options.ts';
import { isTerminal, type JobPolicy } from '../../wire/job/job.ts';
import type { JobRecord } from '../../wire/job/job-records.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';
import { type CheckInput, Deviation, demandSame, type WorkerExit } from '../checks.ts';
import { Relay } from '../relay.ts';
import { CallRecorder } from './call-recorder.ts';

const ENDPOINT = 'conformance';
/** Short times for a quick run; everything else has its default. */
export const TERMS = { leaseMs: 3_000, renewEveryMs: 1_000, takeWaitMs: 2_000 } as const;
const SETTINGS: PlatformOptions['settings'] = { ...TERMS, timeoutGraceMs: 5_000 };
const POLL_EVERY_MS = 20;

interface WorkerStandOptions extends WorkerExit {
  host: string;
  /** 0 selects a free port. */
  port: number;
  carrier: 'http' | 'grpc';
  log: Log;
}

interface Parts {
  recorder: CallRecorder;
  relay: Relay;
  client: Client;
  key: string;
  closers: (() => Promise<unknown>)[];
}

export class WorkerStand {
  readonly environment: Readonly<Record<string, string>>;
  readonly options: WorkerStandOptions;
  readonly recorder: CallRecorder;
  readonly #relay: Relay;
  readonly #client: Client;
  readonly #closers: (() => Promise<unknown>)[];

  private constructor(options: WorkerStandOptions, parts: Parts) {
    this.options = options;
    this.recorder = parts.recorder;
    this.#relay = parts.relay;
    this.#client = parts.client;
    this.#closers = parts.closers;
    const name = options.host.includes(':') ? `[${options.host}]` : options.host;
    this.environment = {
      MILLRACE_URL: `${options.carrier}://${name}:${parts.relay.port}`,
      MILLRACE_ENDPOINT: ENDPOINT,
      MILLRACE_KEY: parts.key,
    };
  }

  /** Listens. @throws the system's error for an invalid address */
  static async open(options: WorkerStandOptions): Promise<WorkerStand> {
    const { carrier, host, log, port } = options;
    const relay = await Relay.start(host, port);
    const closers: Parts['closers'] = [() => relay.close()];
    let recorder: CallRecorder | undefined;
    const platform = await openPlatform(
      {
        endpoints: [ENDPOINT],
        // Without retries, each check sees the outcome at once.
        maxAttempts: 1,
        settings: SETTINGS,
        log,
        grpc: carrier === 'grpc' ? {} : undefined,
      },
      // One recorder for all connections.
      {
        wrapLink: (link) => {
          recorder ??= new CallRecorder(link, () => relay.cut());
          return recorder;
        },
      },
    );
    closers.push(() => platform.close());
    relay.target = platform.grpcUrl ?? platform.url;
    platform.queue.link(ENDPOINT);
    const { firstKeys, url } = platform;
    if (!firstKeys || !recorder) throw new Error('the platform has no keys or no endpoint');
    const client = createClient({ url, endpoint: ENDPOINT, key: firstKeys.admin });
    return new WorkerStand(options, { recorder, relay, client, key: firstKeys.worker, closers });
  }

  /** Waits for the worker's first call. @throws Deviation */
  arrival(ms: number): Promise<unknown> {
    return this.recorder.until(ms, 'no worker connected', () => this.recorder.order[0]);
  }

  /** Makes the open connections half-open. */
  killConnections(): void {
    this.#relay.kill();
    this.recorder.loseOpen();
  }

  /** Resets the half-open connections. */
  resetDeadConnections(): void {
    this.#relay.resetDead();
  }

  async submit(input: CheckInput, policy: JobPolicy = {}): Promise<string> {
    return (await this.#client.run(input, { policy })).id;
  }

  async cancel(id: string): Promise<void> {
    await this.#client.cancel(id);
  }

  record(id: string): Promise<JobRecord> {
    return this.#client.status(id);
  }

  /** Waits for the end of the job. @throws Deviation if it takes too long */
  async ended(id: string, ms: number): Promise<JobRecord> {
    for (const until = Date.now() + ms; ; ) {
      const record = await this.record(id);
      if (isTerminal(record.status)) return record;
      if (Date.now() > until) {
        throw new Deviation(`the job is still ${record.status} after ${ms / 1_000} s`);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_EVERY_MS));
    }
  }

  async close(): Promise<void> {
    for (const close of this.#closers) await close();
  }
}

/** Limit for things that take a worker an instant; generous for slow machines. */
export const SOON_MS = 10_000;

/** Waits until the worker has the job's lease. */
export function leaseOf({ recorder }: WorkerStand, jobId: string): Promise<Lease> {
  return recorder.until(SOON_MS, 'the job was not taken', () => {
    const given = recorder.calls.take.filter(({ isLost }) => !isLost).map(({ answer }) => answer);
    return given.flatMap((leases) => leases ?? []).findLast((lease) => lease.jobId === jobId);
  });
}

/** Waits for the reported outcome of the attempt. */
export function waitForOutcome(
  { recorder }: WorkerStand,
  lease: Lease,
  ms = SOON_MS,
): Promise<Outcome> {
  return recorder.until(ms, 'no outcome was reported', () => {
    for (const { answer, request } of recorder.calls.report) {
      for (const report of answer === undefined ? [] : request.reports) {
        if (report.kind === 'outcome' && report.token === lease.token) return report.outcome;
      }
    }
    return undefined;
  });
}

export async function demandOutput(stand: WorkerStand, id: string, value: unknown): Promise<void> {
  const record = await stand.ended(id, SOON_MS * 2);
  demandSame(record.status, 'COMPLETED', 'the status');
  demandSame(record.output, value, 'the output');
}

/** Runs one more job to show that the worker has recovered. */
export async function demandWork(stand: WorkerStand, ms: number): Promise<void> {
  const record = await stand.ended(await stand.submit({ do: 'echo', value: 'well' }), ms);
  demandSame(record.output, 'well', 'the output of the next job');
}
