// Streams small chunks as chunks.ts does, from a generator in Python.
import { fileURLToPath } from 'node:url';
import type { Context, Job, SetupContext } from 'millrace';
import { createModelProcess } from 'millrace/process';

const model = createModelProcess({
  command: 'python3',
  args: [fileURLToPath(new URL('./model.py', import.meta.url))],
});

export const setup = (ctx: SetupContext) => model.start(ctx);
export const teardown = () => model.stop();

export default ({ input }: Job<{ count: number }>, ctx: Context) =>
  model.stream('count', input, ctx);
