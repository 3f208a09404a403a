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
  run: ({ input }, ctx) => {
    const isLong = typeof input === 'object' && input !== null && 'steps' in input;
    return isLong ? model.call('compute', input, ctx) : model.call('answer', null, ctx);
  },
});
