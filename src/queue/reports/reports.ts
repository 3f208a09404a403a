// Handles worker reports: judges each one, applies its effect in the same operation, and answers it.
import { yieldToLoop } from '../../base/slices.ts';
import {
  ENDING,
  type JobKey,
  NO_GROUP,
  type StoredJob,
  type Transaction,
  type UploadedPayload,
} from '../../store/store.ts';
import { isTerminal, LIMITS } from '../../wire/job/job.ts';
import {
  LinkError,
  type Report,
  type ReportReply,
  type ReportRequest,
} from '../../wire/link/worker-link.ts';
import { ProblemError } from '../../wire/problem.ts';
import { nameTrace } from '../../wire/trace-context.ts';
import type { StepOn } from '../changes.ts';
import { countByShard } from '../handover/remote-jobs.ts';
import { listLaterTypes } from '../leases/presence.ts';
import { boundOutcome, boundSpan, boundUsage } from '../lifecycle/attempt-end.ts';
import { type JobEvent, judgeReport } from '../lifecycle/lifecycle.ts';
import type { QueueParts } from '../queue-parts.ts';
import type { QueueSettings } from '../settings.ts';
import { type AskedWait, WaitRefusal } from '../steps/children.ts';
import { addEntry, composeEntry, NO_MEMO, putEntry } from '../steps/memo.ts';
import { REFUSING, stageInputs } from '../submissions.ts';
import { handleWait, readWait, type WaitReport } from './wait-reports.ts';

/** Small reports of one call that are applied in one iteration of the event loop. */
const REPORTS_PER_SLICE = 128;

const APPLIED: ReportReply = { answer: 'applied' };

type ReportsOptions = Pick<
  QueueParts,
  | 'changes'
  | 'clock'
  | 'gpuTotals'
  | 'log'
  | 'outputs'
  | 'pauses'
  | 'sharedLimits'
  | 'payloads'
  | 'peers'
  | 'positions'
  | 'presence'
  | 'remoteJobs'
  | 'settings'
  | 'signals'
  | 'store'
  | 'tracing'
>;

export class Reports {
  readonly #options: ReportsOptions;

  constructor(options: ReportsOptions) {
    this.#options = options;
  }

  /**
   * Small reports share a commit. If one fails, the call rejects, but only after all
   * others are applied.
   */
  async report(endpointId: string, request: ReportRequest): Promise<ReportReply[]> {
    const { changes, presence } = this.#options;
    const worker = presence.require(endpointId, request);
    worker.seenAt = changes.moment().now;
    for (const report of request.reports) checkBody(report);
    const pending = this.#handleAll(endpointId, request);
    await Promise.allSettled(pending);
    const replies = await Promise.all(pending);
    for (const [index, report] of request.reports.entries()) {
      if (report.kind !== 'outcome') continue;
      this.#logOutcome(request, report, replies[index]);
      const gpu = boundUsage(report.usage)?.gpu;
      if (gpu && replies[index]?.answer === 'applied') this.#options.gpuTotals.add(endpointId, gpu);
    }
    return replies;
  }

  /**
   * Handles the reports of each job in order. Jobs with a large report or a pause come last, one report after the
   * other. A failed report stops none of another job; the later ones of its own job leave a gap.
   */
  #handleAll(endpointId: string, { incarnation, reports }: ReportRequest): Promise<ReportReply>[] {
    const { payloads } = this.#options;
    const replies: Promise<ReportReply>[] = [];
    const slow = new Set<string>();
    let start = (apply: () => Promise<ReportReply>) => apply();
    let together: Promise<ReportReply>[] = [];
    for (const [index, report] of reports.entries()) {
      if (payloads.isLarge(report.body) || report.kind === 'pause') slow.add(report.jobId);
      if (slow.has(report.jobId)) continue;
      if (together.length === REPORTS_PER_SLICE) {
        const slice = Promise.allSettled(together).then(yieldToLoop);
        start = (apply) => slice.then(apply);
        together = [];
      }
      const reply = start(() => this.#apply(endpointId, report));
      together.push(reply);
      replies[index] = reply;
    }
    let before: Promise<unknown> = Promise.allSettled(Object.values(replies));
    for (const [index, report] of reports.entries()) {
      if (index in replies) continue;
      const isLarge = payloads.isLarge(report.body);
      const reply = before.then(() =>
        isLarge
          ? this.#applyLarge(endpointId, report, incarnation)
          : this.#apply(endpointId, report),
      );
      before = reply.catch(() => {});
      replies[index] = reply;
    }
    return replies;
  }

