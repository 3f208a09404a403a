// Asks the queues of other shards about their jobs: how parents are, before a job that is to wait for them is added or
// retried; whether a flow may have jobs there, and how those are.
import { sleep } from '../../base/clock.ts';
import type { JobKey, StoredJob } from '../../store/store.ts';
import { type ParentReference, QUEUE_FULL_RETRY_MS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { QueueParts } from '../queue-parts.ts';
import type { JobCount, JobState, ParentState } from './peers.ts';

/** A parent in another shard as it was a moment ago. Null: there is no such job of the user. */
export interface RemoteParent {
  shard: number;
  state: ParentState | null;
  /** It is retried too, by this retry of their flow. */
  run?: number;
}

/** By `nameParentKey`. Parents of the own shard are not in it. */
export type FoundParents = ReadonlyMap<string, RemoteParent>;

export const NO_REMOTE: FoundParents = new Map();

export function nameParentKey({ endpointId, id }: JobKey): string {
  return `${endpointId}/${id}`;
}

/** Jobs of one question. */
export const MAX_ASKED = 1_000;

/** How long a question waits for a shard that nobody serves, as requests do. */
const WAIT_MS = 12_000;
const PAUSE_MS = 250;

type RemoteJobsOptions = Pick<QueueParts, 'clock' | 'closing' | 'outbox' | 'peers' | 'store'>;

export class RemoteJobs {
  readonly #options: RemoteJobsOptions;

  constructor(options: RemoteJobsOptions) {
    this.#options = options;
  }

  /** `after`: of jobs of the endpoint. @throws ProblemError `unavailable`, `queue_full` */
  ofSubmission(
    endpointId: string,
    after: readonly ParentReference[],
  ): Promise<FoundParents> | FoundParents {
    return this.#ask(
      endpointId,
      after.map(({ endpoint, id }) => ({ endpointId: endpoint ?? endpointId, id })),
    );
  }

  /** Of jobs that are to be retried; those that have COMPLETED do not matter. */
  ofJobs(jobs: readonly (StoredJob | undefined)[]): Promise<FoundParents> | FoundParents {
    const parents = jobs.flatMap((job) => job?.links?.parents ?? []);
    const [first] = jobs;
    const asked = parents.filter(
      ({ ended, shard }) => shard !== undefined && ended !== 'COMPLETED',
    );
    return first ? this.#ask(first.endpointId, asked) : NO_REMOTE;
  }

  #ask(endpointId: string, keys: readonly JobKey[]): Promise<FoundParents> | FoundParents {
    const { peers } = this.#options;
    const ofShards = Map.groupBy(keys, (key) => peers.shardOf(key.endpointId) ?? peers.shard);
    ofShards.delete(peers.shard);
    return ofShards.size > 0 ? this.#askShards(endpointId, ofShards) : NO_REMOTE;
  }

  async #askShards(
    endpointId: string,
    ofShards: ReadonlyMap<number, readonly JobKey[]>,
  ): Promise<FoundParents> {
    const { outbox, peers, store } = this.#options;
    const userId = (await store.read((tx) => tx.endpoint(endpointId)))?.userId ?? '';
    outbox.refuseFull(userId);
    const found = new Map<string, RemoteParent>();
    const asked = [...ofShards].map(async ([shard, given]) => {
      const named = new Map(
        given.map((key) => [nameParentKey(key), { endpointId: key.endpointId, id: key.id }]),
      );
      for (const part of cut([...named])) {
        const keys = part.map(([, key]) => key);
        const states = await this.#untilServed(() =>
          peers.at(shard).describeParents({ userId, keys }),
        );
        for (const [index, [name]] of part.entries()) {
          found.set(name, { shard, state: states[index] ?? null });
        }
      }
    });
    await Promise.all(asked);
    return found;
  }

  /**
   * Whether the user may add so many jobs to endpoints of other shards. Without patience, one that does not answer is not
   * against it. @throws ProblemError
   */
  async judge(
    userId: string,
    ofShards: ReadonlyMap<number, readonly JobCount[]>,
    { isPatient = true } = {},
  ): Promise<void> {
    const { outbox, peers } = this.#options;
    outbox.refuseFull(userId);
    const judged = [...ofShards].map(async ([shard, jobs]) => {
      const ask = async () => peers.at(shard).judgeJobs({ userId, jobs: [...jobs] });
      return isPatient ? this.#untilServed(ask) : ask().catch(() => null);
    });
    const refusal = (await Promise.all(judged)).find((each) => each !== null);
    if (!refusal) return;
    const { code, detail } = refusal;
    const isFull = code === 'queue_full';
    throw new ProblemError(code, detail, isFull ? { retryAfterMs: QUEUE_FULL_RETRY_MS } : {});
  }

  /** How jobs of another shard are now, in the order of the keys. @throws ProblemError `unavailable` */
  async states(shard: number, keys: readonly JobKey[]): Promise<(JobState | null)[]> {
    const states: (JobState | null)[] = [];
    for (const part of cut(keys)) {
      const asked = part.map(({ endpointId, id }) => ({ endpointId, id }));
      const peer = this.#options.peers.at(shard);
      states.push(...(await this.#untilServed(() => peer.describeJobs({ keys: asked }))));
    }
    return states;
  }

  /** A shard that moves to another node answers soon. */
  async #untilServed<T>(ask: () => Promise<T>): Promise<T> {
    const { clock, closing } = this.#options;
    for (const until = clock.now() + WAIT_MS; ; ) {
      try {
        return await ask();
      } catch (error) {
        if (clock.now() >= until || closing.aborted) throw error;
        await sleep(clock, PAUSE_MS, closing);
      }
    }
  }
}

/** How many of the jobs of other shards are for each endpoint, by shard. */
export function countByShard(
  jobs: readonly { endpointId: string; shard?: number | undefined }[],
): Map<number, JobCount[]> {
  const ofShards = new Map<number, JobCount[]>();
  for (const [endpointId, all] of Map.groupBy(jobs, (job) => job.endpointId)) {
    const { shard = undefined } = all[0] ?? {};
    if (shard === undefined) continue;
    ofShards.set(shard, [...(ofShards.get(shard) ?? []), { endpointId, count: all.length }]);
  }
  return ofShards;
}

function cut<T>(all: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / MAX_ASKED) }, (_, part) =>
    all.slice(part * MAX_ASKED, (part + 1) * MAX_ASKED),
  );
}
