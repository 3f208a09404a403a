// WorkerLink over RunPod's worker protocol. RunPod knows machines and jobs but no leases or
// incarnations: the link creates the leases, posts an end for every job that it got, and pings RunPod with the jobs that run.
import { type Clock, sleep, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type ChooseProxy, noProxy } from '../../base/net/outgoing-proxy.ts';
import {
  type Lease,
  LinkError,
  PROTOCOL_VERSION,
  type RenewReply,
  type RenewRequest,
  type Report,
  type ReportReply,
  type ReportRequest,
  type TakeRequest,
  type WorkerBye,
  type WorkerHello,
  type WorkerLink,
  type WorkerWelcome,
} from '../../wire/link/worker-link.ts';
import { type FailureFacts, StreamedOutput } from './bodies.ts';
import {
  isSuccess,
  RUNPOD_PROTOCOL_VERSION,
  RunPodAddresses,
  type RunPodAddressOptions,
  RunPodCaller,
} from './caller.ts';
import { type HeldJob, RunPodJobs, RunPodLedger } from './jobs.ts';
import { RunPodTakes, StopPolls, TAKE_WAIT_MS } from './polls.ts';
import { FailurePosts, RunPodPosts, tryAll } from './posts.ts';

const RENEW_EVERY_MS = 15_000;
const LEASE_MS = 90_000;

export interface RunPodLinkOptions extends RunPodAddressOptions {
  /** Sent unchanged. Without a key there are no pings. */
  key: string | undefined;
  /** Interval of pings, ms; at least 1,000. Default 10,000. */
  pingEveryMs?: number | undefined;
  /** Joins waiting texts of a stream into one post. Default: one post for each. */
  joinsText?: boolean;
  /** Folder in which the processes of this machine record their jobs. Default: none. */
  ledgerFolder?: string | undefined;
  /** Host name and package version, for error reports. */
  hostname: string;
  version: string;
  log: Log;
  /** Default: no proxy. */
  chooseProxy?: ChooseProxy;
  /** Default: the machine's clock. */
  clock?: Clock;
}

export interface RunPodLink extends WorkerLink {
  /** Reports, as best effort, that the worker failed a check and exits. */
  reportUnfit(check: string, reason: string): Promise<void>;
  /** Breaks open calls; later calls fail. */
  close(): Promise<void>;
}

/** @throws TypeError if a template is not an http or https URL */
export function createRunPodLink(options: RunPodLinkOptions): RunPodLink {
  return new LeaseKeepingLink(options);
}

type RenewedLease = RenewRequest['leases'][number];
type EndedLease = RenewReply['ended'][number];

class LeaseKeepingLink implements RunPodLink {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #caller: RunPodCaller;
  readonly #posts: RunPodPosts;
  readonly #failures: FailurePosts;
  readonly #takes: RunPodTakes;
  readonly #pings: RunPodPings;
  readonly #stops: StopPolls | undefined;
  readonly #ledger: RunPodLedger | undefined;
  readonly #jobs: RunPodJobs;
  readonly #hasPings: boolean;
  readonly #closing = new AbortController();
  readonly #renewals = new Set<() => void>();
  #isGreeted = false;

  constructor(options: RunPodLinkOptions) {
    const {
      chooseProxy = noProxy,
      clock = systemClock,
      hostname,
      joinsText = false,
      key,
      log,
      podId,
      version,
    } = options;
    this.#clock = clock;
    this.#log = log;
    const addresses = new RunPodAddresses(options);
    const caller = new RunPodCaller({ key, version, chooseProxy });
    const { signal } = this.#closing;
    this.#caller = caller;
    const facts = { hostname, workerId: podId, version };
    const posts = new RunPodPosts({ addresses, caller, facts, joinsText, log });
    this.#posts = posts;
    const failures = new FailurePosts({ posts, clock, log, signal });
    this.#failures = failures;
    const folder = options.ledgerFolder;
    this.#ledger = folder === undefined ? undefined : new RunPodLedger({ folder, log });
    const jobs = new RunPodJobs({
      ledger: this.#ledger,
      createStreamed: () => new StreamedOutput(),
      onRequeued: () => this.#takes.wake(),
    });
    this.#jobs = jobs;
    this.#takes = new RunPodTakes({ addresses, caller, jobs, failures, clock, log, signal });
    const everyMs = Math.max(1_000, options.pingEveryMs ?? 10_000);
    const listJobIds = () => jobs.jobIds;
    const schedule = { everyMs, clock, log, signal };
    this.#pings = new RunPodPings({ addresses, caller, ...schedule, listJobIds });
    this.#hasPings = key !== undefined;
    const { stop: url } = addresses;
    const onStop = (jobIds: readonly string[]) => this.#stop(jobIds);
    this.#stops =
      url === undefined ? undefined : new StopPolls({ url, caller, clock, log, signal, onStop });
  }

