// A worker without a handler: sends single calls, valid or invalid, to a platform under test and
// checks the answers. It submits the jobs that it takes.
import { randomBytes } from 'node:crypto';
import type { Client } from '../../client.ts';
import type { JobRecord } from '../../wire/job/job-records.ts';
import {
  type Lease,
  type LeaseRef,
  LinkError,
  type LinkErrorCode,
  type Outcome,
  PROTOCOL_VERSION,
  type RenewReply,
  type Report,
  type ReportReply,
  type WorkerLink,
  type WorkerWelcome,
} from '../../wire/link/worker-link.ts';
import { Deviation, demand } from '../checks.ts';

const NEVER = new AbortController().signal;

/** The platform under test: a link with a valid key, a link with a wrong key, and the job API. */
export interface PlatformStage {
  link: WorkerLink;
  wrongKeyLink: WorkerLink;
  client: Pick<Client, 'cancel' | 'run' | 'status' | 'stream'>;
  time: StageTime;
  /** From the first hello. */
  terms: Pick<WorkerWelcome, 'capabilities' | 'leaseMs' | 'renewEveryMs' | 'takeWaitMs'>;
  /** Jobs of the current check; those that still run are cancelled after it. */
  readonly submitted: string[];
  readonly workers: ScriptedWorker[];
}

/** The time of the platform under test. */
export interface StageTime {
  now(): number;
  /** Lets `ms` pass. */
  pass(ms: number): Promise<void>;
  /** Limit for an answer that must come at once, ms of real time. */
  readonly answerMs: number;
}

export const realTime: StageTime = {
  now: () => Date.now(),
  pass: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  answerMs: 2_000,
};

export async function submit(
  { client, submitted }: PlatformStage,
  input: object = { conformance: true },
): Promise<string> {
  const { id } = await client.run(input);
  submitted.push(id);
  return id;
}

/** Creates a worker and says hello. */
export async function connectWorker(
  stage: PlatformStage,
  options: ScriptedWorkerOptions = {},
): Promise<ScriptedWorker> {
  const worker = new ScriptedWorker(stage.link, options);
  stage.workers.push(worker);
  await worker.hello();
  return worker;
}

interface ScriptedWorkerOptions {
  id?: string;
  incarnation?: number;
}

export class ScriptedWorker {
  readonly id: string;
  readonly incarnation: number;
  readonly #link: WorkerLink;
  readonly #held = new Set<string>();

  constructor(link: WorkerLink, { id, incarnation = Date.now() }: ScriptedWorkerOptions = {}) {
    this.#link = link;
    this.id = id ?? `conformance-${randomBytes(6).toString('hex')}`;
    this.incarnation = incarnation;
  }

  get #self() {
    return { workerId: this.id, incarnation: this.incarnation };
  }

  /** `more` adds members or replaces the usual ones. */
  hello(more: object = {}): Promise<WorkerWelcome> {
    const usual = { version: '0.0.0', slots: 4, devices: [], outbox: [] };
    return this.#link.hello({ ...this.#self, protocol: PROTOCOL_VERSION, ...usual, ...more });
  }

  async take(
    options: { max?: number; waitMs?: number; takeId?: string; held?: string[] } = {},
  ): Promise<Lease[]> {
    const { held = [...this.#held], max = 1, waitMs = 0 } = options;
    const takeId = options.takeId ?? randomBytes(12).toString('hex');
    const request = { ...this.#self, takeId, max, waitMs, held };
    const leases = await this.#link.take(request, NEVER);
    for (const { token } of leases) this.#held.add(token);
    return leases;
  }

  /** Takes this job, which must be the only one in the queue. */
  async takeJob(id: string, options: Parameters<ScriptedWorker['take']>[0] = {}): Promise<Lease> {
    const [lease] = await this.take({ waitMs: 2_000, ...options });
    demand(lease !== undefined, 'the submitted job cannot be taken');
    if (lease.jobId === id) return lease;
    throw new Deviation(
      'the platform returned another job; the endpoint must have no other clients',
    );
  }

  renew(leases: readonly LeaseRef[], waitMs = 0): Promise<RenewReply> {
    const named = leases.map(({ jobId, token }) => ({ jobId, token, stopping: false }));
    return this.#link.renew({ ...this.#self, waitMs, leases: named }, NEVER);
  }

  report(...reports: Report[]): Promise<ReportReply[]> {
    return this.#link.report({ ...this.#self, reports });
  }

  async finish(lease: LeaseRef, outcome: Outcome, body = ''): Promise<ReportReply | undefined> {
    const [reply] = await this.report(outcomeOf(lease, 1, outcome, body));
    this.#held.delete(lease.token);
    return reply;
  }

  bye(reason: 'drained' | 'crashed', outbox: LeaseRef[] = []): Promise<void> {
    return this.#link.bye({ ...this.#self, reason, outbox });
  }
}

/**
 * @throws Deviation unless the call is rejected with this code and a message that matches `words`
 */
export async function demandRefusal(
  call: Promise<unknown>,
  code: LinkErrorCode,
  what: string,
  words = /./,
): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof LinkError)) throw error;
    demand(error.code === code, `${what} is rejected with ${error.code} instead of ${code}`);
    demand(words.test(error.message), `the error does not give the reason: ${error.message}`);
    return;
  }
  throw new Deviation(`${what} is not rejected`);
}

