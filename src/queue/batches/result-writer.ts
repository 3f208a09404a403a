// Turns the ends of a batch's jobs into lines of its results. Large lines are written before the commit that counts them.
import { ENDING, PayloadFileError, type Reader, type Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { Jobs } from '../jobs.ts';
import { measureOutput } from '../payloads/outputs.ts';
import type { QueueParts } from '../queue-parts.ts';
import { MAX_WRITTEN_BYTES } from '../submissions.ts';
import { type BatchEnd, listEnds } from './batch-ends.ts';
import type { BatchFailure, BatchForm, BatchResult } from './batch-form.ts';
import { PART_BYTES, type Results, readOpenBatch, type StoredBatch } from './batch-record.ts';
import { describeStop } from './next-lines.ts';

/** Results that one commit writes. */
const RESULTS_AT_ONCE = 128;

type ResultWriterOptions = Pick<QueueParts, 'payloads' | 'settings' | 'store'> & {
  jobs: Pick<Jobs, 'record'>;
};

/** Lines for one file of results. */
export interface NewLines {
  count: number;
  bytes: number;
  parts: readonly Uint8Array[];
  /** They are on disk. */
  isWritten: boolean;
}

export interface ResultLines {
  output: NewLines;
  errors: NewLines;
}

export interface ComposedResults {
  ends: readonly BatchEnd[];
  given: readonly BatchResult[];
}

export class ResultWriter {
  readonly #options: ResultWriterOptions;

  constructor(options: ResultWriterOptions) {
    this.#options = options;
  }

  /** The first ends whose results are not written yet: one, or about 1 MB. */
  readEnds(tx: Reader, { id }: StoredBatch): { list: BatchEnd[]; hasMore: boolean } {
    const { maxOutputBytes } = this.#options.settings;
    const found = listEnds(tx, id, RESULTS_AT_ONCE + 1);
    const sizes = tx.each(found, ({ endpointId, jobId }) => {
      const job = tx.job({ endpointId, id: jobId });
      return job ? measureOutput(tx, job, maxOutputBytes) : 0;
    });
    let bytes = 0;
    const list = found.slice(0, RESULTS_AT_ONCE).filter((_, index) => {
      bytes += sizes[index] ?? 0;
      return index === 0 || bytes <= MAX_WRITTEN_BYTES;
    });
    return { list, hasMore: list.length < found.length };
  }

  async compose(
    batch: StoredBatch,
    form: BatchForm,
    { ends, given }: ComposedResults,
  ): Promise<ResultLines> {
    const ended = await Promise.all(ends.map((end) => this.#readResult(batch, end)));
    const lines = { output: [] as Buffer[], errors: [] as Buffer[] };
    for (const result of [...ended, ...given]) {
      const { isFailed, pieces } = await form.writeResult(result, batch.userId);
      lines[isFailed ? 'errors' : 'output'].push(joinLine(pieces));
    }
    return {
      output: await this.#prepare(batch, batch.output, lines.output),
      errors: await this.#prepare(batch, batch.errors, lines.errors),
    };
  }

  async #readResult(batch: StoredBatch, end: BatchEnd): Promise<BatchResult> {
    const { customId, endpointId, jobId, line, status } = end;
    const result = { customId, line, jobId };
    // The cancel of a stopped batch has ended it.
    if (status === 'CANCELLED' && batch.state !== 'running') {
      return { ...result, end: describeStop(batch) };
    }
    if (status === 'REMOVED') return { ...result, end: REMOVED };
    try {
      return { ...result, end: await this.#options.jobs.record({ endpointId, id: jobId }) };
    } catch (error) {
      if (error instanceof ProblemError && error.code === 'not_found') {
        return { ...result, end: REMOVED };
      }
      // Another attempt would not find it either, and hold up all others.
      if (error instanceof PayloadFileError && error.isLost) return { ...result, end: LOST };
      throw error;
    }
  }

  /** Lines of more than 1 MB are written at once, part by part: nobody reads them before they are counted. */
  async #prepare(
    { endpointId, id: batchId }: StoredBatch,
    { id, parts: index }: Results,
    lines: readonly Buffer[],
  ): Promise<NewLines> {
    const { payloads, store } = this.#options;
    const whole = Buffer.concat(lines);
    const parts: Uint8Array[] = [];
    for (let at = 0; at < whole.length; at += PART_BYTES) {
      parts.push(whole.subarray(at, at + PART_BYTES));
    }
    const isWritten = whole.length > MAX_WRITTEN_BYTES;
    if (isWritten) {
      const owner = { endpointId, kind: 'output' } as const;
      for (const [n, part] of parts.entries()) {
        const write = () =>
          store.write((tx) => {
            // Nobody would remove it if the batch went with its endpoint.
            if (readOpenBatch(tx, batchId)) tx.putFilePart({ endpointId, id }, index + n, part);
          }, ENDING);
        await payloads.runAlone(owner, write);
      }
    }
    return { count: lines.length, bytes: whole.length, parts, isWritten };
  }
}

const REMOVED: BatchFailure = {
  code: 'job_removed',
  message: 'The job of this line was removed before its result was written.',
};
const LOST: BatchFailure = { code: 'job_removed', message: 'The output of the job is lost.' };

const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;
const SPACE = 32;
const END = Buffer.from('\n');

/** A handler's JSON may have line feeds between its tokens, where a space means the same. */
function joinLine(pieces: readonly Uint8Array[]): Buffer {
  const line = Buffer.concat([...pieces, END]);
  for (const byte of [LINE_FEED, CARRIAGE_RETURN]) {
    for (let at = line.indexOf(byte); at >= 0 && at < line.length - 1; ) {
      line[at] = SPACE;
      at = line.indexOf(byte, at);
    }
  }
  return line;
}

/** Part of the commit that counts the lines. @returns the results with them */
export function putLines(
  tx: Transaction,
  { endpointId }: StoredBatch,
  results: Results,
  { bytes, count, isWritten, parts }: NewLines,
): Results {
  const { id } = results;
  if (!isWritten) {
    for (const [n, part] of parts.entries()) {
      tx.putFilePart({ endpointId, id }, results.parts + n, part);
    }
  }
  return {
    id,
    bytes: results.bytes + bytes,
    lines: results.lines + count,
    parts: results.parts + parts.length,
  };
}
