// A simulated device: one batch at a time, 20 ms each, whatever its size up to 32. The environment sets the
// size of batches; 0 stands for a handler of single jobs.
import { setTimeout as sleep } from 'node:timers/promises';
import { defineBatchHandler, defineHandler } from 'millrace';

export const DEVICE_MS = 20;

let last: Promise<unknown> = Promise.resolve();

/** Resolves when the device has run this batch, after all earlier ones. */
export function runOnDevice(): Promise<unknown> {
  last = last.then(() => sleep(DEVICE_MS));
  return last;
}

const maxSize = Number(process.env['BENCH_BATCH_SIZE'] ?? 0);
const maxWaitMs = Number(process.env['BENCH_BATCH_WAIT_MS'] ?? 0);

const single = defineHandler({
  async run({ input }) {
    await runOnDevice();
    return input;
  },
});

export default maxSize === 0
  ? single
  : defineBatchHandler({
      // While the device runs one batch, the worker collects the next one.
      batch: { maxSize, maxWaitMs, maxInFlight: 2 },
      async run(jobs) {
        await runOnDevice();
        return jobs.map(({ input }) => input);
      },
    });
