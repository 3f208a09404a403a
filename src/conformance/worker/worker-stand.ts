// A platform for a worker under test: the real queue and server, with a recorder between them and a relay in front.
import type { Log } from '../../base/log.ts';
import { type Client, createClient } from '../../client.ts';
import { openPlatform } from '../../platform/platform.ts';
import type { PlatformOptions } from '../../platform/platform-options.ts';
import { isTerminal, type JobPolicy } from '../../wire/job/job.ts';
import type { JobRecord } from '../../wire/job/job-records.ts';
import type {
  Lease,
  Outcome,
  RenewReply,
  RenewRequest,
  ReportReply,
  ReportRequest,
  TakeRequest,
  WorkerBye,
  WorkerHello,
  WorkerLink,
  WorkerWelcome,
} from '../../wire/link/worker-link.ts';
import { type CheckInput, Deviation, demandSame, Watch, type WorkerExit } from '../checks.ts';
import { Relay } from '../relay.ts';

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

interface Calls {
  hello: [WorkerHello, WorkerWelcome];
  take: [TakeRequest, Lease[]];
  renew: [RenewRequest, RenewReply];
  report: [ReportRequest, ReportReply[]];
  bye: [WorkerBye, undefined];
}
type LinkVerb = keyof Calls;

/** One recorded call; `answer` is set once the call is answered. */
interface RecordedCall<V extends LinkVerb = LinkVerb> {
  verb: V;
  request: Calls[V][0];
  /** Unix ms. */
  at: number;
  answeredAt?: number;
  answer?: Calls[V][1];
  /** The worker did not get the answer. */
  isLost?: boolean;
}

/** A fault for one call: a different answer, an error, or a lost answer. */
interface CallFault<V extends LinkVerb> {
  /** Whether the fault applies to this call. */
  matches(request: Calls[V][0], answer: Calls[V][1] | undefined): boolean;
  /** Runs instead of the queue: returns an answer or throws. */
  instead?: (request: Calls[V][0]) => Calls[V][1];
  /** Runs after the queue: the answer is lost. */
  losesAnswer?: boolean;
}

/**
 * Sits between a worker under test and the queue: records every call with its answer, and injects faults into chosen calls.
 * The checks judge the recorded calls.
 */
export class CallRecorder implements WorkerLink {
  readonly calls: { [V in LinkVerb]: RecordedCall<V>[] } = {
    hello: [],
    take: [],
    renew: [],
    report: [],
    bye: [],
  };
  /** All calls in the order of arrival. */
  readonly order: RecordedCall[] = [];
  readonly #inner: WorkerLink;
  readonly #cut: () => void;
  readonly #faults: { [V in LinkVerb]: CallFault<V>[] } = {
    hello: [],
    take: [],
    renew: [],
    report: [],
    bye: [],
  };
  readonly #watch = new Watch();

  /** `cut` breaks the worker's connections. */
  constructor(inner: WorkerLink, cut: () => void) {
    this.#inner = inner;
    this.#cut = cut;
  }

  hello = (request: WorkerHello) => this.#note('hello', request, () => this.#inner.hello(request));

  take = (request: TakeRequest, signal: AbortSignal) =>
    this.#note('take', request, () => this.#inner.take(request, signal));

  renew = (request: RenewRequest, signal: AbortSignal) =>
    this.#note('renew', request, () => this.#inner.renew(request, signal));

  report = (request: ReportRequest) =>
    this.#note('report', request, () => this.#inner.report(request));

  bye = (request: WorkerBye): Promise<void> =>
    this.#note('bye', request, async () => {
      await this.#inner.bye(request);
      return undefined;
    });

  /** Loses the answer of the next call that matches, and cuts all connections. */
  loseAnswer<V extends LinkVerb>(verb: V, matches: CallFault<V>['matches'] = () => true): void {
    this.#addFault(verb, { matches, losesAnswer: true });
  }

  /** Answers the next call that matches instead of the queue. */
  answerNext<V extends LinkVerb>(
    verb: V,
    instead: (request: Calls[V][0]) => Calls[V][1],
    matches: CallFault<V>['matches'] = () => true,
  ): void {
    this.#addFault(verb, { matches, instead });
  }

  /** Drops the answers of all open calls. */
  loseOpen(): void {
    for (const recorded of this.order)
      if (recorded.answeredAt === undefined) recorded.isLost = true;
  }

  /** Runs `find` after each call and each answer until it returns a value. */
  until<T>(ms: number, what: string, find: () => T | undefined): Promise<T> {
    return this.#watch.until(ms, what, find);
  }

  #addFault<V extends LinkVerb>(verb: V, fault: CallFault<V>): void {
    const list: CallFault<V>[] = this.#faults[verb];
    list.push(fault);
  }

  #takeFault<V extends LinkVerb>(
    kind: 'instead' | 'losesAnswer',
    { answer, request, verb }: RecordedCall<V>,
  ): CallFault<V> | undefined {
    const list: CallFault<V>[] = this.#faults[verb];
    const index = list.findIndex((fault) => fault[kind] && fault.matches(request, answer));
    return index < 0 ? undefined : list.splice(index, 1)[0];
  }

  async #note<V extends LinkVerb>(
    verb: V,
    request: Calls[V][0],
    call: () => Promise<Calls[V][1]>,
  ): Promise<Calls[V][1]> {
    const recorded: RecordedCall<V> = { verb, request, at: Date.now() };
    const list: RecordedCall<V>[] = this.calls[verb];
    list.push(recorded);
    this.order.push(recorded);
    this.check();
    try {
      const forged = this.#takeFault('instead', recorded)?.instead;
      const answer = forged ? forged(request) : await call();
      recorded.answer = answer;
      if (this.#takeFault('losesAnswer', recorded)) {
        recorded.isLost = true;
        this.#cut();
      }
      return answer;
    } finally {
      recorded.answeredAt = Date.now();
      this.check();
    }
  }

  /** Makes `until` run `find` again after a change that is not a call. */
  check(): void {
    this.#watch.check();
  }
}
