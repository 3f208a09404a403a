// Validates the platform's answers to a worker's verbs, member by member. Written by hand to keep
// zod out of every worker; wire/worker-link-schemas.ts has the same rules as schemas.
import { MAX_S3_CONFIG_LENGTH } from '../wire/job/job.ts';
import {
  type LeaseHeader,
  MAX_JOB_ID_LENGTH,
  MAX_TOKEN_LENGTH,
  type RenewReply,
  type ReportReply,
  type WorkerWelcome,
} from '../wire/link/worker-link.ts';
import { MAX_TRACESTATE_LENGTH, TRACEPARENT_LENGTH } from '../wire/trace-context.ts';

/** The message names the path and the fault: `leases[0].token: must be …`. */
export class AnswerError extends Error {
  override readonly name = 'AnswerError';

  constructor(path: string, fault: string) {
    super(`${path}: ${fault}`);
  }
}

/** @throws AnswerError */
export function readWelcome(value: unknown): WorkerWelcome {
  const members = openObject(value, 'answer');
  const welcome: WorkerWelcome = {
    protocol: members.int('protocol'),
    leaseMs: members.number('leaseMs'),
    renewEveryMs: members.number('renewEveryMs'),
    takeWaitMs: members.number('takeWaitMs'),
  };
  if (members.has('capabilities')) {
    welcome.capabilities = members.list('capabilities', (name) => String(name));
  }
  if (members.has('reportsBy')) {
    welcome.reportsBy = members.word('reportsBy', ['worker', 'attempt']);
  }
  if (members.has('takesBack')) welcome.takesBack = members.flag('takesBack');
  if (members.has('replacesWorkers')) welcome.replacesWorkers = members.flag('replacesWorkers');
  return welcome;
}

/** Reads the header of one lease; `path` is its name in errors. @throws AnswerError */
export function readLeaseHeader(value: unknown, path: string): LeaseHeader {
  const members = openObject(value, path);
  const traceparent = members.optionalText('traceparent', TRACEPARENT_LENGTH);
  const tracestate = members.optionalText('tracestate', MAX_TRACESTATE_LENGTH);
  const s3Config = members.optionalText('s3Config', MAX_S3_CONFIG_LENGTH);
  const header: LeaseHeader = {
    jobId: members.text('jobId', MAX_JOB_ID_LENGTH),
    attempt: members.int('attempt', 1),
    token: members.text('token', MAX_TOKEN_LENGTH),
    executionTimeoutMs: members.number('executionTimeoutMs'),
    solo: members.flag('solo'),
    submittedAt: members.number('submittedAt'),
  };
  if (traceparent !== undefined) header.traceparent = traceparent;
  if (tracestate !== undefined) header.tracestate = tracestate;
  if (s3Config !== undefined) header.s3Config = s3Config;
  return header;
}

/** @throws AnswerError */
export function readLeaseHeaders(value: unknown): LeaseHeader[] {
  return openObject(value, 'answer').list('leases', readLeaseHeader);
}

/** @throws AnswerError */
export function readRenewReply(value: unknown): RenewReply {
  const members = openObject(value, 'answer');
  return {
    ended: members.list('ended', (item, path) => {
      const lease = openObject(item, path);
      return {
        jobId: lease.text('jobId', MAX_JOB_ID_LENGTH),
        token: lease.text('token', MAX_TOKEN_LENGTH),
        verdict: lease.word('verdict', ['cancelled', 'lost']),
      };
    }),
    drain: members.flag('drain'),
  };
}

/** @throws AnswerError */
export function readReportReplies(value: unknown): ReportReply[] {
  return readList(value, 'answer', readReportReply);
}

const REPORT_ANSWERS = ['applied', 'duplicate', 'gap', 'superseded', 'gone'] as const;

function readReportReply(value: unknown, path: string): ReportReply {
  const members = openObject(value, path);
  const answer = members.word('answer', REPORT_ANSWERS);
  return answer === 'gap' ? { answer, expected: members.int('expected') } : { answer };
}

type ReadItem<T> = (item: unknown, path: string) => T;

function readList<T>(value: unknown, path: string, read: ReadItem<T>): T[] {
  if (!Array.isArray(value)) throw new AnswerError(path, 'must be an array');
  return value.map((item, index) => read(item, `${path}[${index}]`));
}

function openObject(value: unknown, path: string): Members {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new AnswerError(path, 'must be an object');
  }
  return new Members(value, path);
}

/** The members of an object by name, each checked for its type; unknown members are ignored. */
class Members {
  readonly #object: object;
  readonly #path: string;

  constructor(object: object, path: string) {
    this.#object = object;
    this.#path = path;
  }

  number(name: string): number {
    const value = this.#read(name);
    if (typeof value === 'number' && Number.isFinite(value)) return value;
    throw this.#reject(name, 'must be a number');
  }

  int(name: string, min = Number.MIN_SAFE_INTEGER): number {
    const value = this.#read(name);
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min) return value;
    const range = min === Number.MIN_SAFE_INTEGER ? '' : ` of at least ${min}`;
    throw this.#reject(name, `must be a whole number${range}`);
  }

  flag(name: string): boolean {
    const value = this.#read(name);
    if (typeof value === 'boolean') return value;
    throw this.#reject(name, 'must be true or false');
  }

  text(name: string, maxLength: number): string {
    const value = this.#read(name);
    if (typeof value === 'string' && value.length >= 1 && value.length <= maxLength) return value;
    throw this.#reject(name, `must be a string of 1 to ${maxLength} characters`);
  }

  has(name: string): boolean {
    return Object.hasOwn(this.#object, name);
  }

  optionalText(name: string, maxLength: number): string | undefined {
    return this.has(name) ? this.text(name, maxLength) : undefined;
  }

  word<W extends string>(name: string, words: readonly W[]): W {
    const value = this.#read(name);
    const word = words.find((candidate) => candidate === value);
    if (word !== undefined) return word;
    throw this.#reject(name, `must be one of ${words.join(', ')}`);
  }

  list<T>(name: string, read: ReadItem<T>): T[] {
    return readList(this.#read(name), `${this.#path}.${name}`, read);
  }

  #read(name: string): unknown {
    return this.has(name) ? Reflect.get(this.#object, name) : undefined;
  }

  #reject(name: string, fault: string): AnswerError {
    return new AnswerError(`${this.#path}.${name}`, fault);
  }
}
