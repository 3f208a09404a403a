// The ways an attempt fails: by a rule of the platform, by a value that does not match its schema, by an error of
// the handler, thrown or returned.
import type { Log } from '../../base/log.ts';
import type { ErrorCode } from '../../wire/job/job.ts';
import { isPlainObject, NotJsonError } from '../../wire/json.ts';
import type { Outcome, ReleaseReason } from '../../wire/link/worker-link.ts';
import type { HandlerConfig, Schema, SchemaIssue, SchemaResult } from '../define.ts';
import {
  describeThrown,
  isDeviceMemoryError,
  judgeContextLoss,
  type RetryAdvice,
  retryAdvice,
} from '../thrown.ts';

const MAX_ISSUES = 50;

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
interface ThrownEnd {
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
    const { counts, ms } = advice;
    const wish = {
      retry: 'after',
      retryAfterMs: ms,
      ...(!counts && { retryCounts: false }),
    } as const;
    return { kind: 'failed', executionMs, error, ...wish };
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

/** The value does not match its schema. The message lists each path with its fault. */
class MismatchError extends Error {
  override readonly name = 'MismatchError';
}

/**
 * Returns the schema's result; a promise only if the schema is asynchronous. Paths begin with
 * `root`: `input.items[0].url: …`. @throws MismatchError
 */
export function validate(schema: Schema, value: unknown, root: string): unknown {
  const result = schema['~standard'].validate(value);
  // Not `instanceof Promise`: the promise may come from another realm or library.
  if (!('then' in result)) return unwrap(result, root);
  return Promise.resolve(result).then((settled) => unwrap(settled, root));
}

function unwrap(result: SchemaResult<unknown>, root: string): unknown {
  if (!result.issues) return result.value;
  const lines = result.issues.slice(0, MAX_ISSUES).map((issue) => formatIssue(issue, root));
  const left = result.issues.length - lines.length;
  if (left > 0) lines.push(`and ${left} more`);
  throw new MismatchError(lines.join('; '));
}

function formatIssue({ path = [], message }: SchemaIssue, root: string): string {
  const steps = path.map((step) => {
    const key = typeof step === 'object' ? step.key : step;
    if (typeof key === 'number') return `[${key}]`;
    const name = String(key);
    return /^[A-Za-z_$][\w$]*$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`;
  });
  return `${root}${steps.join('')}: ${message}`;
}

/** The failure of an attempt whose handler returned an object with an `error`. */
class ReturnedError extends Error {
  override readonly name = 'ReturnedError';
}

/**
 * Judges what a handler has returned. Warns unless its config says what an `error` means.
 * @throws ReturnedError if the config says that it is a failure
 */
export function judgeReturned(
  value: unknown,
  { failOnReturnedError }: HandlerConfig,
  context: { readonly log: Log },
): void {
  const error = failOnReturnedError === false ? undefined : findReturnedError(value);
  if (!error) return;
  if (failOnReturnedError) throw error;
  context.log.warn(
    'the handler returned an object with `error`, and the job is COMPLETED; throw an Error, or set config.failOnReturnedError',
  );
}

/** As on RunPod, only a member `error` that is not empty counts: no null, "", 0 or false. */
function findReturnedError(value: unknown): ReturnedError | undefined {
  if (!isPlainObject(value)) return undefined;
  const { error } = value;
  if (!error) return undefined;
  return new ReturnedError(typeof error === 'string' ? error : JSON.stringify(error));
}
