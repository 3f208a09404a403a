// Checks that must pass before the first job. The author's module registers them when it loads; each
// thread runs them before setup.
import type { SetupContext } from '../define.ts';
import { describeThrown } from '../thrown.ts';

/** Throws, rejects or returns false if the machine is unfit for the handler. */
export type Check = (ctx: SetupContext) => unknown;

/** The message names the check and the fault. */
export class CheckError extends Error {
  override readonly name = 'CheckError';
  readonly check: string;

  constructor(check: string, fault: string) {
    super(`check '${check}' failed: ${fault}`);
    this.check = check;
  }
}

/** A handler may load a second copy of this package; both copies share this list. */
const LIST = Symbol.for('millrace.checks');
const MAX_NAME_LENGTH = 100;

/**
 * Registers a check. Checks run one after the other, once in each thread, before `setup` and the
 * first job. If one fails, the worker takes no jobs and exits with code 4. A check with the same
 * name replaces the earlier one. @throws TypeError
 */
export function registerCheck(name: string, check: Check): void {
  if (typeof name !== 'string' || name === '' || name.length > MAX_NAME_LENGTH) {
    throw new TypeError(`a check's name must be a string of 1 to ${MAX_NAME_LENGTH} characters`);
  }
  if (typeof check !== 'function') throw new TypeError(`check '${name}' must be a function`);
  listChecks().set(name, check);
}

/** @throws CheckError of the first check that fails */
export async function runRegisteredChecks(ctx: SetupContext): Promise<void> {
  for (const [name, check] of listChecks()) {
    let verdict: unknown;
    try {
      verdict = await check(ctx);
    } catch (thrown) {
      throw new CheckError(name, describeThrown(thrown).message);
    }
    if (verdict === false) throw new CheckError(name, 'it returned false');
  }
}

function listChecks(): Map<string, Check> {
  const known: unknown = Reflect.get(globalThis, LIST);
  if (known instanceof Map) return known;
  const checks = new Map<string, Check>();
  Reflect.set(globalThis, LIST, checks);
  return checks;
}
