// A platform on an in-memory store with a clock that tests control, and a scripted worker for its link.
import { OWN_FORMS } from '../../src/api/batch-form.ts';
import { ManualClock } from '../../src/base/clock.ts';
import { silentLog } from '../../src/base/log.ts';
import { outcomeOf } from '../../src/conformance/platform/scripted-worker.ts';
import type { Submission } from '../../src/queue/admission.ts';
import type { HistoryTarget } from '../../src/queue/history/history-files.ts';
import { Queue, type QueueOptions } from '../../src/queue/queue.ts';
import type { QueueSettings } from '../../src/queue/settings.ts';
import type { WebhookSender } from '../../src/queue/webhooks/webhooks.ts';
import { openSqliteStore } from '../../src/store/sqlite/sqlite.ts';
import type { Store, StoredJob } from '../../src/store/store.ts';
import type { AttemptUsage } from '../../src/wire/job/attempt.ts';
import type { JobPolicy } from '../../src/wire/job/job.ts';
import type { JobRecord } from '../../src/wire/job/job-records.ts';
import {
  type Lease,
  type LeaseRef,
  type Outcome,
  PROTOCOL_VERSION,
  type RenewReply,
  type Report,
  type ReportReply,
  type WorkerLink,
  type WorkerParking,
  type WorkerStart,
  type WorkerWelcome,
} from '../../src/wire/link/worker-link.ts';
import { type EndpointSettings, endpointSettings } from '../../src/wire/resources/endpoint.ts';
import type { WorkerVerb } from '../../src/wire/routes/routes.ts';
import type { TraceContext } from '../../src/wire/trace-context.ts';

export {
  chunksOf,
  completed,
  failed,
  logOf,
  outcomeOf,
  progressOf,
  refTo,
} from '../../src/conformance/platform/scripted-worker.ts';

export const ENDPOINT = 'e';
export const NEVER = new AbortController().signal;

/** A connection to the platform; reopened after each restart. */
export interface Carrier {
  link(endpointId: string): WorkerLink;
  /** A link with a wrong key, if the carrier has keys. */
  wrongKeyLink?: WorkerLink;
  close(): Promise<void>;
}

/** A queue whose links report incoming calls. */
class ObservedQueue extends Queue {
  readonly #onCall: (verb: WorkerVerb, answer: Promise<unknown>) => void;

  constructor(options: QueueOptions, onCall: (verb: WorkerVerb, answer: Promise<unknown>) => void) {
    super(options);
    this.#onCall = onCall;
  }

  override link(endpointId: string, podId: string | null = null): WorkerLink {
    const link = super.link(endpointId, podId);
    const tell = <T>(verb: WorkerVerb, answer: Promise<T>): Promise<T> => {
      this.#onCall(verb, answer);
      return answer;
    };
    return {
      hello: (hello) => tell('hello', link.hello(hello)),
      take: (request, signal) => tell('take', link.take(request, signal)),
      renew: (request, signal) => tell('renew', link.renew(request, signal)),
      report: (request) => tell('report', link.report(request)),
      bye: (bye) => tell('bye', link.bye(bye)),
    };
  }
}

export interface PlatformOptions {
  settings?: Partial<QueueSettings>;
  endpoint?: Partial<EndpointSettings>;
  /** Creates the sender of each queue. */
  webhooks?: () => WebhookSender;
  /** Where the history of jobs goes; each queue closes it. */
  history?: HistoryTarget;
  /** Default: a new store in memory. */
  store?: Store;
  findScaling?: QueueOptions['findScaling'];
  /** Default: false. */
  isRecording?: boolean;
  owns?: QueueOptions['owns'];
}

export class Platform {
  readonly clock = new ManualClock();
  readonly store: Store;
  readonly #options: PlatformOptions;
  readonly #expected = new Map<WorkerVerb, ((answer: Promise<unknown>) => void)[]>();
  queue: Queue;

  constructor(options: PlatformOptions = {}) {
    this.#options = options;
    this.store = options.store ?? openSqliteStore({ path: ':memory:' });
    this.queue = this.#createQueue();
  }

