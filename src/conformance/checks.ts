// Defines a check and runs a list of them, one after the other, each with its own result.

/**
 * The other side deviates from the protocol; the message names the observed and the expected
 * behaviour.
 */
export class Deviation extends Error {
  override readonly name = 'Deviation';
}

/** The check does not apply to the side under test. */
export class NotApplicable extends Error {
  override readonly name = 'NotApplicable';
}

export interface ConformanceCheck<Stage> {
  /** Subject of the check: a verb or a term of the protocol. */
  area: string;
  /** The rule, as a sentence about the side under test. */
  rule: string;
  /** If a basic check fails, the checks after it are left out. */
  isBasic?: boolean;
  /** @throws Deviation, NotApplicable; any other error also counts as a deviation */
  run(stage: Stage): Promise<void> | void;
}

export interface CheckResult {
  area: string;
  rule: string;
  result: 'holds' | 'fails' | 'left out';
  /** The reason, unless the rule holds. */
  detail?: string;
}

/** Selects the basic checks and those of the areas; all checks if no area is named. */
export function chooseChecks<Stage>(
  checks: readonly ConformanceCheck<Stage>[],
  areas: readonly string[],
): readonly ConformanceCheck<Stage>[] {
  if (areas.length === 0) return checks;
  return checks.filter(({ area, isBasic }) => isBasic || areas.includes(area));
}

export async function runConformanceChecks<Stage>(
  checks: readonly ConformanceCheck<Stage>[],
  stage: Stage,
  onRow: (row: CheckResult) => void,
): Promise<CheckResult[]> {
  const rows: CheckResult[] = [];
  let missing: string | undefined;
  for (const check of checks) {
    const { area, rule } = check;
    const row: CheckResult =
      missing === undefined
        ? { area, rule, ...(await judge(check, stage)) }
        : { area, rule, result: 'left out', detail: `needs "${missing}", which fails` };
    if (check.isBasic && row.result === 'fails') missing = rule;
    rows.push(row);
    onRow(row);
  }
  return rows;
}

async function judge<Stage>(
  check: ConformanceCheck<Stage>,
  stage: Stage,
): Promise<Pick<CheckResult, 'result' | 'detail'>> {
  try {
    await check.run(stage);
    return { result: 'holds' };
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    return { result: error instanceof NotApplicable ? 'left out' : 'fails', detail };
  }
}

/** @throws Deviation */
export function demand(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Deviation(otherwise);
}

/** @throws Deviation if the JSON of the two differs */
export function demandSame(found: unknown, wanted: unknown, what: string): void {
  const [is, should] = [JSON.stringify(found), JSON.stringify(wanted)];
  demand(is === should, `${what}: expected ${shorten(should)}, got ${shorten(is)}`);
}

/** A call that stays open while the check does something else; if it is rejected meanwhile, the check fails when it awaits it. */
export function begin<T>(call: Promise<T>): Promise<T> {
  call.catch(() => {});
  return call;
}

/** Rejects with a Deviation if the promise takes too long. `what` completes "… within 5 s". */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Deviation(`${what} within ${ms / 1_000} s`)), ms);
    // A timer that nobody waits for must not keep the command running.
    timer.unref();
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function shorten(text: string | undefined): string {
  if (text === undefined) return 'nothing';
  return text.length <= 120 ? text : `${text.slice(0, 100)}… (${text.length} characters)`;
}

export type CheckInput =
  /** Returns `value`, after `ms`; over RunPod's protocol it may yield it instead. */
  | { do: 'echo'; value: unknown; ms?: number }
  /** Yields `count` objects `{"index": 0, "text": "xx…"}`, each text of `bytes` x. */
  | { do: 'stream'; count: number; bytes: number }
  /** Throws an error with this message. */
  | { do: 'fail'; message: string }
  /** Ends only when it is cancelled or times out. */
  | { do: 'hang' };

/** The values that `stream` yields. */
export function listYields({ bytes, count }: { count: number; bytes: number }): unknown[] {
  const text = 'x'.repeat(bytes);
  return Array.from({ length: count }, (_, index) => ({ index, text }));
}

/** For the help text: one line for each input. */
export const CHECK_INPUT_LINES = [
  '{"do":"echo","value":V,"ms":N}: returns V, after N ms if N is present',
  '{"do":"stream","count":C,"bytes":B}: yields C objects {"index":I,"text":T}, I from 0, T is the letter x, B times',
  '{"do":"fail","message":M}: throws an error with the message M',
  '{"do":"hang"}: ends only when it is cancelled or times out',
] as const;

export class Watch {
  readonly #checks = new Set<() => void>();

  /** Makes all waiting calls check again. */
  check(): void {
    for (const check of this.#checks) check();
  }

  /** Returns what `find` returns. `what` completes "… within 5 s". @throws Deviation */
  async until<T>(ms: number, what: string, find: () => T | undefined): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<T>();
    const check = () => {
      const found = find();
      if (found !== undefined) resolve(found);
    };
    this.#checks.add(check);
    check();
    try {
      return await within(ms, what, promise);
    } finally {
      this.#checks.delete(check);
    }
  }
}

export interface WorkerExit {
  /** Sends SIGTERM to the worker, or asks the user to do so. */
  terminate: () => void;
  /** Exit code of the worker's process, if known; null if a signal ended it. */
  exitCode?: Promise<number | null>;
  /** Starts a second worker, if this command starts the workers. */
  startAnother?: () => Required<Pick<WorkerExit, 'terminate' | 'exitCode'>>;
}

/** @throws Deviation, NotApplicable */
export async function demandCleanExit({ exitCode }: WorkerExit, ms: number): Promise<void> {
  if (!exitCode) throw new NotApplicable('this command did not start the worker');
  const code = await within(ms, "the worker's process did not exit", exitCode);
  demandSame(code, 0, 'the exit code');
}