  async #applyLarge(endpointId: string, report: Report, incarnation: number): Promise<ReportReply> {
    const { outputs, payloads, signals } = this.#options;
    const upload = await this.#upload(endpointId, report, incarnation);
    if (!upload) {
      const owner = { endpointId, kind: 'output' } as const;
      return payloads.runAlone(owner, () => this.#apply(endpointId, report));
    }
    const key = { endpointId, id: report.jobId };
    const offer = signals.isEndAwaited(key)
      ? outputs.offer({ ...key, attempt: report.attempt }, report.body)
      : undefined;
    let isApplied = false;
    try {
      const reply = await this.#apply(endpointId, report, upload);
      isApplied = reply.answer === 'applied';
      return reply;
    } finally {
      payloads.release(upload);
      await offer?.end(isApplied);
    }
  }

  async #apply(endpointId: string, report: Report, output?: UploadedPayload): Promise<ReportReply> {
    // Before the report: one that is repeated after a crash has no effect.
    if (report.kind === 'pause') await this.#pause(endpointId, report);
    if (report.kind === 'outcome' && report.outcome.kind === 'waiting') {
      return this.#applyWait(endpointId, report);
    }
    const { changes, outputs, presence, settings, signals } = this.#options;
    const gpuTypeOf = (workerId: string) => presence.find(endpointId, workerId)?.gpuType ?? null;
    const key = { endpointId, id: report.jobId };
    const noteOutput = (small: Uint8Array | undefined) => {
      if (small && signals.isEndAwaited(key)) outputs.keep(key, small);
      else outputs.drop(key);
    };
    return changes.commit(
      (tx, step) =>
        handleReport(tx, step, { key, report, settings, output, gpuTypeOf, noteOutput }),
      output ? ENDING : { ...ENDING, payloadBytes: report.body.length },
    );
  }

  /** Starts the children, so it stores nothing while the disk is full: the worker repeats the report. */
  async #applyWait(endpointId: string, report: WaitReport): Promise<ReportReply> {
    const { changes, clock, payloads, peers, positions, signals, store, tracing } = this.#options;
    const key = { endpointId, id: report.jobId };
    const job = await store.read((tx) => tx.job(key));
    const read = readWait(report, job ?? { ...key, submittedAt: 0 }, {
      ...{ peers, nextPosition: () => positions.next() },
    });
    const asked = read instanceof WaitRefusal ? read : await this.#askElsewhere(endpointId, read);
    const staged =
      asked instanceof WaitRefusal
        ? []
        : await stageInputs(
            payloads,
            asked.children.filter(({ shard }) => shard === undefined),
            (child) => child,
          );
    try {
      const now = clock.now();
      const { inserted, reply } = await changes.commit(
        (tx, step) => handleWait(tx, step, { key, report, asked, now }),
        { ...REFUSING, weight: 1 + report.body.length / 1_024 },
      );
      for (const child of inserted) {
        signals.inserted(child);
        tracing?.submitted(child, now);
      }
      return reply;
    } finally {
      for (const payload of staged) payloads.release(payload);
    }
  }

  /** Whether the children of other shards may be added there. A shard that does not answer gets them later. */
  async #askElsewhere(endpointId: string, asked: AskedWait): Promise<AskedWait | WaitRefusal> {
    const { remoteJobs, store } = this.#options;
    const others = asked.children.filter(({ shard }) => shard !== undefined);
    if (others.length === 0) return asked;
    const owner = await store.read((tx) => tx.endpoint(endpointId)?.userId ?? '');
    try {
      await remoteJobs.judge(owner, countByShard(others), { isPatient: false });
      return asked;
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      const isTemporary = error.code === 'queue_full';
      return new WaitRefusal(`ctx.run: ${error.message}`, { isTemporary });
    }
  }

  async #pause(endpointId: string, report: Extract<Report, { kind: 'pause' }>): Promise<void> {
    const { clock, log, pauses, sharedLimits, store } = this.#options;
    const { forMs, jobId, limit } = report;
    const { endpoint, job } = await store.read((tx) => ({
      job: tx.job({ endpointId, id: jobId }),
      endpoint: tx.endpoint(endpointId),
    }));
    if (!job || judgeReport(job, report) !== 'apply') return;
    if (limit !== undefined) {
      const named = { ids: endpoint?.settings.limits ?? [], name: limit, group: job.group };
      const isKnown = await sharedLimits.pause(named, Math.min(forMs, LIMITS.pauseLimitMs));
      if (!isKnown) {
        log.warn({ endpoint: endpointId, job: jobId, limit }, 'a handler pauses an unknown limit');
      }
      return;
    }
    const group = job.group ?? NO_GROUP;
    const reason = `a handler asked for it in job ${jobId}`;
    const until = clock.now() + Math.min(forMs, LIMITS.pauseGroupMs);
    try {
      await pauses.extend({ endpointId, group, until, reason });
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      log.warn({ err: error, endpoint: endpointId, job: jobId }, 'could not pause a group');
    }
  }

  /**
   * Stores the large output of a report before the report, unless that will be refused. The deadline of the
   * attempt does not limit the upload, because other uploads may delay it.
   */
  async #upload(
    endpointId: string,
    report: Report,
    incarnation: number,
  ): Promise<UploadedPayload | undefined> {
    const { changes, payloads, settings } = this.#options;
    const { body: bytes, jobId } = report;
    if (!hasOutput(report) || bytes.length > settings.maxOutputBytes) return undefined;
    const key = { endpointId, id: jobId };
    const isWanted = await changes.commit((tx, step) =>
      awaitDelivery(tx, step, { key, report, incarnation }),
    );
    return isWanted ? payloads.upload({ kind: 'output', key, bytes, options: ENDING }) : undefined;
  }

  /** For tracing; the platform does not log outcomes otherwise. */
  #logOutcome(
    { workerId }: ReportRequest,
    { jobId, attempt, outcome, traceparent }: Extract<Report, { kind: 'outcome' }>,
    reply: ReportReply | undefined,
  ): void {
    const { log } = this.#options;
    if (!log.isLevelEnabled('debug')) return;
    const about = { job: jobId, attempt, ...nameTrace(traceparent), worker: workerId };
    log.debug({ ...about, outcome: outcome.kind, answer: reply?.answer }, 'outcome reported');
  }
}

