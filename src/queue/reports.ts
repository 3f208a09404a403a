// Handles worker reports: judges each one, applies its effect in the same operation, and answers it.
import type { Log } from '../base/log.ts';
import {
  ENDING,
  type StagedPayload,
  type Step,
  type Store,
  type StoredJob,
  type Transaction,
} from '../store/store.ts';
import { LIMITS } from '../wire/job.ts';
import {
  LinkError,
  type Report,
  type ReportReply,
  type ReportRequest,
} from '../wire/link/worker-link.ts';
import { nameTrace } from '../wire/trace-context.ts';
import type { Changes, StepOn } from './changes.ts';
import type { LargePayloads } from './large-payloads.ts';
import type { Presence } from './leases/presence.ts';
import { type JobEvent, judgeReport } from './lifecycle.ts';
import { boundOutcome } from './outcome-bounds.ts';
import type { QueueSettings } from './settings.ts';

const APPLIED: ReportReply = { answer: 'applied' };

export interface ReportsOptions {
  store: Store;
  payloads: LargePayloads;
  presence: Presence;
  changes: Changes;
  settings: QueueSettings;
  log: Log;
}

export class Reports {
  readonly #options: ReportsOptions;

  constructor(options: ReportsOptions) {
    this.#options = options;
  }

  /** Small reports share one commit; each is undone alone. */
  async report(endpointId: string, request: ReportRequest): Promise<ReportReply[]> {
    const { changes, payloads, presence } = this.#options;
    const worker = presence.require(endpointId, request);
    worker.seenAt = changes.moment().now;
    for (const report of request.reports) checkBody(report);
    const uploads = await this.#upload(endpointId, request.reports);
    const pending: Promise<ReportReply>[] = [];
    try {
      for (const report of request.reports) {
        const output = uploads.get(report);
        const apply = () => this.#apply(endpointId, report, output);
        if (output || !payloads.isLarge(report.body)) {
          pending.push(apply());
          continue;
        }
        // A commit of its own; those after it must not come before it.
        pending.push(payloads.inTurn(apply));
        await Promise.allSettled(pending);
      }
    } finally {
      await Promise.allSettled(pending);
      for (const upload of uploads.values()) payloads.release(upload);
    }
    const replies = await Promise.all(pending);
    for (const [index, report] of request.reports.entries()) {
      if (report.kind === 'outcome') this.#logOutcome(request, report, replies[index]);
    }
    return replies;
  }

  #apply(
    endpointId: string,
    report: Report,
    output: StagedPayload | undefined,
  ): Promise<ReportReply> {
    const { changes, settings } = this.#options;
    return changes.commit(
      function* (tx, step) {
        const job = yield* tx.job({ endpointId, id: report.jobId });
        const verdict = judgeReport(job, report);
        if (verdict !== 'apply' || !job) return verdict === 'apply' ? APPLIED : verdict;
        if (report.kind === 'chunks' && report.first !== job.chunkCount) {
          throw refuse(report, `chunk ${report.first} follows ${job.chunkCount} chunks`);
        }
        yield* applyReport(tx, step, { job, report, settings, output });
        return APPLIED;
      },
      output ? 0 : report.body.length,
    );
  }

  /** Stores large outputs before the reports with which they come, unless those will be refused. */
  async #upload(
    endpointId: string,
    reports: readonly Report[],
  ): Promise<Map<Report, StagedPayload>> {
    const { payloads, settings, store } = this.#options;
    const uploads = new Map<Report, StagedPayload>();
    try {
      for (const report of reports) {
        const { body: bytes, jobId } = report;
        if (!hasOutput(report) || !payloads.isLarge(bytes)) continue;
        if (bytes.length > settings.maxOutputBytes) continue;
        const key = { endpointId, id: jobId };
        const job = await store.read((tx) => tx.job(key));
        if (!isWanted(judgeReport(job, report))) continue;
        const upload = { kind: 'output', key, bytes, options: ENDING } as const;
        uploads.set(report, await payloads.upload(upload));
      }
      return uploads;
    } catch (error) {
      for (const upload of uploads.values()) payloads.release(upload);
      throw error;
    }
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
  report: Report;
  /** The output, if it is stored already. */
  output: StagedPayload | undefined;
  settings: QueueSettings;
}

function* applyReport(
  tx: Transaction,
  step: StepOn,
  { job, output, report, settings }: Application,
): Step<void> {
  const decision = yield* step(job, toEvent(job, report, settings));
  if ('refused' in decision)
    throw new Error(`report ${report.seq} of ${job.id}: ${decision.refused}`);
  const { kind, body } = report;
  if (kind === 'chunks' && decision.job.chunkCount > job.chunkCount) {
    const batch = { first: job.chunkCount, sizes: report.sizes, bytes: body };
    yield* tx.appendChunks({ ...keyOf(job), attempt: job.attempt }, batch);
  } else if (kind === 'log' && decision.job.logBytes > job.logBytes) {
    yield* tx.appendLog(job, job.logBytes, body);
  } else if (kind === 'outcome' && decision.job.outputKind === 'value' && body.length > 0) {
    if (decision.job.status === 'COMPLETED') yield* tx.putOutput(job, output ?? body);
  }
}

function hasOutput(report: Report): boolean {
  return (
    report.kind === 'outcome' &&
    report.outcome.kind === 'completed' &&
    report.outcome.output === 'value'
  );
}

/** A gap may be closed by the reports before it in the same message. */
function isWanted(verdict: ReportReply | 'apply'): boolean {
  return verdict === 'apply' || verdict.answer === 'gap';
}

function keyOf({ endpointId, id }: StoredJob): { endpointId: string; id: string } {
  return { endpointId, id };
}

function toEvent(
  job: StoredJob,
  report: Report,
  { maxLogBytes, maxOutputBytes }: QueueSettings,
): JobEvent {
  const { seq, body } = report;
  switch (report.kind) {
    case 'chunks':
      return { type: 'chunks', seq, count: report.sizes.length, bytes: body.length };
    case 'progress':
      return { type: 'progress', seq, value: Buffer.from(body).toString('utf8') };
    case 'log': {
      const fits = job.logBytes + body.length <= maxLogBytes;
      const dropped = report.dropped + (fits ? 0 : countLines(body));
      return { type: 'log', seq, bytes: fits ? body.length : 0, dropped };
    }
    case 'outcome': {
      const size = { bytes: body.length, maxBytes: maxOutputBytes };
      return { type: 'outcome', seq, outcome: boundOutcome(report.outcome, size) };
    }
  }
}

/** @throws LinkError `invalid` if the body does not match the header */
function checkBody(report: Report): void {
  if (report.kind === 'progress') checkProgress(report);
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
