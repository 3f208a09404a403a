// Does what its input says, and tells the process that did it.
import { setTimeout as sleep } from 'node:timers/promises';
import { type Context, type Job, registerCheck } from 'millrace';

export interface Wear {
  /** ms before it ends. */
  ms?: number;
  /** Asks for a fresh worker. */
  refresh?: boolean;
  /** And then fails. */
  fail?: boolean;
}

// An environment may make the machine unfit.
registerCheck('weights', ({ devices, log }) => {
  log.info({ devices: devices.length }, 'the weights are looked for');
  if (process.env['TEST_NO_WEIGHTS'] !== undefined) throw new Error('there are none');
});

export default async function wear({ input }: Job<Wear>, ctx: Context): Promise<{ pid: number }> {
  await sleep(input.ms ?? 0, undefined, { signal: ctx.signal });
  if (input.refresh) ctx.refreshWorker();
  if (input.fail) throw new Error('the GPU is in a bad state');
  return { pid: process.pid };
}
