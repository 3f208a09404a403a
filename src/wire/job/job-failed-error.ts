// The error of a job that ended without an output, for clients and for tests of handlers.
import type { JobRecord } from './job.ts';

/** The job ended with a status other than COMPLETED. */
export class JobFailedError extends Error {
  override readonly name = 'JobFailedError';
  /** The record that `GET /status` returns. */
  readonly record: JobRecord;

  constructor(record: JobRecord) {
    super(`job ${record.id} is ${record.status}: ${record.error?.message ?? 'no error given'}`);
    this.record = record;
  }

  /** `millrace/client` has a copy of this class, because it shares no module with the rest of the package. */
  static override [Symbol.hasInstance](value: unknown): value is JobFailedError {
    return value instanceof Error && value.name === 'JobFailedError' && 'record' in value;
  }
}
