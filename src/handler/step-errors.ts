// What `ctx.step`, `ctx.run` and `ctx.sleep` throw. No attempt after it would go otherwise, so the job is not retried.
import type { ErrorCode, ParentEnd } from '../wire/job/job.ts';
import type { ChildFailure } from '../wire/job/memo.ts';
import { NonRetryableError } from './thrown.ts';

/** A step, child or sleep cannot be had as the handler asks for it. */
export class StepError extends NonRetryableError {
  override readonly name = 'StepError';
}

/** A child job has not COMPLETED, or its output is too large for its parent. */
export class ChildFailedError extends NonRetryableError {
  override readonly name = 'ChildFailedError';
  /** The job, and its endpoint. */
  readonly jobId: string;
  readonly endpoint: string;
  /** `REMOVED`: the platform has removed it before it ended. */
  readonly status: Exclude<ParentEnd, 'SKIPPED'>;
  /** As in the record of the child. */
  readonly code: ErrorCode | undefined;

  constructor(child: ChildFailure & { name: string; endpoint: string; id: string }) {
    const { code, endpoint, id, message, name, status } = child;
    super(`child "${name}" (job ${id}) is ${status}: ${message}`);
    this.jobId = id;
    this.endpoint = endpoint;
    this.status = status;
    this.code = code;
  }
}