  async hello(hello: WorkerHello): Promise<WorkerWelcome> {
    this.#checkOpen();
    for (const lease of hello.outbox) this.#jobs.adopt(lease);
    if (!this.#isGreeted) this.#begin(hello);
    return {
      protocol: PROTOCOL_VERSION,
      leaseMs: LEASE_MS,
      renewEveryMs: RENEW_EVERY_MS,
      takeWaitMs: TAKE_WAIT_MS,
      reportsBy: 'attempt',
      takesBack: false,
      replacesWorkers: true,
    };
  }

  /**
   * After the signal, an open poll continues until it is answered. The platform may be handing over
   * a job at this moment, and would not detect that nobody took it.
   */
  async take(request: TakeRequest, signal: AbortSignal): Promise<Lease[]> {
    this.#checkOpen();
    return this.#takes.take(request, signal);
  }

  async renew({ leases, waitMs }: RenewRequest, signal: AbortSignal): Promise<RenewReply> {
    this.#checkOpen();
    const judgeAll = () => leases.flatMap((lease) => this.#judge(lease) ?? []);
    let ended = judgeAll();
    if (ended.length === 0 && waitMs > 0) {
      await this.#waitForChange(waitMs, signal);
      this.#checkOpen();
      ended = judgeAll();
    }
    const trouble = this.#stops?.trouble;
    if (ended.length === 0 && trouble) {
      throw new LinkError('unavailable', trouble.message, { cause: trouble });
    }
    return { ended, drain: false };
  }

  /** Reports of one attempt are sent in order: after a failure, later ones are not tried. */
  async report({ reports }: ReportRequest): Promise<ReportReply[]> {
    this.#checkOpen();
    const replies = new Map<Report, ReportReply>();
    const byAttempt = Map.groupBy(reports, ({ token }) => token);
    const sending = [...byAttempt].map(([token, own]) => {
      const held = this.#jobs.find(token);
      if (!held) return undefined;
      const sent = held.lastReport.then(async () => {
        for (const report of own) replies.set(report, await this.#apply(held, report));
      });
      held.lastReport = sent.catch(() => {});
      return sent;
    });
    await Promise.all(sending);
    return reports.map((report) => replies.get(report) ?? { answer: 'gone' });
  }

  /** Nobody will report on the jobs that the worker held, so their failure is posted. */
  async bye({ detail, incarnation, outbox, reason, workerId }: WorkerBye): Promise<void> {
    this.#checkOpen();
    await this.#takes.end();
    await this.#failures.end();
    const delivered = new Set(outbox.map(({ token }) => token));
    const failure: FailureFacts =
      reason === 'crashed'
        ? { code: 'worker_crashed', message: `the worker's process died: ${detail ?? 'unknown'}` }
        : { code: 'released_drain', message: 'the worker shut down; submit the job again' };
    const open = this.#jobs.all.filter(({ lease }) => !delivered.has(lease.token));
    await tryAll(
      open.map(async (held) => {
        await this.#posts.fail(held.lease.jobId, failure);
        this.#jobs.remove(held);
      }),
    );
    if (this.#isGreeted) return this.#ledger?.close();
    const kept = new Set(outbox.map(({ jobId }) => jobId));
    const left = this.#ledger?.takeOver({ workerId, incarnation: incarnation + 1 }) ?? [];
    for (const jobs of left) await this.#failures.failAbandonedNow(jobs, kept, failure);
  }

  reportUnfit(check: string, reason: string): Promise<void> {
    return this.#pings.reportUnfit(check, reason);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    for (const wake of this.#renewals) wake();
    await this.#caller.close();
  }

  #begin(hello: WorkerHello): void {
    this.#isGreeted = true;
    this.#ledger?.open(hello);
    if (this.#hasPings) void this.#pings.run();
    if (this.#stops) void this.#stops.run();
    else this.#log.warn('RunPod set no URL for stops, jobs cannot be cancelled');
    this.#failAbandoned(hello);
  }

  /**
   * Recorded for this process until the failures are posted: if it dies too, the next one
   * continues.
   */
  #failAbandoned(hello: WorkerHello): void {
    const ledger = this.#ledger;
    const kept = new Set(hello.outbox.map(({ jobId }) => jobId));
    const message = 'the worker process died and was replaced';
    for (const left of ledger?.takeOver(hello) ?? []) {
      const jobIds = left.jobIds.filter((jobId) => !kept.has(jobId));
      for (const jobId of jobIds) ledger?.add(jobId);
      left.forget();
      for (const jobId of jobIds) {
        const onAccepted = () => ledger?.remove(jobId);
        this.#failures.fail(jobId, { code: 'worker_crashed', message }, onAccepted);
      }
    }
  }

  /** Undefined while the lease is simply kept. */
  #judge({ jobId, stopping, token }: RenewedLease): EndedLease | undefined {
    const held = this.#jobs.find(token);
    if (stopping || (held && !held.isStopped)) return undefined;
    return { jobId, token, verdict: held ? 'cancelled' : 'lost' };
  }

  #stop(jobIds: readonly string[]): void {
    for (const jobId of jobIds) if (!this.#jobs.stop(jobId)) this.#takes.stopEarly(jobId);
    for (const wake of this.#renewals) wake();
  }

  async #waitForChange(waitMs: number, signal: AbortSignal): Promise<void> {
    const change = new AbortController();
    const wake = () => change.abort();
    this.#renewals.add(wake);
    await sleep(this.#clock, waitMs, AbortSignal.any([change.signal, signal]));
    this.#renewals.delete(wake);
  }

  async #apply(held: HeldJob, report: Report): Promise<ReportReply> {
    const { seq } = report;
    if (held.seq !== undefined) {
      if (seq <= held.seq) return { answer: 'duplicate' };
      const isGap = seq > held.seq + 1 && report.kind !== 'outcome';
      if (isGap) return { answer: 'gap', expected: held.seq + 1 };
    }
    const reply = await this.#post(held, report);
    if (reply.answer !== 'superseded') held.seq = seq;
    return reply;
  }

  async #post(held: HeldJob, report: Report): Promise<ReportReply> {
    switch (report.kind) {
      case 'chunks':
        return this.#posts.chunks(held, report);
      case 'progress':
        if (!held.isStopped) await this.#posts.progress(held, report);
        return { answer: 'applied' };
      case 'log':
      case 'pause':
      // The worker reports none to a platform that keeps none.
      case 'step':
        return { answer: 'applied' };
      case 'outcome': {
        const reply = await this.#settle(held, report);
        this.#jobs.remove(held);
        return reply;
      }
    }
  }

  async #settle(held: HeldJob, report: Extract<Report, { kind: 'outcome' }>): Promise<ReportReply> {
    // The platform wants no outcome of a stopped job.
    if (held.isStopped) return { answer: 'applied' };
    const { outcome } = report;
    if (outcome.kind === 'released' && this.#jobs.requeue(held, outcome.reason)) {
      return { answer: 'applied' };
    }
    return this.#posts.outcome(held, report);
  }

  #checkOpen(): void {
    if (this.#closing.signal.aborted) throw new LinkError('unavailable', 'the link is closed');
  }
}

const UNFIT_LIMIT_MS = 2_000;
const MAX_REASON_LENGTH = 256;
/** Many servers reject longer addresses. */
const MAX_IDS_LENGTH = 6_000;

interface RunPodPingsOptions {
  addresses: RunPodAddresses;
  caller: RunPodCaller;
  /** Interval, ms. */
  everyMs: number;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  listJobIds: () => readonly string[];
}

export class RunPodPings {
  readonly #options: RunPodPingsOptions;
  #failures = 0;

