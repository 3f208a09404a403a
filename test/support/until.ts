// Waits for something that no event announces. After the limit, the error says what the test waited for.
import { setTimeout as sleep } from 'node:timers/promises';

interface UntilOptions {
  /** Default: 50,000, which is less than the time that a unit test has. */
  limitMs?: number;
  /** Between two looks. Default: 5. */
  everyMs?: number;
}

type Wanted<T> = T | false | undefined;

/** Looks again while `look` finds false or undefined. @returns what it found @throws Error with the source of `look` */
export async function until<T>(
  look: () => Wanted<T> | Promise<Wanted<T>>,
  { everyMs = 5, limitMs = 50_000 }: UntilOptions = {},
): Promise<T> {
  const end = performance.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > end) throw new Error(`not so after ${limitMs} ms: ${look}`);
    await sleep(everyMs);
  }
}
