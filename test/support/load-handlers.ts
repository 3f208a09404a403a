// A program that loads handler files, its arguments, and prints each result as JSON. A separate
// process, because the test runner would load TypeScript by its own rules.
import { ManualClock } from '../../src/base/clock.ts';
import { invoke } from '../../src/handler/attempt/invoke.ts';
import { type LoadedHandler, loadHandler } from '../../src/handler/loading/load.ts';
import { RecordingSink } from './network/recording-sink.ts';
import { readOutput } from './workers/leases.ts';

async function answer(handler: LoadedHandler): Promise<unknown> {
  const call = {
    number: 1,
    jobId: 'job-1',
    attempt: 1,
    input: Buffer.from('1'),
    timeoutMs: 10_000,
    devices: [],
    windowBytes: 1_000,
    limits: { outputBytes: 1_000, chunkTotalBytes: 1_000 },
    clock: new ManualClock(),
  };
  return readOutput(await invoke(handler, call, new RecordingSink()).end);
}

const results = [];
for (const path of process.argv.slice(2)) {
  try {
    const handler = await loadHandler(path);
    const { config, input } = handler;
    results.push({ answer: await answer(handler), hasInput: input !== undefined, config });
  } catch (error) {
    results.push({ error: error instanceof Error ? `${error.name}: ${error.message}` : error });
  }
}
console.log(JSON.stringify(results));
