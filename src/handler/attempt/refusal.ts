// The ways an attempt fails: by a rule of the platform, or by an error of the handler.
import type { ErrorCode } from '../../wire/job/job.ts';
import { NotJsonError } from '../../wire/json.ts';
import type { Outcome, ReleaseReason } from '../../wire/link/worker-link.ts';
import { isDeviceMemoryError, judgeContextLoss } from '../device-errors.ts';
import { type RetryAdvice, retryAdvice } from '../retry-errors.ts';
import { describeThrown } from '../thrown.ts';
import { MismatchError } from './validate.ts';

/** A rule of the platform fails the attempt; a retry would not help. */
export class Refusal extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** The attempt ends without a failure: the job returns to the queue. */
export class Release extends Error {
  readonly reason: ReleaseReason;

  constructor(reason: ReleaseReason, options?: ErrorOptions) {
    super(`the job returns to the queue: ${reason}`, options);
    this.reason = reason;
  }
}

/** End of an attempt whose handler threw. */
export interface ThrownEnd {
  outcome: Outcome;
  /** Words of the error that show a lost device context. */
  contextLoss?: string;
}

export function concludeThrown(thrown: unknown, executionMs: number): ThrownEnd {
  const loss = thrown instanceof Refusal ? undefined : judgeContextLoss(thrown);
  const outcome = toFailedOutcome(thrown, executionMs, loss !== undefined);
  return loss && !loss.isReplaced ? { outcome, contextLoss: loss.words } : { outcome };
}

function toFailedOutcome(thrown: unknown, executionMs: number, hasLostContext: boolean): Outcome {
  if (thrown instanceof Release) return { kind: 'released', reason: thrown.reason };
  if (thrown instanceof Refusal) {
    const { code, message } = thrown;
    return { kind: 'failed', executionMs, error: { code, message }, retry: 'never' };
  }
  const advice = retryAdvice(thrown);
  if (advice?.kind === 'released') return { kind: 'released', reason: advice.reason };
  const code = hasLostContext ? 'gpu_context_lost' : chooseCode(thrown, advice);
  const error = { code, ...describeThrown(thrown) } as const;
  if (advice?.kind === 'after') {
    return { kind: 'failed', executionMs, error, retry: 'after', retryAfterMs: advice.ms };
  }
  return {
    kind: 'failed',
    executionMs,
    error,
    retry: advice?.kind === 'never' ? 'never' : 'default',
  };
}

/** The text of a model process that died also tells what it died of. */
function chooseCode(thrown: unknown, advice: RetryAdvice | undefined): ErrorCode {
  if (isDeviceMemoryError(thrown)) return 'gpu_out_of_memory';
  return advice?.kind === 'crashed' ? 'model_process_crashed' : 'handler_error';
}

/** A value that is not JSON fails the attempt; errors of a `toJSON` are the handler's own. */
export function refuseNotJson<T>(encode: () => T): T {
  try {
    return encode();
  } catch (error) {
    if (error instanceof NotJsonError) throw new Refusal('output_invalid', error.message);
    throw error;
  }
}

/** If `check` returns a promise, so does this. */
export function refuseMismatch(code: ErrorCode, check: () => unknown): unknown {
  const refuse = (error: unknown): never => {
    throw error instanceof MismatchError ? new Refusal(code, error.message) : error;
  };
  try {
    const checked = check();
    return checked instanceof Promise ? checked.catch(refuse) : checked;
  } catch (error) {
    return refuse(error);
  }
}
