// The records as a database keeps them. live/ builds the verbs of a Transaction on these: it decides when
// the row of a job is written.
import type { JobStatus } from '../wire/job/job.ts';
import type { Rank } from './live/group-queue.ts';
import type { Counts } from './live/live-endpoint.ts';
import type { WantedJobs } from './live/ready-groups.ts';
import type { InlinePayloads } from './sql/job-row.ts';
import type {
  FoundJobs,
  JobKey,
  JobListing,
  JobSearch,
  Payload,
  StagedPayload,
  Step,
  StoredJob,
  Transaction,
} from './store.ts';

export interface TableListing extends Omit<JobListing, 'status'> {
  status: Exclude<JobStatus, 'IN_PROGRESS'> | undefined;
}

export interface TableSearch extends Omit<JobSearch, 'status'> {
  status: TableListing['status'];
}

/** The row of a new job. The caller guarantees that the ID is new. */
export interface AddedRow {
  job: StoredJob;
  payloads: InlinePayloads;
}

/** What differs between the two is written. */
export interface ChangedRow {
  /** As the row has it. */
  before: StoredJob;
  after: StoredJob;
  /** The small output of a job that has none. */
  output: Uint8Array | undefined;
}

/** Ready jobs that have outgrown one GPU type. */
export interface OutgrownRange {
  endpointId: string;
  gpuType: number;
  /** This place is included. Undefined: from the first one on. */
  from: Rank | undefined;
  limit: number;
}

/** Groups of a priority that have ready jobs, by name, behind the group `after`. */
export interface GroupRange {
  endpointId: string;
  priority: number;
  /** Empty: from the group of the jobs without one on. */
  after: string;
  limit: number;
}

/** Each verb as what the database does for it. */
type Steps<Verbs> = {
  [Name in keyof Verbs]: Verbs[Name] extends (...args: infer Args) => infer Result
    ? (...args: Args) => Step<Result>
    : never;
};

export interface Tables
  extends Steps<
    Omit<
      Transaction,
      | 'each'
      | 'anyJob'
      | 'insertJob'
      | 'saveJob'
      | 'removeJob'
      | 'jobs'
      | 'findJobs'
      | 'dueJobs'
      | 'nextDueAt'
      | 'takeableJobs'
      | 'countLeases'
      | 'beginPayload'
      | 'beginFile'
    >
  > {
  /** Like `Reader.jobs`. The status is never IN_PROGRESS: LeasedJobs lists those jobs. */
  jobs(listing: TableListing): Step<StoredJob[]>;
  /** Like `Reader.findJobs`; the same holds. */
  findJobs(search: TableSearch): Step<FoundJobs>;
  /** Like `Reader.dueJobs`, without jobs that have a lease. */
  dueJobs(now: number, limit: number): Step<StoredJob[]>;
  /** Like `Reader.nextDueAt`, without jobs that have a lease. */
  nextDueAt(): Step<number | undefined>;
  /** Most rows that `addJobRows` and `changeJobRows` take: 1 if more would save nothing. */
  readonly rowsAtOnce: number;
  addJobRows(added: readonly AddedRow[]): Step<void>;
  /** The jobs are different ones. */
  changeJobRows(changes: readonly ChangedRow[]): Step<void>;
  /**
   * Removes different jobs with their input, output, chunks and log, but no output that the record of a
   * delivery refers to.
   */
  removeJobs(jobs: readonly StoredJob[]): Step<void>;
  /** Adds to the counters of the endpoints with these IDs. */
  addCounts(counts: ReadonlyMap<string, Counts>): Step<void>;
  /** The priorities that ready jobs have, the highest first. */
  readyPriorities(endpointId: string): Step<number[]>;
  /** Their names. NO_GROUP is the first one if it is among them. */
  readyGroups(range: GroupRange): Step<string[]>;
  /** Of each group, the first ready jobs in their order, from its place on, which is included: at most `limit`. */
  readyJobsOfGroups(
    endpointId: string,
    wanted: readonly WantedJobs[],
    limit: number,
  ): Step<StoredJob[]>;
  /** In the order of the queue. */
  outgrownJobs(range: OutgrownRange): Step<StoredJob[]>;
  /** Like `Transaction.putOutput`, for a job that has no output. */
  addOutput(key: JobKey, output: Payload): Step<void>;
  /** An origin that no other payload of the job has. */
  nextOrigin(kind: StagedPayload['kind'], key: JobKey): Step<number>;
  /** An origin that most likely no payload of the job has ever had: a file is named by it, and may be read for a while. */
  fileOrigin(kind: StagedPayload['kind'], key: JobKey): Step<number>;
  /** Stores the first part of a payload that is unused so far. */
  beginPayload(payload: StagedPayload, part: Uint8Array): Step<void>;
  /** Stores rows that name the parts of a file of so many bytes. */
  beginFile(payload: StagedPayload, bytes: number): Step<void>;
  /** The payload must not exist yet. */
  putInput(key: JobKey, input: Payload): Step<void>;
}
