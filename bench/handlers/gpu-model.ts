// A handler with a model on the GPU, for the benchmarks of parking.
import { fileURLToPath } from 'node:url';
import type { Context, Job, SetupContext } from 'millrace';
import { createModelProcess } from 'millrace/process';

interface Input {
  do: 'work' | 'steps';
  count?: number;
  pauseMs?: number;
}

const model = createModelProcess({
  command: 'python3',
  args: [fileURLToPath(new URL('gpu-model.py', import.meta.url))],
});

export const setup = (ctx: SetupContext) => model.start(ctx);
export const teardown = () => model.stop();

export default ({ input }: Job<Input>, ctx: Context) => model.call(input.do, input, ctx);
