// Maps a job to its row and back. Statements filter and sort by columns; all else is in two JSON texts: `body`, and
// `details`, which may be large and which lists do not read. stored-records.ts has the members and their defaults.
import { JOB_STATUSES, type JobStatus } from '../../wire/job/job.ts';
import type { Row, SqlValue, StoredJob } from '../store.ts';
import {
  JOB_BODY,
  JOB_DETAILS,
  type JobDetailsMember,
  NO_GROUP,
  outgrownNumber,
} from '../stored-records.ts';
import { number, text, textOrNull, UnreadableRowError } from './rows.ts';

/** Of both texts: their member `v`. */
const VERSION = 1;

/** In the order of `listKeys`. `body` and `details` follow, and the small payloads of the job. */
const KEY_COLUMNS = [
  'endpoint_id',
  'id',
  'status',
  'lane',
  'priority',
  'place',
  'position',
  'group_key',
  'queued_at',
  'due_at',
  'worker',
  'leased',
  'idempotency_key',
] as const;

/** All columns of the table, in the order of `listImageValues`. */
export const imageColumns = [...KEY_COLUMNS, 'body', 'details', 'input', 'output'] as const;

/** To select jobs without their payloads. */
export const allJobColumns = [...KEY_COLUMNS, 'body', 'details'].join(', ');

/** To select jobs without what makes their rows large. */
export const slimJobColumns = [...KEY_COLUMNS, 'body', 'null as details'].join(', ');

/** Jobs of one value are a queue of their own. Ready jobs that any worker may take have this one. */
export const READY_LANE = 0;
/** Ready jobs that have outgrown a GPU type have higher ones: the number of the type. */
const DELAYED_LANE = 1;

function listKeys(job: StoredJob): SqlValue[] {
  return [
    job.endpointId,
    job.id,
    job.status,
    job.delayed ? DELAYED_LANE : outgrownNumber(job),
    job.priority,
    job.place,
    job.position,
    job.group ?? NO_GROUP,
    job.queuedAt,
    job.dueAt,
    job.lease?.workerId ?? job.workerId,
    job.lease ? 1 : 0,
    job.idempotencyKey,
  ];
}

/** Small payloads, which the row of the job has. */
export interface InlinePayloads {
  /** Undefined: there is none, or it is in its own rows. */
  input?: Uint8Array | undefined;
  output?: Uint8Array | undefined;
}

/** The whole row of a job. */
export function listImageValues(job: StoredJob, { input, output }: InlinePayloads): SqlValue[] {
  const values = listKeys(job);
  values.push(writeBody(job), writeDetails(job), input ?? null, output ?? null);
  return values;
}

/** Columns of a row that differ: indexes into `imageColumns`, ascending, with their new values. */
export interface RowChange {
  /** The same number for the same columns. */
  bits: number;
  columns: number[];
  values: SqlValue[];
}

const [BODY_INDEX, DETAILS_INDEX, OUTPUT_INDEX] = [
  imageColumns.indexOf('body'),
  imageColumns.indexOf('details'),
  imageColumns.indexOf('output'),
];

/** An update then leaves alone the indexes over other columns: they would be most of its cost. */
export function compareRows(
  before: StoredJob,
  after: StoredJob,
  output: Uint8Array | undefined,
): RowChange {
  const change: RowChange = { bits: 0, columns: [], values: [] };
  const [old, now] = [listKeys(before), listKeys(after)];
  for (let index = 0; index < now.length; index++) {
    const value = now[index] ?? null;
    if (value !== old[index]) addColumn(change, index, value);
  }
  if (before !== after) addColumn(change, BODY_INDEX, writeBody(after));
  if (!hasSameDetails(before, after)) addColumn(change, DETAILS_INDEX, writeDetails(after));
  if (output) addColumn(change, OUTPUT_INDEX, output);
  return change;
}

function addColumn(change: RowChange, index: number, value: SqlValue): void {
  change.bits += 2 ** index;
  change.columns.push(index);
  change.values.push(value);
}

/** The written value of each member. Undefined: the member has its default, and is left out. */
type Written<T> = { [Name in keyof T]: T[Name] | undefined };

