// Waits for something that no event announces. After the limit, the error says what the test waited for.
import { setTimeout as sleep } from 'node:timers/promises';

/** Set by vitest.config.ts. */
const LIMIT_MS = Number(process.env['WAIT_LIMIT_MS'] ?? 50_000);

interface UntilOptions {
  /** Default: most of the time that the test has. */
  limitMs?: number;
  /** Between two looks. Default: 10. */
  everyMs?: number;
}

type Wanted<T> = T | false | undefined;

/** Looks again while `look` finds false or undefined. @returns what it found @throws Error with the source of `look` */
export async function until<T>(
  look: () => Wanted<T> | Promise<Wanted<T>>,
  { everyMs = 10, limitMs = LIMIT_MS }: UntilOptions = {},
): Promise<T> {
  const end = performance.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > end) throw new Error(`not so after ${limitMs} ms: ${look}`);
    await sleep(everyMs);
  }
}
