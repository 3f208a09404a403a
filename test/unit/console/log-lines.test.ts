// The lines of a job's log on its page.
import { expect, it } from 'vitest';
import { readLines } from '../../../console/src/pages/job/log-lines.ts';

it.each([
  [1_795_734_000_000, 1_795_734_000_000],
  [1_795_734_000_000_000_000, undefined],
  [-1e300, undefined],
  ['2026-11-26', undefined],
])('have the time %s as %s: the page can show only times of a Date', (time, at) => {
  const [line] = readLines(`${JSON.stringify({ level: 30, time, msg: 'a' })}\n`);
  expect(line).toMatchObject({ at, text: 'a' });
});
