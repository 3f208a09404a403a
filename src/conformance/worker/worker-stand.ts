// A platform that a worker under test connects to: the real queue, its server, a witness between them
// and a relay in front.
import { createServer } from '../../api/server.ts';
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type Client, createClient } from '../../client.ts';
import { Endpoints } from '../../control/endpoints/endpoints.ts';
import { Keys } from '../../control/keys/keys.ts';
import { Queue, type QueueOptions } from '../../queue/queue.ts';
import type { QueueSettings } from '../../queue/settings.ts';
import { openSqliteStore } from '../../store/sqlite.ts';
import { isTerminal, type JobPolicy, type JobRecord } from '../../wire/job.ts';
import type { WorkerLink } from '../../wire/link/worker-link.ts';
import { endpointSettings } from '../../wire/resources/endpoint.ts';
import type { Deed } from '../check-inputs.ts';
import { Deviation } from '../checks.ts';
import { Relay } from '../relay.ts';
import type { Departure } from '../worker-exit.ts';
import { Witness } from './call-recorder.ts';

const ENDPOINT = 'conformance';
/** Short, so that a run takes no longer than it has to; all else is as it is by default. */
export const TERMS = { leaseMs: 3_000, renewEveryMs: 1_000, takeWaitMs: 2_000 } as const;
const SETTINGS: Partial<QueueSettings> = { ...TERMS, timeoutGraceMs: 5_000 };
const LOOK_EVERY_MS = 20;

export interface WorkerStandOptions extends Departure {
  host: string;
  /** 0: a free one. */
  port: number;
  carrier: 'http' | 'grpc';
  log: Log;
  version: string;
}

interface Parts {
  queue: WitnessedQueue;
  relay: Relay;
  client: Client;
  key: string;
  closers: (() => Promise<unknown>)[];
}

/** A queue whose links are one witness. */
class WitnessedQueue extends Queue {
  readonly witness: Witness;

  constructor(options: QueueOptions, cut: () => void) {
    super(options);
    this.witness = new Witness(super.link(ENDPOINT), cut);
  }

  override link(): WorkerLink {
    return this.witness;
  }
}

export class WorkerStand {
  readonly environment: Readonly<Record<string, string>>;
  readonly options: WorkerStandOptions;
  readonly #queue: WitnessedQueue;
  readonly #relay: Relay;
  readonly #client: Client;
  readonly #closers: (() => Promise<unknown>)[];

  private constructor(options: WorkerStandOptions, parts: Parts) {
    this.options = options;
    this.#queue = parts.queue;
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
    const { carrier, host, log, port, version } = options;
    const clock = systemClock;
    const store = openSqliteStore({ path: ':memory:' });
    // A failed attempt is the end: what the worker does is seen at once.
    const settings = endpointSettings.parse({ maxAttempts: 1 });
    await store.write((tx) => tx.putEndpoint({ id: ENDPOINT, settings, createdAt: clock.now() }));
    const keys = await Keys.open({ store, clock });
    const { key } = await keys.issue({ name: 'worker', scopes: [`worker:${ENDPOINT}`] });
    const relay = await Relay.start(host, port);
    const queue = new WitnessedQueue({ store, clock, log, settings: SETTINGS }, () => relay.cut());
    await queue.start();
    const endpoints = await Endpoints.open({ store, clock });
    const place = { host: '127.0.0.1', port: 0, log, clock };
    const server = createServer({ queue, keys, endpoints, ...place, access: 'keys', version });
    const { url } = await server.start();
    const closers = [
      () => relay.close(),
      () => queue.close(),
      () => server.close(),
      () => store.close(),
    ];
    relay.target = url;
    if (carrier === 'grpc') {
      const { createGrpcServer } = await import('../../api/grpc/server.ts');
      const isClosing = () => queue.isClosing;
      const grpc = createGrpcServer({ ...server.workers, ...place, keys, endpoints, isClosing });
      relay.target = (await grpc.start()).url;
      closers.splice(2, 0, () => grpc.close());
    }
    const admin = await keys.issue({ name: 'tester', scopes: ['admin'] });
    const client = createClient({ url, endpoint: ENDPOINT, key: admin.key });
    return new WorkerStand(options, { queue, relay, client, key, closers });
  }

  get witness(): Witness {
    return this.#queue.witness;
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