interface Application {
  job: StoredJob;
  report: Exclude<Report, { kind: 'step' }>;
  /** The output, if it is stored already. */
  output: UploadedPayload | undefined;
  settings: QueueSettings;
  /** Called with the output of each outcome that is applied, if it is a value and not stored already. */
  noteOutput: (output: Uint8Array | undefined) => void;
  /** GPU type than which the next attempt needs a later one. */
  outgrown: string | undefined;
}

interface Handling extends Omit<Application, 'job' | 'outgrown' | 'report'> {
  report: Report;
  key: JobKey;
  gpuTypeOf: (workerId: string) => string | null;
}

/** The GPU type of the worker, if the attempt ran out of memory there and the endpoint has a later type to try. */
function findOutgrownType(
  tx: Transaction,
  { endpointId, lease }: StoredJob,
  report: Report,
  gpuTypeOf: (workerId: string) => string | null,
): string | undefined {
  if (report.kind !== 'outcome' || report.outcome.kind !== 'failed' || !lease) return undefined;
  if (report.outcome.error.code !== 'gpu_out_of_memory') return undefined;
  const gpuType = gpuTypeOf(lease.workerId);
  const deployment = tx.endpoint(endpointId)?.deployment ?? null;
  return listLaterTypes(deployment, gpuType).length > 0 ? (gpuType ?? undefined) : undefined;
}

function handleReport(
  tx: Transaction,
  step: StepOn,
  { gpuTypeOf, key, report, ...reported }: Handling,
): ReportReply {
  const job = tx.job(key);
  const verdict = judgeReport(job, report);
  if (verdict !== 'apply' || !job) return verdict === 'apply' ? APPLIED : verdict;
  if (report.kind === 'chunks' && report.first !== job.chunkCount) {
    throw refuse(report, `chunk ${report.first} follows ${job.chunkCount} chunks`);
  }
  if (report.kind === 'step') {
    keepStep(tx, step, { job, report });
    return APPLIED;
  }
  const outgrown = findOutgrownType(tx, job, report, gpuTypeOf);
  applyReport(tx, step, { ...reported, report, job, outgrown });
  return APPLIED;
}

function keepStep(
  tx: Transaction,
  step: StepOn,
  { job, report }: { job: StoredJob; report: Extract<Report, { kind: 'step' }> },
): void {
  const known = job.links?.memo ?? NO_MEMO;
  const body = composeEntry({ kind: 'step', name: report.name }, report.body);
  const memo = addEntry(known, body);
  // The worker's own checks come first.
  if (memo.entries > LIMITS.stepsOfJob) {
    throw refuse(report, `the job has ${memo.entries} steps, the limit is ${LIMITS.stepsOfJob}`);
  }
  if (memo.bytes > LIMITS.memoBytes) {
    throw refuse(report, `the steps have ${memo.bytes} bytes, the limit is ${LIMITS.memoBytes}`);
  }
  putEntry(tx, job, known.entries, body);
  step(job, { type: 'step', seq: report.seq, memo });
}

