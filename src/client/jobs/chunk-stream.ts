// Reads all chunks of a job, page by page from a position, across outages and new attempts.
import type { Chunk } from '../../wire/chunk/chunk.ts';
import { ChunkJoiner } from '../../wire/chunk/chunk-pieces.ts';
import { isTerminal, JOB_STATUSES } from '../../wire/job/job.ts';
import type { Json } from '../../wire/json.ts';
import { STREAM_HEADERS } from '../../wire/routes/routes.ts';
import { type ApiCaller, parseAnswer, UnreachableError } from '../api-caller.ts';

export interface StreamChunk<Output = Json> extends Chunk<Output> {
  /** `<attempt>.<n>`: pass it as `after` to continue after this chunk. */
  position: string;
  /** Attempt of the chunk. If it grows, the job restarted, and chunks of earlier attempts are void. */
  attempt: number;
}

export interface StreamOptions {
  /** Position of the last known chunk. Default: the start. */
  after?: string;
  /**
   * `joined`: values as the handler yielded them, however large. `raw`: chunks of at most 1,000,000
   * bytes, for `reassemble`. Default `joined`. A position within a split value needs `raw`.
   */
  pieces?: 'joined' | 'raw';
  /** How long one request waits for the next chunk, ms; 0 to 300,000. Default: the platform's 10,000. */
  waitMs?: number;
  signal?: AbortSignal;
}

interface ChunkPage {
  chunks: Chunk[];
  /** Value of `after` for the next page. */
  next: string;
  /** Attempt and number of the last chunk. */
  attempt: number;
  n: number;
  isReset: boolean;
  isOver: boolean;
}

/** `Output`: type of the handler's chunks, which the caller knows and the platform does not check. */
export async function* readStream<Output>(
  caller: ApiCaller,
  path: string,
  options: StreamOptions,
): AsyncGenerator<StreamChunk<Output>, void, void> {
  const { pieces = 'joined' } = options;
  const joiner = new ChunkJoiner();
  let after = options.after ?? '0';
  for (;;) {
    const page = await readPage(caller, path, { ...options, after });
    if (page.isReset) joiner.reset();
    const first = page.n - page.chunks.length + 1;
    for (const [index, piece] of page.chunks.entries()) {
      const chunk = pieces === 'raw' ? piece : joiner.push(piece);
      const position = `${page.attempt}.${first + index}`;
      if (!chunk) continue;
      const output = chunk.output as Output;
      yield { ...chunk, output, position, attempt: page.attempt };
    }
    if (page.isOver) return;
    after = page.next;
  }
}

async function readPage(
  caller: ApiCaller,
  path: string,
  options: StreamOptions,
): Promise<ChunkPage> {
  const { body, headers } = await caller.answer({
    path,
    query: { after: options.after, wait: options.waitMs },
    signal: options.signal,
  });
  const chunks = parseAnswer<Chunk[]>(body);
  const next = headers.get(STREAM_HEADERS.next) ?? '';
  // Before the first chunk, the position is only the attempt.
  const [, attempt, n = -1] = /^(\d+)(?:\.(-?\d+))?$/.exec(next) ?? [];
  if (attempt === undefined) {
    throw new UnreachableError(`the response has no position in ${STREAM_HEADERS.next}: ${next}`);
  }
  const status = JOB_STATUSES.find((known) => known === headers.get(STREAM_HEADERS.status));
  return {
    chunks,
    next,
    attempt: Number(attempt),
    n: Number(n),
    isReset: headers.get(STREAM_HEADERS.reset) === 'true',
    isOver: chunks.length === 0 && status !== undefined && isTerminal(status),
  };
}