/** An object literal, because a loop over the names takes several times as long. */
function writeBody(job: StoredJob): string {
  const written: Written<typeof JOB_BODY> & { v: number } = {
    v: VERSION,
    mode: job.mode === 'run' ? undefined : job.mode,
    submittedAt: job.submittedAt,
    availableAt: job.availableAt,
    expiresAt: job.expiresAt,
    ttlMs: job.ttlMs,
    executionTimeoutMs: job.executionTimeoutMs,
    maxAttempts: job.maxAttempts,
    retry: job.retry ?? undefined,
    startedAt: job.startedAt ?? undefined,
    deadlineAt: job.deadlineAt ?? undefined,
    suspendedAt: job.suspendedAt ?? undefined,
    suspensions: job.suspensions || undefined,
    suspendedMs: job.suspendedMs || undefined,
    endedAt: job.endedAt ?? undefined,
    executionMs: job.executionMs ?? undefined,
    attempt: job.attempt || undefined,
    failures: job.failures || undefined,
    releases: job.releases || undefined,
    solo: job.solo || undefined,
    lease: job.lease ?? undefined,
    lastSeq: job.lastSeq || undefined,
    chunkCount: job.chunkCount || undefined,
    chunkBytes: job.chunkBytes || undefined,
    cursorAttempt: job.cursorAttempt || undefined,
    cursorNext: job.cursorNext || undefined,
    outputKind: job.outputKind === 'none' ? undefined : job.outputKind,
    logBytes: job.logBytes || undefined,
    logDropped: job.logDropped || undefined,
    workerId: job.workerId ?? undefined,
    requestHash: job.requestHash ?? undefined,
    traceparent: job.traceparent ?? undefined,
    tracestate: job.tracestate ?? undefined,
    webhook: job.webhook ?? undefined,
    resubmission: job.resubmission ?? undefined,
    linked: job.linked || undefined,
    tick: job.tick ?? undefined,
    // The last one: searches find the tags at the end of the text.
    tags: job.tags ?? undefined,
  };
  return JSON.stringify(written);
}

function hasSameDetails(before: StoredJob, after: StoredJob): boolean {
  return (
    before.error === after.error &&
    before.history === after.history &&
    before.notes === after.notes &&
    before.progress === after.progress &&
    before.usage === after.usage &&
    before.links === after.links &&
    before.attachment === after.attachment
  );
}

/** Null if all members have their defaults. */
function writeDetails({
  attachment,
  error,
  history,
  links,
  notes,
  progress,
  usage,
}: StoredJob): string | null {
  const hasLists = history.length > 0 || notes.length > 0;
  const hasRecords = error || usage || links || attachment;
  if (!hasLists && !hasRecords && progress === null) return null;
  const written: Written<typeof JOB_DETAILS> & { v: number } = {
    v: VERSION,
    error: error ?? undefined,
    history: history.length > 0 ? history : undefined,
    notes: notes.length > 0 ? notes : undefined,
    progress: progress ?? undefined,
    usage: usage ?? undefined,
    links: links ?? undefined,
    attachment: attachment ?? undefined,
  };
  return JSON.stringify(written);
}

/** @throws UnreadableRowError, SyntaxError */
export function readJob(row: Row): StoredJob {
  const details = textOrNull(row, 'details');
  return {
    ...JOB_BODY,
    ...readText(text(row, 'body'), 'body'),
    ...readDetails(details),
    endpointId: text(row, 'endpoint_id'),
    id: text(row, 'id'),
    status: readStatus(row),
    delayed: number(row, 'lane') === DELAYED_LANE,
    priority: number(row, 'priority'),
    place: number(row, 'place'),
    position: number(row, 'position'),
    group: text(row, 'group_key') || null,
    queuedAt: number(row, 'queued_at'),
    dueAt: number(row, 'due_at'),
    idempotencyKey: textOrNull(row, 'idempotency_key'),
  };
}

/** `details`: null for members that all have their defaults. @throws UnreadableRowError, SyntaxError */
export function readDetails(details: string | null): Pick<StoredJob, JobDetailsMember> {
  return { ...JOB_DETAILS, ...(details === null ? undefined : readText(details, 'details')) };
}

/** The members that were written; this version or an earlier one wrote them. */
function readText(written: string, column: string): Partial<StoredJob> {
  const { v, ...members } = JSON.parse(written);
  if (v !== VERSION) throw new UnreadableRowError(column, `a text of version ${VERSION}`, v);
  return members;
}

const statuses: ReadonlyMap<unknown, JobStatus> = new Map(
  JOB_STATUSES.map((status) => [status, status]),
);

function readStatus(row: Row): JobStatus {
  const status = statuses.get(row['status']);
  if (!status) throw new UnreadableRowError('status', 'a job status', row['status']);
  return status;
}
