// Calls about batches: the lines of one file as jobs.
import type { BatchList, BatchRecord } from '../../wire/job/batch-records.ts';
import { BATCH_ROUTES } from '../../wire/routes/routes.ts';
import { type ApiCaller, callOf } from '../api-caller.ts';

interface BatchCallOptions {
  signal?: AbortSignal;
}

export interface BatchSubmitOptions extends BatchCallOptions {
  /** Time until what has not ended is given up, ms: 1 minute to 7 days. Default 24 h. */
  window?: number;
  /** Of the file. */
  name?: string;
}

export interface BatchListOptions extends BatchCallOptions {
  cursor?: string;
  /** 1 to 1000. Default 100. */
  limit?: number;
  /** Only batches that have ended, or only those that have not. */
  ended?: boolean;
}

export interface BatchesClient {
  /**
   * Runs each line, `{"id": "…", "input": {…}}`, as a job. It is not repeated if no answer arrives. @throws ApiError 422
   * that names the bad lines
   */
  submit(lines: string | Uint8Array, options?: BatchSubmitOptions): Promise<BatchRecord>;
  show(batchId: string, options?: BatchCallOptions): Promise<BatchRecord>;
  /** One page, the newest first. */
  list(options?: BatchListOptions): Promise<BatchList>;
  cancel(batchId: string, options?: BatchCallOptions): Promise<BatchRecord>;
  /** Lines of JSON, of a batch that has ended. `failed`: those without a COMPLETED job. */
  results(
    batchId: string,
    options?: BatchCallOptions & { failed?: boolean },
  ): Promise<ReadableStream<Uint8Array>>;
}

export function connectBatches(caller: ApiCaller, endpoint: string): BatchesClient {
  const ofBatch = (batch: string) => ({ endpoint, batch });
  return {
    submit: (lines, { signal, ...query } = {}) =>
      caller.json<BatchRecord>({
        ...callOf(BATCH_ROUTES.runBatch, { endpoint }),
        query,
        content: {
          bytes: typeof lines === 'string' ? new TextEncoder().encode(lines) : lines,
          type: 'application/x-ndjson',
        },
        repeatable: false,
        signal,
      }),
    show: (batch, { signal } = {}) =>
      caller.json<BatchRecord>({ ...callOf(BATCH_ROUTES.getBatch, ofBatch(batch)), signal }),
    list: ({ ended, signal, ...page } = {}) =>
      caller.json<BatchList>({
        ...callOf(BATCH_ROUTES.listBatches, { endpoint }),
        query: { ...page, ended: ended === undefined ? undefined : String(ended) },
        signal,
      }),
    cancel: (batch, { signal } = {}) =>
      caller.json<BatchRecord>({ ...callOf(BATCH_ROUTES.cancelBatch, ofBatch(batch)), signal }),
    results: (batch, { failed = false, signal } = {}) =>
      caller.open({
        ...callOf(BATCH_ROUTES.getBatchResults, ofBatch(batch)),
        query: { failed: String(failed) },
        signal,
      }),
  };
}
