// A handler of the built package whose model holds memory of a (stand-in) GPU.
import { fileURLToPath } from 'node:url';
import { defineHandler } from 'millrace';
import { createModelProcess } from 'millrace/process';

const model = createModelProcess({
  command: 'python3',
  args: [fileURLToPath(new URL('../models/tenant.py', import.meta.url))],
});

export default defineHandler({
  setup: (ctx) => model.start(ctx),
  teardown: () => model.stop(),
  run: (_job, ctx) => model.call('answer', null, ctx),
});