  #createQueue(): Queue {
    const { clock, store } = this;
    const { findScaling, history, isRecording, owns, settings = {}, webhooks } = this.#options;
    const random = () => 0.5;
    const plain = {
      store,
      clock,
      log: silentLog,
      settings,
      isRecording,
      history,
      owns,
      random,
      batchForms: OWN_FORMS,
      ...(findScaling && { findScaling }),
    };
    const options = webhooks ? { ...plain, webhooks: webhooks() } : plain;
    return new ObservedQueue(options, (verb, answer) => {
      for (const resolve of this.#expected.get(verb)?.splice(0) ?? []) resolve(answer);
    });
  }

  async start(): Promise<void> {
    const settings = endpointSettings.parse(this.#options.endpoint ?? {});
    const endpoint = { id: ENDPOINT, settings, createdAt: this.clock.now() };
    await this.store.write((tx) => tx.putEndpoint(endpoint));
    await this.queue.start();
  }

  /** Closes the queue and starts a new one on the same store after `awayMs`. */
  async restart(awayMs = 0): Promise<void> {
    await this.queue.close();
    await this.clock.advance(awayMs);
    this.queue = this.#createQueue();
    await this.queue.start();
  }

  async close(): Promise<void> {
    await this.queue.close();
    await this.store.close();
  }

  /** Makes a call and returns as soon as the call waits at the platform or has ended. */
  async park<T>(verb: WorkerVerb, call: () => Promise<T>): Promise<Parked<T>> {
    const arrived = this.#expect(verb);
    const served = arrived.then(({ answer }) => answer.catch(() => {}));
    const parked: Parked<T> = { answer: call(), hasEnded: false, served };
    const end = () => {
      parked.hasEnded = true;
    };
    parked.answer.then(end, end);
    await Promise.race([arrived, parked.answer.catch(() => {})]);
    await this.clock.advance(0);
    return parked;
  }

  /** Returns when the platform has answered the next call of the verb, even if the answer is lost. */
  async answered(verb: WorkerVerb): Promise<void> {
    const { answer } = await this.#expect(verb);
    await answer.catch(() => {});
  }

  /** Returns the next call of the verb; the wrapper keeps `await` from waiting for its answer. */
  #expect(verb: WorkerVerb): Promise<{ answer: Promise<unknown> }> {
    return new Promise((resolve) => {
      const note = (answer: Promise<unknown>) => resolve({ answer });
      this.#expected.set(verb, [...(this.#expected.get(verb) ?? []), note]);
    });
  }

  async submit(policy: JobPolicy = {}, input: Uint8Array = Buffer.from('{}')): Promise<string> {
    return this.#submit({ policy, input });
  }

  /** Submits a job with a trace context. */
  async submitTraced(trace: TraceContext): Promise<string> {
    return this.#submit({ policy: {}, input: Buffer.from('{}'), trace });
  }

  /** Submits a job with a webhook. */
  async submitWithWebhook(webhook: string, policy: JobPolicy = {}): Promise<string> {
    return this.#submit({ policy, input: Buffer.from('{}'), webhook });
  }

  /** Submits a job with an S3 configuration, as JSON text. */
  async submitWithS3Config(s3Config: string): Promise<string> {
    return this.#submit({
      policy: {},
      input: Buffer.from('{}'),
      attachment: { format: null, handlerData: s3Config },
    });
  }

  async #submit(
    job: Pick<Submission, 'attachment' | 'input' | 'policy' | 'trace' | 'webhook'>,
  ): Promise<string> {
    const submission = { endpointId: ENDPOINT, mode: 'run' as const, idempotency: undefined };
    return (await this.queue.submissions.submit({ ...submission, ...job })).id;
  }

  async job(id: string): Promise<StoredJob> {
    const job = await this.store.read((tx) => tx.job({ endpointId: ENDPOINT, id }));
    if (!job) throw new Error(`job ${id} not found`);
    return job;
  }

  async record(id: string): Promise<JobRecord> {
    const { body } = await this.queue.jobs.record({ endpointId: ENDPOINT, id });
    return JSON.parse(body.toString());
  }

  async health() {
    return this.queue.health(ENDPOINT);
  }
}

