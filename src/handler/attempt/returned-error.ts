// Finds the `error` of a returned object. On RunPod it fails the job; here the handler's config decides.
import type { Log } from '../../base/log.ts';
import { isPlainObject } from '../../wire/json.ts';
import { jsonStringify } from '../../wire/primordials.ts';
import type { HandlerConfig } from '../define.ts';

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
  return new ReturnedError(typeof error === 'string' ? error : jsonStringify(error));
}
