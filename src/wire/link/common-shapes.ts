// Recognises the most common messages of workers without zod: for a short job, zod's checks and copies
// cost more than anything else here. These checks accept only messages that the schemas accept; the schemas
// check every other message.
import { TRACEPARENT_LENGTH } from '../trace-context.ts';
import {
  type LeaseRef,
  MAX_JOB_ID_LENGTH,
  MAX_TOKEN_LENGTH,
  type Outcome,
  type RenewRequest,
  type ReportHeader,
} from './worker-link.ts';

export function isToken(value: unknown): value is string {
  return isText(value, MAX_TOKEN_LENGTH);
}

/** A lease in an outbox, without another member. */
export function isLeaseRef(value: unknown): value is LeaseRef {
  if (!isObject(value) || countMembers(value) !== 3) return false;
  const { attempt, jobId, token } = value;
  return isText(jobId, MAX_JOB_ID_LENGTH) && isToken(token) && isCount(attempt);
}

/** A lease in a renewal, without another member. */
export function isRenewedLease(value: unknown): value is RenewRequest['leases'][number] {
  if (!isObject(value)) return false;
  const { delivering, jobId, stopping, token } = value;
  return (
    countMembers(value) === (delivering === undefined ? 3 : 4) &&
    isText(jobId, MAX_JOB_ID_LENGTH) &&
    isToken(token) &&
    typeof stopping === 'boolean' &&
    (delivering === undefined || typeof delivering === 'boolean')
  );
}

/** An outcome `completed` with all of its members and no other. */
export function isCompletedReport(header: unknown): header is ReportHeader {
  if (!isObject(header)) return false;
  const { attempt, jobId, kind, outcome, seq, token, traceparent } = header;
  return (
    kind === 'outcome' &&
    countMembers(header) === (traceparent === undefined ? 6 : 7) &&
    isText(jobId, MAX_JOB_ID_LENGTH) &&
    isToken(token) &&
    isCount(attempt) &&
    isCount(seq) &&
    (traceparent === undefined || isText(traceparent, TRACEPARENT_LENGTH)) &&
    isCompleted(outcome)
  );
}

function isCompleted(outcome: unknown): outcome is Outcome {
  if (!isObject(outcome)) return false;
  const { executionMs, kind, output } = outcome;
  return (
    kind === 'completed' &&
    countMembers(outcome) === 3 &&
    typeof executionMs === 'number' &&
    Number.isFinite(executionMs) &&
    executionMs >= 0 &&
    (output === 'value' || output === 'chunks')
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

function countMembers(value: object): number {
  let count = 0;
  for (const _name in value) count += 1;
  return count;
}

function isText(value: unknown, maxLength: number): value is string {
  return typeof value === 'string' && value.length > 0 && value.length <= maxLength;
}

/** A whole number from 1. */
function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && typeof value === 'number' && value >= 1;
}