/** @returns whether the report would be applied now */
function awaitDelivery(
  tx: Transaction,
  step: StepOn,
  { incarnation, key, report }: { key: JobKey; report: Report; incarnation: number },
): boolean {
  const job = tx.job(key);
  if (!job || judgeReport(job, report) !== 'apply') return false;
  if (!isTerminal(job.status)) step(job, { type: 'awaiting_delivery', incarnation });
  return true;
}

function applyReport(
  tx: Transaction,
  step: StepOn,
  { job, noteOutput, outgrown, output, report, settings }: Application,
): void {
  const decision = step(job, toEvent(job, report, settings, outgrown));
  if ('refused' in decision)
    throw new Error(`report ${report.seq} of ${job.id}: ${decision.refused}`);
  const { kind, body } = report;
  if (kind === 'chunks' && decision.job.chunkCount > job.chunkCount) {
    const batch = { first: job.chunkCount, sizes: report.sizes, bytes: body };
    tx.appendChunks({ ...keyOf(job), attempt: job.attempt }, batch);
  } else if (kind === 'log' && decision.job.logBytes > job.logBytes) {
    tx.appendLog(job, job.logBytes, body);
  } else if (kind === 'outcome') {
    const { outputKind, status } = decision.job;
    const hasValue = outputKind === 'value' && status === 'COMPLETED' && body.length > 0;
    noteOutput(hasValue && !output ? body : undefined);
    if (hasValue) tx.putOutput(job, output ?? body);
  }
}

function hasOutput(report: Report): boolean {
  return (
    report.kind === 'outcome' &&
    report.outcome.kind === 'completed' &&
    report.outcome.output === 'value'
  );
}

function keyOf({ endpointId, id }: StoredJob): { endpointId: string; id: string } {
  return { endpointId, id };
}

function toEvent(
  job: StoredJob,
  report: Exclude<Report, { kind: 'step' }>,
  { maxLogBytes, maxOutputBytes }: QueueSettings,
  outgrown: string | undefined,
): JobEvent {
  const { seq, body } = report;
  switch (report.kind) {
    case 'chunks':
      return { type: 'chunks', seq, count: report.sizes.length, bytes: body.length };
    case 'progress':
      return { type: 'progress', seq, value: Buffer.from(body).toString('utf8') };
    case 'pause':
      return { type: 'log', seq, bytes: 0, dropped: 0 };
    case 'log': {
      const fits = job.logBytes + body.length <= maxLogBytes;
      const dropped = report.dropped + (fits ? 0 : countLines(body));
      return { type: 'log', seq, bytes: fits ? body.length : 0, dropped };
    }
    case 'outcome': {
      const size = { bytes: body.length, maxBytes: maxOutputBytes };
      const outcome = boundOutcome(report.outcome, size);
      const waitedMs = boundSpan(report.waitedMs ?? 0);
      return { type: 'outcome', seq, outcome, usage: boundUsage(report.usage), outgrown, waitedMs };
    }
  }
}

/** @throws LinkError `invalid` if the body does not match the header */
function checkBody(report: Report): void {
  if (report.kind === 'progress') checkProgress(report);
  if (report.kind === 'step' && report.body.length > LIMITS.stepBytes) {
    throw refuse(
      report,
      `the step has ${report.body.length} bytes, the limit is ${LIMITS.stepBytes}`,
    );
  }
  if (report.kind !== 'chunks') return;
  const bytes = report.sizes.reduce((sum, size) => sum + size, report.sizes.length - 1);
  if (bytes !== report.body.length) {
    throw refuse(report, `sizes add up to ${bytes} bytes, the body has ${report.body.length}`);
  }
}

/** The platform inserts the value into the job's record unchanged, so it must be JSON. */
function checkProgress(report: Report): void {
  const { length } = report.body;
  if (length > LIMITS.progressBytes) {
    throw refuse(report, `the progress is ${length} bytes, the limit is ${LIMITS.progressBytes}`);
  }
  try {
    JSON.parse(Buffer.from(report.body).toString('utf8'));
  } catch {
    throw refuse(report, 'the progress is not JSON');
  }
}

function refuse({ jobId, seq }: Report, problem: string): LinkError {
  return new LinkError('invalid', `report ${seq} of job ${jobId}: ${problem}`);
}

function countLines(bytes: Uint8Array): number {
  let lines = 0;
  for (const byte of bytes) if (byte === 0x0a) lines++;
  return lines;
}
