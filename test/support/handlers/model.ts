// Streams from or calls the model process of a test, several jobs at a time. Job n returns n.
import { fileURLToPath } from 'node:url';
import type { Context, Job, SetupContext } from 'millrace';
import { createModelProcess } from 'millrace/process';

export interface ModelJob {
  n: number;
  /** `stream`: n items. `call`: one value. `die`: the process exits in this job, always. */
  do: 'stream' | 'call' | 'die';
}

const model = createModelProcess({
  command: 'python3',
  args: [fileURLToPath(new URL('../models/peril.py', import.meta.url))],
  maxConcurrent: 4,
  maxBackoffMs: 200,
});

export const config = { concurrency: 4 };
export const setup = (ctx: SetupContext) => model.start(ctx);
export const teardown = () => model.stop();

export default async function* ({ input }: Job<ModelJob>, ctx: Context) {
  if (input.do === 'stream') return yield* model.stream('numbers', input, ctx);
  return await model.call('echo', input, ctx);
}
