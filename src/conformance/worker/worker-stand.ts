// A platform that a worker under test connects to: the real queue, its server, a witness between them
// and a relay in front.
import type { Log } from '../../base/log.ts';
import { type Client, createClient } from '../../client.ts';
import { openPlatform } from '../../platform/platform.ts';
import type { PlatformOptions } from '../../platform/platform-options.ts';
import { isTerminal, type JobPolicy, type JobRecord } from '../../wire/job.ts';
import type { Deed } from '../check-inputs.ts';
import { Deviation } from '../checks.ts';
import { Relay } from '../relay.ts';
import type { Departure } from '../worker-exit.ts';
import { Witness } from './call-recorder.ts';

const ENDPOINT = 'conformance';
/** Short, so that a run takes no longer than it has to; all else is as it is by default. */
export const TERMS = { leaseMs: 3_000, renewEveryMs: 1_000, takeWaitMs: 2_000 } as const;
const SETTINGS: PlatformOptions['settings'] = { ...TERMS, timeoutGraceMs: 5_000 };
const LOOK_EVERY_MS = 20;

export interface WorkerStandOptions extends Departure {
  host: string;
  /** 0: a free one. */
  port: number;
  carrier: 'http' | 'grpc';
  log: Log;
}

interface Parts {
  witness: Witness;
  relay: Relay;
  client: Client;
  key: string;
  closers: (() => Promise<unknown>)[];
}

export class WorkerStand {
  readonly environment: Readonly<Record<string, string>>;
  readonly options: WorkerStandOptions;
  readonly witness: Witness;
  readonly #relay: Relay;
  readonly #client: Client;
  readonly #closers: (() => Promise<unknown>)[];

  private constructor(options: WorkerStandOptions, parts: Parts) {
    this.options = options;
    this.witness = parts.witness;
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

  /** Listens. @throws what the system says about the address */
  static async open(options: WorkerStandOptions): Promise<WorkerStand> {
    const { carrier, host, log, port } = options;
    const relay = await Relay.start(host, port);
    const closers: Parts['closers'] = [() => relay.close()];
    let witness: Witness | undefined;
    const platform = await openPlatform(
      {
        endpoints: [ENDPOINT],
        // A failed attempt is the end: what the worker does is seen at once.
        maxAttempts: 1,
        settings: SETTINGS,
        log,
        grpc: carrier === 'grpc' ? {} : undefined,
      },
      // One witness for all connections.
      {
        wrapLink: (link) => {
          witness ??= new Witness(link, () => relay.cut());
          return witness;
        },
      },
    );
    closers.push(() => platform.close());
    relay.target = platform.grpcUrl ?? platform.url;
    platform.queue.link(ENDPOINT);
    const { firstKeys, url } = platform;
    if (!firstKeys || !witness) throw new Error('the platform has no keys or no endpoint');
    const client = createClient({ url, endpoint: ENDPOINT, key: firstKeys.admin });
    return new WorkerStand(options, { witness, relay, client, key: firstKeys.worker, closers });
  }

  /** The worker's first word. @throws Deviation */
  arrival(ms: number): Promise<unknown> {
    return this.witness.until(ms, 'no worker said anything', () => this.witness.order[0]);
  }

  /** The connections that there are are dead, and neither end hears of it. */
  killConnections(): void {
    this.#relay.kill();
    this.witness.loseOpen();
  }

  /** The dead ones are reset. */
  buryConnections(): void {
    this.#relay.bury();
  }

  async submit(deed: Deed, policy: JobPolicy = {}): Promise<string> {
    return (await this.#client.run(deed, { policy })).id;
  }

  async cancel(id: string): Promise<void> {
    await this.#client.cancel(id);
  }

  record(id: string): Promise<JobRecord> {
    return this.#client.status(id);
  }

  /** @throws Deviation if the job does not end in time */
  async ended(id: string, ms: number): Promise<JobRecord> {
    for (const until = Date.now() + ms; ; ) {
      const record = await this.record(id);
      if (isTerminal(record.status)) return record;
      if (Date.now() > until) {
        throw new Deviation(`the job is still ${record.status} after ${ms / 1_000} s`);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
  }

  async close(): Promise<void> {
    for (const close of this.#closers) await close();
  }
}
