// Parent and child in one: the parent remembers a step and waits for two children. Both go on at files that the test creates, so
// that it can kill processes at each point.
import { appendFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Context, Job } from 'millrace';

export interface DurableInput {
  folder: string;
  /** Of the child; absent: it is the parent. */
  name?: string;
  /** Of the children, one for each. */
  endpoints?: string[];
}

export const config = { concurrency: 16 };

export default async function durable({ id, input }: Job<DurableInput>, ctx: Context) {
  const { endpoints = ['child', 'child'], folder, name } = input;
  const note = (text: string) => appendFileSync(join(folder, 'notes'), `${text}\n`);
  const at = async (file: string) => {
    while (!existsSync(join(folder, file))) await delay(5, undefined, { signal: ctx.signal });
  };
  if (name !== undefined) {
    note(`child ${name} ${id}`);
    await at('children');
    return { name };
  }
  const plan = await ctx.step('plan', () => {
    note('plan');
    return ['left', 'right'];
  });
  note('planned');
  await at('start');
  const ends = await Promise.all(
    plan.map((side, index) =>
      ctx.run<{ name: string }>(side, {
        endpoint: String(endpoints[index]),
        input: { folder, name: side },
      }),
    ),
  );
  note('resumed');
  await at('finish');
  return ends.map(({ name: side }) => side);
}
