// What the threads of a worker measure of the starts of their model processes: a real thread, and a real process.
import { resolve } from 'node:path';
import { expect, it } from 'vitest';
import type { ExecutorStart } from '../../../../src/worker/execution/executor.ts';
import { MODEL } from '../../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../../support/python.ts';
import { until } from '../../../support/until.ts';
import { createThreads, writeHandler } from '../../../support/workers/thread-script.ts';

const PROCESS = resolve(import.meta.dirname, '../../../../src/process.ts');

it.skipIf(leaveOutWithoutPython('model-starts.test.ts'))(
  'a model process is a part of the start of its thread, and later one of its own',
  async () => {
    const handlerPath = await writeHandler(`
      import { createModelProcess } from '${PROCESS}';
      const model = createModelProcess({ command: 'python3', args: ['${MODEL}'] });
      export default {
        setup: ({ log }) => model.start({ log }),
        run: () => process.kill(model.pid, 'SIGKILL'),
        teardown: () => model.stop(),
      };`);
    const { begin, executor } = createThreads({ handlerPath });
    const starts: ExecutorStart[] = [];
    executor.onStarted((start) => starts.push(start));
    const beganAt = Date.now();
    await executor.start();
    const whole = Date.now() - beganAt;
    const [first] = starts;
    if (first?.of !== 'worker') throw new Error('it has measured no start');
    expect(first.interpreterMs).toBeGreaterThan(0);
    expect(first.importMs).toBeGreaterThan(0);
    const { importMs, interpreterMs, setupMs, upAt } = first;
    expect(upAt - beganAt + interpreterMs + importMs + setupMs).toBeLessThanOrEqual(whole);
    await begin({}).end;
    await until(() => starts.length === 2);
    expect(starts[1]).toMatchObject({ of: 'model', interpreterMs: expect.any(Number) });
  },
);
