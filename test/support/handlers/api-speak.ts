// Logs in all ways that lead to the job's log, as much as requested.
import { setTimeout as delay } from 'node:timers/promises';
import type { Context, Job } from 'millrace';
import { makeText } from '../multi-byte-text.ts';

interface Speech {
  text: string;
  /** Bytes of multi-byte text to fill the log with, in lines of about 1,000, slowly enough not to count as a flood. */
  fillBytes?: number;
}

const LINE_BYTES = 1_000;
const LINES_A_TURN = 100;
/** 110 KB in each turn of this length stay below 256 KB in any second. */
const TURN_MS = 510;

export const config = { concurrency: 4 };

export default async function speak({ input }: Job<Speech>, ctx: Context): Promise<null> {
  const { fillBytes = 0, text } = input;
  console.log('console says', text);
  console.error(`console warns of ${text}`);
  ctx.log.info({ tokens: 3 }, `ctx.log says ${text}`);
  const lines = Math.ceil(fillBytes / LINE_BYTES);
  for (let line = 1; line <= lines; line += 1) {
    console.log(makeText(LINE_BYTES));
    if (line % LINES_A_TURN === 0) await delay(TURN_MS);
  }
  return null;
}
