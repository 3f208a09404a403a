// A worker that runs nothing: it says one thing at a time to a platform under test, right or wrong, and
// looks at the answer. The jobs that it takes it has submitted itself.
import { randomBytes } from 'node:crypto';
import type { Client } from '../../client.ts';
import type { JobRecord } from '../../wire/job.ts';
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
import { outcomeOf } from '../words.ts';

const NEVER = new AbortController().signal;

/** The platform under test: its link, once more with a wrong key, and its job API. */
export interface PlatformStage {
  link: WorkerLink;
  strangerLink: WorkerLink;
  client: Client;
  /** Of the first hello. */
  terms: Pick<WorkerWelcome, 'leaseMs' | 'renewEveryMs' | 'takeWaitMs'>;
  /** To be left as they were: what still runs of a check is cancelled after it. */
  readonly submitted: string[];
  readonly visitors: Visitor[];
}

export async function submit(
  { client, submitted }: PlatformStage,
  input: object = { conformance: true },
): Promise<string> {
  const { id } = await client.run(input);
  submitted.push(id);
  return id;
}

/** A worker that has said hello. */
export async function enter(stage: PlatformStage, options: VisitorOptions = {}): Promise<Visitor> {
  const visitor = new Visitor(stage.link, options);
  stage.visitors.push(visitor);
  await visitor.hello();
  return visitor;
}

export interface VisitorOptions {
  id?: string;
  incarnation?: number;
}

export class Visitor {
  readonly id: string;
  readonly incarnation: number;
  readonly #link: WorkerLink;
  readonly #held = new Set<string>();

  constructor(link: WorkerLink, { id, incarnation = Date.now() }: VisitorOptions = {}) {
    this.#link = link;
    this.id = id ?? `conformance-${randomBytes(6).toString('hex')}`;
    this.incarnation = incarnation;
  }

  get #self() {
    return { workerId: this.id, incarnation: this.incarnation };
  }

  /** `more` are members beside, or instead of, the usual ones. */
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

  /** The lease of this job, which has to be the only one that is there. */
  async takeJob(id: string, options: Parameters<Visitor['take']>[0] = {}): Promise<Lease> {
    const [lease] = await this.take({ waitMs: 2_000, ...options });
    demand(lease !== undefined, 'the job that was submitted cannot be taken');
    if (lease.jobId === id) return lease;
    throw new Deviation('another job was given: the endpoint must have no other clients');
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

/** @throws Deviation unless the call is refused by this code, and for one of the words */
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
    demand(error.code === code, `${what} is refused as ${error.code}, not ${code}`);
    demand(words.test(error.message), `the refusal does not say why: ${error.message}`);
    return;
  }
  throw new Deviation(`${what} is not refused`);
}

/** The record once the job is as `holds` wants it. @throws Deviation */
export async function untilRecord(
  { client }: PlatformStage,
  id: string,
  holds: (record: JobRecord) => boolean,
  ms = 5_000,
): Promise<JobRecord> {
  for (const until = Date.now() + ms; ; ) {
    const record = await client.status(id);
    if (holds(record)) return record;
    if (Date.now() > until) throw new Deviation(`the job stays ${record.status}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A worker with the only job that there is. */
export async function meet(
  stage: PlatformStage,
): Promise<{ id: string; hand: Visitor; lease: Lease }> {
  const id = await submit(stage);
  const hand = await enter(stage);
  return { id, hand, lease: await hand.takeJob(id) };
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