  constructor(options: RunPodPingsOptions) {
    this.#options = options;
  }

  /** Ends with the signal; never rejects. The first ping is sent at once. */
  async run(): Promise<void> {
    const { clock, everyMs, signal } = this.#options;
    while (!signal.aborted) {
      const askedAt = clock.now();
      await this.#ping();
      await sleep(clock, Math.max(0, everyMs - (clock.now() - askedAt)), signal);
    }
  }

  /** Best effort: the caller is about to exit. */
  async reportUnfit(check: string, reason: string): Promise<void> {
    const url = this.#options.addresses.ping([
      ['status', 'unhealthy'],
      ['check', check],
      ['reason', reason.slice(0, MAX_REASON_LENGTH)],
      ['runpod_version', RUNPOD_PROTOCOL_VERSION],
    ]);
    if (url === undefined) return;
    try {
      await this.#options.caller.get(url, { limitMs: UNFIT_LIMIT_MS });
    } catch (error) {
      this.#options.log.warn({ err: error }, 'reporting the unfit worker failed');
    }
  }

  async #ping(): Promise<void> {
    const { addresses, caller, everyMs, log, signal } = this.#options;
    const ids = joinIds(this.#options.listJobIds());
    const url = addresses.ping([
      ...(ids === '' ? [] : [['job_id', ids] as const]),
      ['runpod_version', RUNPOD_PROTOCOL_VERSION],
    ]);
    if (url === undefined) return;
    try {
      const answer = await caller.get(url, { limitMs: 2 * everyMs, signal });
      if (!isSuccess(answer)) throw new Error(`ping: ${answer.status}`);
      if (this.#failures > 0) log.info('reconnected to the platform');
      this.#failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      this.#failures += 1;
      log[this.#failures === 1 ? 'warn' : 'debug']({ err: error }, 'ping failed');
    }
  }
}

/** Joins as many IDs as fit. */
function joinIds(jobIds: readonly string[]): string {
  const text = jobIds.join(',');
  if (text.length <= MAX_IDS_LENGTH) return text;
  const cut = text.slice(0, MAX_IDS_LENGTH + 1);
  return cut.slice(0, cut.lastIndexOf(','));
}
