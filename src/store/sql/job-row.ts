// Maps a job to its row and back.
import { type FailedAttempt, JOB_STATUSES, type JobStatus } from '../../wire/job/job.ts';
import { outgrownNumber } from '../outgrown-gpu.ts';
import type { JobAttachment, JobNote, Row, SqlValue, StoredJob, StoredLease } from '../store.ts';
import { flag, number, numberOrNull, text, textOrNull, UnreadableRowError } from './rows.ts';

/** In the order of `listJobValues`. A set of columns is stored as bits of a number: at most 53. */
export const jobColumns = [
  'endpoint_id',
  'id',
  'status',
  'mode',
  'priority',
  'position',
  'submitted_at',
  'queued_at',
  'available_at',
  'delayed',
  'expires_at',
  'ttl_ms',
  'execution_timeout_ms',
  'max_attempts',
  'started_at',
  'deadline_at',
  'ended_at',
  'execution_ms',
  'due_at',
  'attempt',
  'failures',
  'releases',
  'solo',
  'lease_token',
  'lease_worker',
  'lease_incarnation',
  'lease_take',
  'lease_until',
  'lease_started',
  'lease_lost',
  'last_seq',
  'chunk_count',
  'chunk_bytes',
  'cursor_attempt',
  'cursor_next',
  'output_kind',
  'log_bytes',
  'log_dropped',
  'error',
  'history',
  'progress',
  'worker_id',
  'idempotency_key',
  'request_hash',
  'traceparent',
  'tracestate',
  'webhook',
  's3_config',
  'api',
  'group_key',
  'turn',
] as const;

/**
 * The column `progress` has the progress of a running attempt, and the usage of an ended one behind this
 * mark, with which no JSON text begins. The two never exist together.
 */
const USAGE_MARK = '\x1e';

/**
 * The column `delayed` is 0 for ready jobs, 1 for delayed ones, and more for ready jobs that have outgrown a GPU type:
 * the number of the type. The index of queued jobs has it before the order, so each of these is a queue of its own.
 */
const DELAYED = 1;

export function listJobValues(job: StoredJob): SqlValue[] {
  const { lease, error, history, notes } = job;
  return [
    job.endpointId,
    job.id,
    job.status,
    job.mode,
    job.priority,
    job.position,
    job.submittedAt,
    job.queuedAt,
    job.availableAt,
    job.delayed ? DELAYED : outgrownNumber(job),
    job.expiresAt,
    job.ttlMs,
    job.executionTimeoutMs,
    job.maxAttempts,
    job.startedAt,
    job.deadlineAt,
    job.endedAt,
    job.executionMs,
    job.dueAt,
    job.attempt,
    job.failures,
    job.releases,
    job.solo ? 1 : 0,
    lease ? lease.token : null,
    lease ? lease.workerId : null,
    lease ? lease.incarnation : null,
    lease ? lease.takeId : null,
    lease ? lease.until : null,
    lease ? (lease.started ? 1 : 0) : null,
    lease ? lease.lost : null,
    job.lastSeq,
    job.chunkCount,
    job.chunkBytes,
    job.cursorAttempt,
    job.cursorNext,
    job.outputKind,
    job.logBytes,
    job.logDropped,
    error ? JSON.stringify(error) : null,
    history.length === 0 && notes.length === 0 ? null : writeHistory(job),
    job.usage ? `${USAGE_MARK}${JSON.stringify(job.usage)}` : job.progress,
    job.workerId,
    job.idempotencyKey,
    job.requestHash,
    job.traceparent,
    job.tracestate,
    job.webhook,
    job.attachment?.handlerData ?? null,
    job.attachment?.format ?? null,
    job.group,
    job.turn,
  ];
}

const LARGE_COLUMNS: ReadonlySet<string> = new Set(['error', 'history', 'progress', 's3_config']);

/** To select jobs without what makes their rows large. */
export const slimJobColumns = jobColumns
  .map((name) => (LARGE_COLUMNS.has(name) ? `null as ${name}` : name))
  .join(', ');

/** To select jobs without their payloads. */
export const allJobColumns = jobColumns.join(', ');

/** Small payloads, which the row of the job has. */
export interface InlinePayloads {
  /** Undefined: there is none, or it is in its own rows. */
  input?: Uint8Array | undefined;
  output?: Uint8Array | undefined;
}

/** All columns of the table, in the order of `listImageValues`. */
export const imageColumns = [...jobColumns, 'input', 'output'] as const;

/** The whole row of a job. */
export function listImageValues(job: StoredJob, { input, output }: InlinePayloads): SqlValue[] {
  const values = listJobValues(job);
  values.push(input ?? null, output ?? null);
  return values;
}

