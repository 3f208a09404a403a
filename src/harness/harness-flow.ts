// A flow in the harness: a graph of jobs that a test submits at once, changes and awaits.
import type { NewFlowJob } from '../queue/flows/flow-insertion.ts';
import type { Queue } from '../queue/queue.ts';
import type { FlowRecord } from '../wire/job/flow-records.ts';
import type { FlowJobRequest } from '../wire/job/job.ts';
import { flowRequest } from '../wire/job/job-schemas.ts';
import { requireJsonInput } from '../wire/job/json-input.ts';
import { type Json, stringifyJson } from '../wire/json.ts';
import { HarnessJob } from './harness-job.ts';

/** A job of `POST /v2/:endpoint/flows`; all jobs are those of the harness's handler. */
export type HarnessFlowJob<Input = object> = Pick<FlowJobRequest, 'after' | 'name' | 'policy'> & {
  input: Input;
};

const OPEN: ReadonlySet<string> = new Set(['WAITING', 'IN_QUEUE', 'IN_PROGRESS']);

export class HarnessFlow<Output = Json, ChunkOutput = Json> {
  readonly id: string;
  readonly #endpointId: string;
  readonly #queue: () => Queue;
  readonly #jobs: ReadonlyMap<string, HarnessJob<Output, ChunkOutput>>;

  /** `jobs`: IDs by name. */
  constructor(
    id: string,
    endpointId: string,
    { jobs, queue }: { jobs: ReadonlyMap<string, string>; queue: () => Queue },
  ) {
    this.id = id;
    this.#endpointId = endpointId;
    this.#queue = queue;
    this.#jobs = new Map(
      [...jobs].map(([name, job]) => [name, new HarnessJob(job, endpointId, queue)]),
    );
  }

  get #key() {
    return { endpointId: this.#endpointId, id: this.id };
  }

  /** The record that `GET /v2/:endpoint/flows/:flow` returns. */
  record(): Promise<FlowRecord> {
    return this.#queue().flows.read(this.#key);
  }

  /** @throws Error if no job of the flow has the name */
  job(name: string): HarnessJob<Output, ChunkOutput> {
    const job = this.#jobs.get(name);
    if (job) return job;
    throw new Error(`no job of the flow is named "${name}"; its jobs: ${[...this.#jobs.keys()]}`);
  }

  /** Waits for the end of the flow, with any status. */
  async end(): Promise<FlowRecord> {
    for (;;) {
      const record = await this.record();
      if (record.status !== 'RUNNING') return record;
      const open = record.jobs.filter(({ state }) => OPEN.has(state));
      await Promise.all(open.map(({ name }) => this.job(name).end()));
    }
  }

  /** `names`: of jobs. Default: all. @returns the number of jobs that it changed */
  cancel(names?: readonly string[]): Promise<number> {
    return this.#queue().flows.cancel(this.#key, { names });
  }

  /** As `cancel`. @throws ProblemError `conflict` if no job can be retried */
  retry(names?: readonly string[]): Promise<number> {
    return this.#queue().flows.retry(this.#key, { names });
  }
}

interface FlowSubmission<Input> {
  jobs: readonly HarnessFlowJob<Input>[];
  endpointId: string;
  queue: () => Queue;
}

/** Resolves when the flow is stored. @throws ProblemError, ZodError */
export async function submitFlow<Input, Output, ChunkOutput>({
  endpointId,
  jobs,
  queue,
}: FlowSubmission<Input>): Promise<HarnessFlow<Output, ChunkOutput>> {
  const checked = flowRequest.parse({
    jobs: jobs.map(({ input, ...job }) => {
      requireJsonInput(input);
      return { ...job, input: JSON.parse(stringifyJson(input, 'input')) };
    }),
  });
  const submitted = await queue().flows.submit({
    ...{ endpointId, idempotency: undefined },
    jobs: checked.jobs.map(
      ({ after = [], input, name, policy = {} }): NewFlowJob => ({
        ...{ endpointId, name, policy, webhook: undefined },
        input: Buffer.from(JSON.stringify(input)),
        after: after.map((edge) => {
          const { onFailure = 'fail', ...rest } = typeof edge === 'string' ? { job: edge } : edge;
          return { ...rest, onFailure };
        }),
      }),
    ),
  });
  const ids = new Map(submitted.jobs.map(({ id, name }) => [name, id]));
  return new HarnessFlow<Output, ChunkOutput>(submitted.id, endpointId, { jobs: ids, queue });
}
