// A history has every call of every client with its answer, every received webhook, and every fault, in the order of
// time. The checker reads nothing else.
import type { JobPolicy, JobStatus } from '../../src/wire/job/job.ts';
import type { RecordedInput } from '../support/handlers/recorded.ts';

export interface History {
  /** Repeats the choices of the run, not its timing. */
  seed: number;
  /** Each tag starts with it: several histories may share a platform. */
  name: string;
  endpoints: Record<string, Endpoint>;
  limits: readonly Limit[];
  leaseMs: number;
  /** No worker fails, and no connection of one, except when the platform is away. */
  areWorkersSteady?: boolean;
  events: HistoryEvent[];
}

export interface Endpoint {
  user: string;
}

/** Of jobs of these endpoints together. */
export interface Limit {
  name: string;
  endpoints: readonly string[];
  /** `group`: of each group of jobs; jobs without a group have none. */
  key: 'group' | null;
  /** Most jobs that run at once. */
  concurrency: number | null;
  /** Most attempts that start in a window. */
  rateLimit: { max: number; perMs: number } | null;
}

export type HistoryEvent = Call | Posted | Fault | Settled;

/** Times are Unix ms. No two in a history are equal, so they also give the order of events. */
export interface Call {
  kind: 'call';
  user: string;
  sentAt: number;
  /** When the answer was complete, or the client gave up. */
  answeredAt: number;
  request: Request;
  /** Null: no complete answer arrived, so the request may or may not have taken effect. */
  answer: Answer | null;
}

export type Request = { endpoint: string } & (
  | { do: 'run' | 'runsync'; body: Submission }
  | { do: 'jobs'; bodies: Submission[] }
  | { do: 'status' | 'details' | 'cancel' | 'retry'; job: string }
  /** `after`: a position, 0 for the start, or null for the cursor that the platform keeps. */
  | { do: 'stream'; job: string; after: string | null }
  /** All pages. */
  | { do: 'list' }
  | { do: 'purge' }
  | { do: 'schedule'; body: NewSchedule }
  /** All of the user. */
  | { do: 'schedules' }
  | { do: 'pause'; schedule: string }
  | { do: 'flow'; body: NewFlow }
  | { do: 'flow-record'; flow: string }
);

/** A schedule whose platform has been away for less than a minute misses no tick. */
export interface NewSchedule {
  /** A tag. */
  name: string;
  /** ms */
  every: number;
  overlap: 'allow' | 'replace' | 'skip';
  input: RecordedInput;
}

export interface NewFlow {
  /** Parents before their children. */
  jobs: {
    name: string;
    endpoint: string;
    input: RecordedInput;
    after: { job: string; onFailure: 'fail' | 'run' | 'skip' }[];
  }[];
  idempotencyKey: string;
}

export interface Submission {
  input: RecordedInput;
  policy?: JobPolicy;
  webhook?: string;
  idempotencyKey?: string;
}

export interface Answer {
  status: number;
  /** JSON. For a `stream`: a StreamBody with what arrived, even if the connection broke. For a `list`: `{ jobs }`. */
  body: unknown;
}

export interface StreamBody {
  pieces: Piece[];
  /** `part`: a page, a connection that broke, or a client that left. */
  end: 'part' | 'done' | 'expired';
  /** Only of a page. */
  status?: JobStatus;
  /** The final record, which the event `done` carries. */
  record?: unknown;
}

/** A chunk with its position, or the start of a new attempt. */
export type Piece = { at: string; output: unknown } | { reset: true };

/** A webhook that a receiver got. */
export interface Posted {
  kind: 'posted';
  at: number;
  /** The submission's `webhook` ends with it. */
  tag: string;
  delivery: string;
  body: string;
}

export interface Fault {
  kind: 'fault';
  name: string;
  /** Its worker may go on after it has lost its leases, while another worker runs the same jobs. */
  endpoint?: string;
  from: number;
  to: number;
}

/** All known jobs have ended; only reads follow. */
export interface Settled {
  kind: 'settled';
  at: number;
}

/** Notes events as they happen. */
export class Recorder {
  readonly history: History;
  #last = 0;

  constructor(history: Omit<History, 'events'>) {
    this.history = { ...history, events: [] };
  }

  /** Each call returns a greater number. */
  now(): number {
    this.#last = Math.max(this.#last + 0.001, Date.now());
    return this.#last;
  }

  note(event: HistoryEvent): void {
    this.history.events.push(event);
  }

  /** @param ask rejects if no whole answer arrives */
  async call(user: string, request: Request, ask: () => Promise<Answer>): Promise<Answer | null> {
    const sentAt = this.now();
    const answer = await ask().catch(() => null);
    this.note({ kind: 'call', user, sentAt, answeredAt: this.now(), request, answer });
    return answer;
  }
}
