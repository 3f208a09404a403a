// Answers requests of the OpenAI API: `n` comes back squared after `ms`, and not before the file `gate` exists. Every tenth
// request is refused.
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'millrace';

interface Request {
  openai_input: { n: number; ms: number; gate?: string };
}

export default async function answer({ input }: Job<Request>): Promise<object> {
  const { gate, ms, n } = input.openai_input;
  await sleep(ms);
  while (gate !== undefined && !existsSync(gate)) await sleep(20);
  if (n % 10 === 3) return { error: { message: `no answer for ${n}`, code: 400 } };
  return { object: 'chat.completion', n, square: n * n };
}