export interface Parked<T> {
  answer: Promise<T>;
  hasEnded: boolean;
  /** Resolves when the platform has answered the call, even if the answer is lost. */
  served: Promise<unknown>;
}

export interface TakeOptions {
  max?: number;
  /** Default 0. */
  waitMs?: number;
  takeId?: string;
  seq?: number;
  /** Default: all leases that this worker received and has not released. */
  held?: string[];
  signal?: AbortSignal;
}

export interface HandOptions {
  id?: string;
  incarnation?: number;
  slots?: number;
}

/** A scripted worker: each method makes one call on the link. */
export class Hand {
  readonly id: string;
  readonly incarnation: number;
  readonly slots: number;
  readonly #link: () => WorkerLink;
  readonly #held = new Map<string, Lease>();
  #takes = 0;

  constructor(link: () => WorkerLink, { id = 'w1', incarnation = 1, slots = 4 }: HandOptions = {}) {
    this.#link = link;
    this.id = id;
    this.incarnation = incarnation;
    this.slots = slots;
  }

  get #self() {
    return { workerId: this.id, incarnation: this.incarnation };
  }

  /** `more`: additional members, as a newer worker may send them. */
  hello(
    outbox: LeaseRef[] = [],
    protocol = PROTOCOL_VERSION,
    more: object = {},
  ): Promise<WorkerWelcome> {
    const { slots } = this;
    const hello = { ...this.#self, protocol, version: '0.0.0', slots, devices: [], outbox };
    return this.#link().hello({ ...hello, ...more });
  }

  async take(options: TakeOptions = {}): Promise<Lease[]> {
    const { max = 1, waitMs = 0, held = [...this.#held.keys()], seq, signal = NEVER } = options;
    const takeId = options.takeId ?? `${this.id}-${this.incarnation}-${++this.#takes}`;
    const request = { ...this.#self, takeId, max, waitMs, held, ...(seq !== undefined && { seq }) };
    const leases = await this.#link().take(request, signal);
    for (const lease of leases) this.#held.set(lease.token, lease);
    return leases;
  }

  /** Takes one job. @throws Error if no job is ready */
  async takeOne(options: TakeOptions = {}): Promise<Lease> {
    const [lease] = await this.take(options);
    if (!lease) throw new Error(`nothing to take for ${this.id}`);
    return lease;
  }

  renew(
    leases: Lease[],
    options: {
      waitMs?: number;
      stopping?: Lease[];
      delivering?: Lease[];
      parking?: WorkerParking | undefined;
      start?: WorkerStart | undefined;
      signal?: AbortSignal;
    } = {},
  ): Promise<RenewReply> {
    const { waitMs = 0, stopping = [], delivering = [], signal = NEVER } = options;
    const { parking, start } = options;
    const named = leases.map(({ jobId, token }) => ({
      jobId,
      token,
      stopping: stopping.some((lease) => lease.token === token),
      ...(delivering.some((lease) => lease.token === token) && { delivering: true }),
    }));
    const told = { ...(parking && { parking }), ...(start && { start }) };
    const request = { ...this.#self, waitMs, leases: named, ...told };
    return this.#link().renew(request, signal);
  }

  report(reports: Report[]): Promise<ReportReply[]> {
    return this.#link().report({ ...this.#self, reports });
  }

  async reportOne(report: Report): Promise<ReportReply> {
    const [reply] = await this.report([report]);
    if (!reply) throw new Error('no answer to a report');
    return reply;
  }

  async finish(
    lease: Lease,
    end: Outcome,
    { seq = 1, body = '', usage }: { seq?: number; body?: string; usage?: AttemptUsage } = {},
  ): Promise<ReportReply> {
    const report = outcomeOf(lease, seq, end, body);
    const reply = await this.reportOne(usage ? { ...report, usage } : report);
    this.#held.delete(lease.token);
    return reply;
  }

  bye(reason: 'drained' | 'crashed', outbox: LeaseRef[] = []): Promise<void> {
    return this.#link().bye({ ...this.#self, reason, outbox });
  }
}
