// Reads the next lines of a batch from its input, from the place that its record has.
import type { JobAttachment, Payload, Store } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { Positions } from '../submissions.ts';
import { MAX_WRITTEN_BYTES } from '../submissions.ts';
import type { BatchFailure, BatchForm, BatchLine, BatchResult } from './batch-form.ts';
import { nameJob, PART_BYTES, type StoredBatch } from './batch-record.ts';
import { type FileLine, isBlank, LineSplitter } from './file-lines.ts';

/** Lines that are given up together. */
const GIVEN_UP_AT_ONCE = 512;

/** The job of a line. */
export interface Candidate {
  jobId: string;
  line: number;
  customId: string;
  bytes: Uint8Array;
  input: Payload;
  position: number;
  attachment: JobAttachment | null;
}

/** The next step through the input. */
export interface Advance {
  candidates: Candidate[];
  /** Lines that get no job. */
  given: BatchResult[];
  /** Bytes and lines of the input that are behind it then. */
  at: number;
  line: number;
}

interface NextLinesOptions {
  store: Store;
  positions: Positions;
}

export class NextLines {
  readonly #options: NextLinesOptions;
  /** The part that was read last, by batch: most steps end within one. */
  readonly #parts = new Map<string, { index: number; bytes: Buffer }>();

  constructor(options: NextLinesOptions) {
    this.#options = options;
  }

  forget(batchId: string): void {
    this.#parts.delete(batchId);
  }

  /** Of at most so many lines, and about 1 MB. */
  async read(batch: StoredBatch, form: BatchForm, most: number): Promise<Advance> {
    const advance: Advance = { candidates: [], given: [], at: batch.at, line: batch.line };
    let bytes = 0;
    if (most <= 0) return advance;
    for await (const line of this.#iterate(batch)) {
      const read = await readLine(form, line, batch.userId);
      if ('input' in read) {
        const { customId, input } = read;
        advance.candidates.push({
          ...{ jobId: nameJob(batch, line.number), line: line.number, customId },
          ...{ bytes: input, input, attachment: form.attachment },
          position: this.#options.positions.next(),
        });
        bytes += input.length;
      } else if (read !== BLANK) {
        advance.given.push(toResult(batch, line.number, read));
      }
      advance.at = line.end;
      advance.line = line.number;
      if (advance.candidates.length >= most || bytes >= MAX_WRITTEN_BYTES) break;
    }
    return advance;
  }

  /** The batch has been stopped: its lines get no jobs. */
  async giveUp(batch: StoredBatch, form: BatchForm): Promise<Advance> {
    const advance: Advance = { candidates: [], given: [], at: batch.at, line: batch.line };
    const failure = describeStop(batch);
    for await (const line of this.#iterate(batch)) {
      const read = await readLine(form, line, batch.userId);
      if (read !== BLANK) {
        const { customId } = read;
        advance.given.push(toResult(batch, line.number, { customId, ...failure }));
      }
      advance.at = line.end;
      advance.line = line.number;
      if (advance.given.length >= GIVEN_UP_AT_ONCE) break;
    }
    return advance;
  }

  async *#iterate(batch: StoredBatch): AsyncGenerator<FileLine> {
    const { at, fileBytes, line: number } = batch;
    const splitter = new LineSplitter({ at, number });
    for (let from = at; from < fileBytes; ) {
      const part = await this.#readPart(batch, Math.floor(from / PART_BYTES));
      // An interrupted addition to a draft may have left more.
      const start = from % PART_BYTES;
      const rest = part.subarray(start, start + fileBytes - from);
      from += rest.length;
      yield* splitter.split(rest);
    }
    const last = splitter.end();
    if (last) yield last;
  }

  /** @throws Error if the file has lost the part */
  async #readPart({ endpointId, fileId, id }: StoredBatch, index: number): Promise<Buffer> {
    const known = this.#parts.get(id);
    if (known?.index === index) return known.bytes;
    const key = { endpointId, id: fileId };
    const part = await this.#options.store.read((tx) => tx.filePart(key, index));
    if (!part) throw new Error(`part ${index} of file ${fileId} is lost`);
    const bytes = Buffer.from(part.buffer, part.byteOffset, part.length);
    this.#parts.set(id, { index, bytes });
    return bytes;
  }
}

const BLANK = { customId: '' };

type BadLine = { customId: string } & Partial<BatchFailure>;

/** The upload has checked the line: a form of a newer version may refuse it nevertheless. */
async function readLine(
  form: BatchForm,
  line: FileLine,
  owner: string,
): Promise<BatchLine | BadLine> {
  if (isBlank(line)) return BLANK;
  try {
    return await form.readLine(line.bytes, owner);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return { customId: '', code: 'line_invalid', message: error.message };
  }
}

function toResult(batch: StoredBatch, line: number, bad: BadLine): BatchResult {
  const { code = 'line_invalid', customId, message = '' } = bad;
  return { customId, line, jobId: nameJob(batch, line), end: { code, message } };
}

export function describeStop({ expiresAt, state }: StoredBatch): BatchFailure {
  if (state !== 'expiring') {
    return {
      code: 'batch_cancelled',
      message: 'The batch was cancelled before this line had run.',
    };
  }
  const at = new Date(expiresAt).toISOString();
  return {
    code: 'batch_expired',
    message: `This line had not run when the batch expired, at ${at}.`,
  };
}
