// Handler whose model uses PyTorch on a GPU, for test/gpu.
import { fileURLToPath } from 'node:url';
import type { Context, Job, SetupContext } from 'millrace';
import { createModelProcess } from 'millrace/process';

const model = createModelProcess({
  command: 'python3',
  args: [fileURLToPath(new URL('../models/torch_ops.py', import.meta.url))],
});

export const setup = (ctx: SetupContext) => model.start(ctx);
export const teardown = () => model.stop();

export default ({ input }: Job<{ op: string }>, ctx: Context) => model.call(input.op, {}, ctx);
