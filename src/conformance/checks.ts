// What a check is, and how a list of them is run: one after the other, each with its own verdict.

/** What was seen is not what the protocol asks for; the message says both. */
export class Deviation extends Error {
  override readonly name = 'Deviation';
}

/** The check does not apply to what stands on the other side. */
export class NotApplicable extends Error {
  override readonly name = 'NotApplicable';
}

export interface Check<Stage> {
  /** What it is about: a verb, or a word of the protocol. */
  area: string;
  /** What has to hold, as a sentence about the side under test. */
  rule: string;
  /** Without it nothing else can hold: the others are left out. */
  isBasic?: boolean;
  /** @throws Deviation, NotApplicable; anything else counts as a deviation too */
  run(stage: Stage): Promise<void> | void;
}

export interface Row {
  area: string;
  rule: string;
  result: 'holds' | 'fails' | 'left out';
  /** Why, unless it holds. */
  detail?: string;
}

/** Those that everything hangs on, and those of the areas; all if none is named. */
export function chooseChecks<Stage>(
  checks: readonly Check<Stage>[],
  areas: readonly string[],
): readonly Check<Stage>[] {
  if (areas.length === 0) return checks;
  return checks.filter(({ area, isBasic }) => isBasic || areas.includes(area));
}

export async function runChecks<Stage>(
  checks: readonly Check<Stage>[],
  stage: Stage,
  onRow: (row: Row) => void,
): Promise<Row[]> {
  const rows: Row[] = [];
  let missing: string | undefined;
  for (const check of checks) {
    const { area, rule } = check;
    const row: Row =
      missing === undefined
        ? { area, rule, ...(await judge(check, stage)) }
        : { area, rule, result: 'left out', detail: `"${missing}" does not hold` };
    if (check.isBasic && row.result === 'fails') missing = rule;
    rows.push(row);
    onRow(row);
  }
  return rows;
}

async function judge<Stage>(
  check: Check<Stage>,
  stage: Stage,
): Promise<Pick<Row, 'result' | 'detail'>> {
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

/** @throws Deviation if the two are not the same as JSON */
export function demandSame(found: unknown, wanted: unknown, what: string): void {
  const [is, should] = [JSON.stringify(found), JSON.stringify(wanted)];
  demand(is === should, `${what}: ${shorten(should)} was expected, not ${shorten(is)}`);
}

/** The promise's value, or a deviation when it takes too long. `what` completes "… within 5 s". */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Deviation(`${what} within ${ms / 1_000} s`)), ms);
    // One that nobody waits for any more holds up the end of the command no longer.
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
