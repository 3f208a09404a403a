// A batch in the harness: the lines of one file, which a test submits at once, and their results.
import { type BatchForms, writeOwnResult } from '../queue/batches/batch-form.ts';
import { describeBatch } from '../queue/batches/batches.ts';
import type { Queue } from '../queue/queue.ts';
import type { BatchRecord } from '../wire/job/batch-records.ts';
import { LIMITS } from '../wire/job/job.ts';
import type { JobRecord } from '../wire/job/job-records.ts';
import { requireJsonInput } from '../wire/job/json-input.ts';
import { type Json, stringifyJson } from '../wire/json.ts';
import { keepAlive } from './flowing-clock.ts';

export interface HarnessBatchLine<Input = object> {
  /** Unique in the batch. */
  id: string;
  input: Input;
}

export interface HarnessBatchOptions {
  /** Time until what has not ended is given up, ms. Default 24 h. */
  window?: number;
}

/** A line that got no job, or whose job the batch cancelled, has an `error`. */
export type HarnessBatchResult<Output = Json> =
  | { id: string; job: JobRecord<Output> }
  | { id: string; error: { code: string; message: string } };

const FORM = 'harness';

export const HARNESS_FORMS: BatchForms = {
  [FORM]: {
    attachment: null,
    names: { customId: 'id', target: '' },
    async readLine(line) {
      const { id, input } = JSON.parse(line.toString());
      return { customId: id, target: '', input: Buffer.from(JSON.stringify(input)) };
    },
    writeResult: writeOwnResult,
  },
};

export class HarnessBatch<Output = Json> {
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

  /** The record that `GET /v2/:endpoint/batches/:batch` returns. */
  async record(): Promise<BatchRecord> {
    return describeBatch(await this.#queue().batches.read(this.#key));
  }

  /** Waits for the end of the batch, with any state. */
  async end(): Promise<BatchRecord> {
    for (;;) {
      const ended = this.#queue().batches.waitForEnd(this.#key, LIMITS.waitMs.max);
      const batch = await keepAlive(ended);
      if (batch.endedAt !== null) return describeBatch(batch);
    }
  }

  /** Waits for the end. @returns one result for each line: those of completed jobs first, each kind in the order of its ends */
  async results(): Promise<HarnessBatchResult<Output>[]> {
    await this.end();
    const { batches, files } = this.#queue();
    const { errors, output } = await batches.read(this.#key);
    let text = '';
    for (const { id, parts } of [output, errors]) {
      const key = { endpointId: this.#endpointId, id };
      for (let index = 0; index < parts; index++) {
        text += Buffer.from((await files.part(key, index)) ?? []).toString('latin1');
      }
    }
    // Parts may end within a character.
    const lines = Buffer.from(text, 'latin1').toString().split('\n');
    return lines.filter((line) => line !== '').map((line) => JSON.parse(line));
  }

  /** Its jobs are cancelled soon, and its other lines given up. */
  async cancel(): Promise<void> {
    await this.#queue().batches.cancel(this.#key);
  }
}

interface BatchSubmission<Input> {
  lines: readonly HarnessBatchLine<Input>[];
  options: HarnessBatchOptions;
  endpointId: string;
  queue: () => Queue;
}

/** Resolves when the batch is stored. @throws ProblemError */
export async function submitBatch<Input, Output>({
  endpointId,
  lines,
  options,
  queue,
}: BatchSubmission<Input>): Promise<HarnessBatch<Output>> {
  const texts = lines.map((line) => {
    requireJsonInput(line.input);
    return Buffer.from(`${stringifyJson(line, 'line')}\n`);
  });
  const upload = async function* () {
    yield* texts;
  };
  const { id: fileId } = await queue().files.upload(
    { endpointId, name: 'batch.jsonl', form: FORM },
    upload(),
  );
  const { id } = await queue().batches.create({ endpointId, fileId, windowMs: options.window });
  return new HarnessBatch<Output>(id, endpointId, queue);
}
