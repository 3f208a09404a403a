// Answers requests of the OpenAI API: `n` comes back squared after `ms`, and every tenth request is refused.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'millrace';

interface Request {
  openai_input: { n: number; ms: number };
}

export default async function answer({ input }: Job<Request>): Promise<object> {
  const { ms, n } = input.openai_input;
  await sleep(ms);
  if (n % 10 === 3) return { error: { message: `no answer for ${n}`, code: 400 } };
  return { object: 'chat.completion', n, square: n * n };
}
