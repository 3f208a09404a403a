// The shards of the platform as the queue of one of them reaches the others.
import type { JobKey } from '../../store/store.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import type { JobStatus, ParentEnd } from '../../wire/job/job.ts';
import type { Problem } from '../../wire/problem.ts';
import type { HandoverMessage } from './messages.ts';

export interface NumberedMessage {
  /** Grows with each message from this shard to the other one. */
  number: number;
  message: HandoverMessage;
}

/** How a parent is that a job wants to wait for. */
export interface ParentState {
  /** Absent: it has not ended. */
  status?: ParentEnd;
  /** As many jobs wait for it as may. */
  isFull: boolean;
}

/** The output of a job, in parts of base64. */
export type OutputPart =
  /** `gone`: there is no such job. `none`: it has no output. `lost`: the output cannot be read whole. */
  | { kind: 'gone' | 'lost' | 'none'; error?: Pick<AttemptError, 'code' | 'message'> }
  | { kind: 'part'; part: string; totalBytes: number };

/** Jobs that are to be added to an endpoint. */
export interface JobCount {
  endpointId: string;
  count: number;
}

/** What a job does. `WAITING`: it is IN_QUEUE, and waits for other jobs. */
export type JobState = JobStatus | 'WAITING';

/** What the queue of a shard does for the other ones. */
export interface ShardService {
  /** Takes in messages of a shard, each once, in their order. @returns the number of the last one that it has taken in */
  receive(batch: { from: number; messages: readonly NumberedMessage[] }): Promise<number>;
  /** Jobs of the user, in the order of the keys; null: there is no such job. */
  describeParents(asked: {
    userId: string;
    keys: readonly JobKey[];
  }): Promise<(ParentState | null)[]>;
  /** Why the user may not add so many jobs to these endpoints; null: nothing is against it. */
  judgeJobs(asked: { userId: string; jobs: readonly JobCount[] }): Promise<Problem | null>;
  /** In the order of the keys; null: there is no such job. */
  describeJobs(asked: { keys: readonly JobKey[] }): Promise<(JobState | null)[]>;
  /** `at`: bytes before the part. */
  readOutput(asked: { key: JobKey; at: number }): Promise<OutputPart>;
}

export interface Peers {
  /** Number of the shard of this queue. */
  readonly shard: number;
  /** Undefined for an unknown endpoint. */
  shardOf(endpointId: string): number | undefined;
  /** Its calls reject with StoreUnavailableError or ProblemError `unavailable` while nobody serves the shard. */
  at(shard: number): ShardService;
}

/** Of a platform that has one shard. */
export const ALONE: Peers = {
  shard: 0,
  shardOf: () => 0,
  at: (shard) => {
    throw new Error(`there is no shard ${shard}`);
  },
};
