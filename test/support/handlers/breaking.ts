// Handler whose worker can break: native code in its process loses the context of a GPU, or a folder that it needs is gone.
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context, Job } from 'millrace';

export interface BreakingInput {
  /** Loses the context: from then on everything in this process fails. */
  lose?: boolean;
  /** How long the job runs, ms. */
  ms?: number;
  /** File that the job reads. */
  file?: string;
}

let isLost = false;

function launchKernel(): void {
  if (isLost) throw new Error('CUDA failure 710: device-side assert triggered');
}

export default async function run({ input }: Job<BreakingInput>, ctx: Context) {
  launchKernel();
  if (input.lose) isLost = true;
  await sleep(input.ms ?? 0, undefined, { signal: ctx.signal });
  launchKernel();
  if (input.file !== undefined && existsSync(input.file)) readFileSync(input.file);
  else if (input.file !== undefined) throw new Error(`ENOENT: no such file, open '${input.file}'`);
  return { pid: process.pid };
}
