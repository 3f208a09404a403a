// Handler that asks for a new worker process or fails, as its input says; it returns its process ID.
import { setTimeout as sleep } from 'node:timers/promises';
import { type Context, type Job, registerCheck } from 'millrace';

export interface RecycleInput {
  /** How long the job runs, ms. */
  ms?: number;
  /** Calls `ctx.refreshWorker`. */
  refresh?: boolean;
  /** Throws. */
  fail?: boolean;
}

// The environment can make the machine unfit.
registerCheck('weights', ({ devices, log }) => {
  log.info({ devices: devices.length }, 'the weights are looked for');
  if (process.env['TEST_NO_WEIGHTS'] !== undefined) throw new Error('there are none');
});

export default async function recycle(
  { input }: Job<RecycleInput>,
  ctx: Context,
): Promise<{ pid: number }> {
  await sleep(input.ms ?? 0, undefined, { signal: ctx.signal });
  if (input.refresh) ctx.refreshWorker();
  if (input.fail) throw new Error('the GPU is in a bad state');
  return { pid: process.pid };
}
