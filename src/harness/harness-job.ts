// One job in the harness, as its client sees it.
import type { Queue } from '../queue/queue.ts';
import type { Chunk } from '../wire/chunk/chunk.ts';
import { ChunkJoiner } from '../wire/chunk/chunk-pieces.ts';
import { isTerminal, JobFailedError, LIMITS } from '../wire/job/job.ts';
import type { JobRecord } from '../wire/job/job-records.ts';
import type { Json } from '../wire/json.ts';
import { keepAlive } from './flowing-clock.ts';

export class HarnessJob<Output = Json, ChunkOutput = Json> {
  readonly id: string;
  readonly #endpointId: string;
  readonly #queue: () => Queue;

  constructor(id: string, endpointId: string, queue: () => Queue) {
    this.id = id;
    this.#endpointId = endpointId;
    this.#queue = queue;
  }

  get #key() {
    return { endpointId: this.#endpointId, id: this.id };
  }

  /** The record that `GET /status` returns. */
  async record(): Promise<JobRecord<Output>> {
    return JSON.parse((await this.#queue().jobs.record(this.#key)).body.toString());
  }

  /** Waits for the end of the job, with any status. */
  async end(): Promise<JobRecord<Output>> {
    const forever = new AbortController().signal;
    for (;;) {
      const ended = this.#queue().jobs.waitForEnd(this.#key, LIMITS.waitMs.max, forever);
      const record = await keepAlive(ended);
      if (isTerminal(record.status)) return JSON.parse(record.body.toString());
    }
  }

  /** Waits for the end of the job. @returns the output @throws JobFailedError */
  async result(): Promise<Output> {
    const record = await this.end();
    if (record.status !== 'COMPLETED') throw new JobFailedError(record);
    return JSON.parse(JSON.stringify(record.output ?? null));
  }

  /**
   * Yields the chunks as they arrive, with split values reassembled; starts over after a new
   * attempt.
   */
  async *chunks(): AsyncGenerator<Chunk<ChunkOutput>, void, void> {
    const signal = new AbortController().signal;
    let position = { attempt: 0, n: -1 };
    const joiner = new ChunkJoiner();
    for (;;) {
      const reading = this.#queue().streams.read({
        ...this.#key,
        after: position,
        waitMs: LIMITS.streamWaitMs.max,
        maxBytes: LIMITS.streamAnswerBytes,
        signal,
      });
      const page = await keepAlive(reading);
      if (page.reset) joiner.reset();
      for (const bytes of page.chunks) {
        const chunk = joiner.push(JSON.parse(Buffer.from(bytes).toString()));
        if (chunk) yield { ...chunk, output: chunk.output as ChunkOutput };
      }
      position = page.position;
      if (page.complete) return;
    }
  }

  async cancel(): Promise<void> {
    await this.#queue().jobs.cancel(this.#key);
  }

  /** The handler's log so far, one object per line. */
  async log(): Promise<Record<string, unknown>[]> {
    const { lines } = await this.#queue().jobs.log(this.#key, 0);
    const text = Buffer.from(lines).toString();
    return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]));
  }
}