/** Waits until the job's record satisfies `holds`. @throws Deviation */
export async function untilRecord(
  { client, time }: PlatformStage,
  id: string,
  holds: (record: JobRecord) => boolean,
  ms: number,
): Promise<JobRecord> {
  for (const until = time.now() + ms; ; ) {
    const record = await client.status(id);
    if (holds(record)) return record;
    if (time.now() > until) throw new Deviation(`the job is still ${record.status}`);
    await time.pass(200);
  }
}

/** Creates a worker that has taken the only job in the queue. */
export async function startJob(
  stage: PlatformStage,
): Promise<{ id: string; worker: ScriptedWorker; lease: Lease }> {
  const id = await submit(stage);
  const worker = await connectWorker(stage);
  return { id, worker, lease: await worker.takeJob(id) };
}

export const completed = {
  kind: 'completed',
  executionMs: 5,
  output: 'value',
} as const satisfies Outcome;

/** The endpoint decides about the retry. */
export const failed = {
  kind: 'failed',
  executionMs: 5,
  error: { code: 'handler_error', message: 'the reported error' },
  retry: 'default',
} as const satisfies Outcome;

export function refTo({ attempt, jobId, token }: LeaseRef | Lease): LeaseRef {
  return { attempt, jobId, token };
}

export function outcomeOf(lease: LeaseRef, seq: number, outcome: Outcome, body = '') {
  const sample = {
    ...refTo(lease),
    kind: 'outcome',
    seq,
    outcome,
    body: Buffer.from(body),
  } as const;
  return sample satisfies Report;
}

export function progressOf(lease: LeaseRef, seq: number, value: unknown): Report {
  return { ...refTo(lease), kind: 'progress', seq, body: Buffer.from(JSON.stringify(value)) };
}

/** One report with a chunk for each output; `first` is the number of the first chunk. */
export function chunksOf(
  lease: LeaseRef,
  seq: number,
  first: number,
  outputs: readonly unknown[],
): Report {
  const chunks = outputs.map((output) => Buffer.from(JSON.stringify({ output, metrics: {} })));
  const body = Buffer.from(chunks.map((chunk) => chunk.toString()).join(','));
  const sizes = chunks.map((chunk) => chunk.length);
  return { ...refTo(lease), kind: 'chunks', seq, first, sizes, body };
}

export function logOf(lease: LeaseRef, seq: number, lines: string, dropped = 0): Report {
  return { ...refTo(lease), kind: 'log', seq, dropped, body: Buffer.from(lines) };
}

export function stepOf(lease: LeaseRef, seq: number, name: string, result: unknown): Report {
  const body = Buffer.from(JSON.stringify(result));
  return { ...refTo(lease), kind: 'step', seq, name, body };
}

const NO_BODY = new Uint8Array();

/** One report of each kind; the outcome is last. */
export const sampleReports: Readonly<
  Record<Report['kind'], (lease: LeaseRef, seq: number) => Report>
> = {
  chunks: (lease, seq) => chunksOf(lease, seq, 0, ['a']),
  progress: (lease, seq) => progressOf(lease, seq, 0.5),
  pause: (lease, seq) => ({ ...refTo(lease), kind: 'pause', seq, forMs: 1, body: NO_BODY }),
  step: (lease, seq) => stepOf(lease, seq, `step ${seq}`, { done: true }),
  log: (lease, seq) => logOf(lease, seq, '{"line":1}\n'),
  outcome: (lease, seq) => outcomeOf(lease, seq, completed, '1'),
};

/** Makers of one report of each kind that the platform supports; the outcome is last. */
export function supportedReports({ terms: { capabilities = [] } }: PlatformStage) {
  const { log, pause, step, ...required } = sampleReports;
  return Object.values({
    ...(capabilities.includes('steps') && { step }),
    ...(capabilities.includes('log') && { log }),
    ...(capabilities.includes('pause') && { pause }),
    ...required,
  });
}