export function readJob(row: Row): StoredJob {
  const error = textOrNull(row, 'error');
  const { history, notes } = readHistory(textOrNull(row, 'history'));
  const said = textOrNull(row, 'progress');
  const isUsage = said?.startsWith(USAGE_MARK) ?? false;
  return {
    endpointId: text(row, 'endpoint_id'),
    id: text(row, 'id'),
    status: readStatus(row),
    mode: text(row, 'mode') === 'runsync' ? 'runsync' : 'run',
    priority: number(row, 'priority'),
    group: textOrNull(row, 'group_key'),
    turn: number(row, 'turn'),
    position: number(row, 'position'),
    submittedAt: number(row, 'submitted_at'),
    queuedAt: number(row, 'queued_at'),
    availableAt: number(row, 'available_at'),
    delayed: number(row, 'delayed') === DELAYED,
    expiresAt: number(row, 'expires_at'),
    ttlMs: number(row, 'ttl_ms'),
    executionTimeoutMs: number(row, 'execution_timeout_ms'),
    maxAttempts: number(row, 'max_attempts'),
    startedAt: numberOrNull(row, 'started_at'),
    deadlineAt: numberOrNull(row, 'deadline_at'),
    endedAt: numberOrNull(row, 'ended_at'),
    executionMs: numberOrNull(row, 'execution_ms'),
    dueAt: number(row, 'due_at'),
    attempt: number(row, 'attempt'),
    failures: number(row, 'failures'),
    releases: number(row, 'releases'),
    solo: flag(row, 'solo'),
    lease: readLease(row),
    lastSeq: number(row, 'last_seq'),
    chunkCount: number(row, 'chunk_count'),
    chunkBytes: number(row, 'chunk_bytes'),
    cursorAttempt: number(row, 'cursor_attempt'),
    cursorNext: number(row, 'cursor_next'),
    outputKind: readOutputKind(row),
    logBytes: number(row, 'log_bytes'),
    logDropped: number(row, 'log_dropped'),
    error: error === null ? null : JSON.parse(error),
    history,
    notes,
    progress: isUsage ? null : said,
    usage: isUsage ? JSON.parse(said?.slice(USAGE_MARK.length) ?? 'null') : null,
    workerId: textOrNull(row, 'worker_id'),
    idempotencyKey: textOrNull(row, 'idempotency_key'),
    requestHash: textOrNull(row, 'request_hash'),
    traceparent: textOrNull(row, 'traceparent'),
    tracestate: textOrNull(row, 'tracestate'),
    webhook: textOrNull(row, 'webhook'),
    attachment: toAttachment(row),
  };
}

/**
 * The column `history` has the failed attempts, and before them one member with the notes, if there are any.
 */
function writeHistory({ history, notes }: StoredJob): string {
  return JSON.stringify(notes.length === 0 ? history : [{ notes }, ...history]);
}

function readHistory(written: string | null): Pick<StoredJob, 'history' | 'notes'> {
  if (written === null) return { history: [], notes: [] };
  const members: (FailedAttempt | { notes: JobNote[] })[] = JSON.parse(written);
  const history: FailedAttempt[] = [];
  const notes: JobNote[] = [];
  for (const member of members) {
    if ('notes' in member) notes.push(...member.notes);
    else history.push(member);
  }
  return { history, notes };
}

function toAttachment(row: Row): JobAttachment | null {
  const format = textOrNull(row, 'api');
  const handlerData = textOrNull(row, 's3_config');
  return format === null && handlerData === null ? null : { format, handlerData };
}

const statuses: ReadonlyMap<unknown, JobStatus> = new Map(
  JOB_STATUSES.map((status) => [status, status]),
);

function readStatus(row: Row): JobStatus {
  const status = statuses.get(row['status']);
  if (!status) throw new UnreadableRowError('status', 'a job status', row['status']);
  return status;
}

function readOutputKind(row: Row): StoredJob['outputKind'] {
  const kind = row['output_kind'];
  if (kind === 'none' || kind === 'value' || kind === 'chunks') return kind;
  throw new UnreadableRowError('output_kind', 'none, value or chunks', kind);
}

function readLease(row: Row): StoredLease | null {
  const token = textOrNull(row, 'lease_token');
  if (token === null) return null;
  const lost = row['lease_lost'];
  return {
    token,
    workerId: text(row, 'lease_worker'),
    incarnation: number(row, 'lease_incarnation'),
    takeId: text(row, 'lease_take'),
    until: number(row, 'lease_until'),
    started: flag(row, 'lease_started'),
    lost: lost === 'failure' || lost === 'release' ? lost : null,
  };
}
