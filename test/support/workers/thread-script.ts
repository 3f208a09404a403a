// Handlers in real threads, for tests: an executor that runs test/support/handlers/effects.ts, or what
// a test writes, and is stopped when the test is over.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import {
  ThreadExecutor,
  type ThreadExecutorOptions,
} from '../../../src/worker/execution/thread-executor.ts';
import { type LogLine, parseLines, RecordingSink } from '../network/recording-sink.ts';
import { cpu, makeLease } from './leases.ts';

export const effects = join(import.meta.dirname, '../handlers/effects.ts');

export function createThreads(options: Partial<ThreadExecutorOptions> = {}) {
  const workerLog: LogLine[] = [];
  const executor = new ThreadExecutor({
    handlerPath: effects,
    devices: [cpu],
    graceMs: 50,
    logDestination: { write: (lines) => workerLog.push(...parseLines(lines)) },
    ...options,
  });
  onTestFinished(() => executor.stop());
  const begin = (input: unknown, timeoutMs = 60_000) => {
    const sink = new RecordingSink();
    const lease = makeLease(input);
    const execution = executor.execute(lease, timeoutMs, sink);
    /** The handler has come to its first wait. */
    const hasBegun = sink.until(({ progressValues }) => progressValues.length > 0);
    return {
      hasBegun,
      lease,
      execution,
      sink,
      end: execution.end,
      stop: execution.stop.bind(execution),
    };
  };
  return { executor, begin, workerLog };
}

export async function startThreads(options: Partial<ThreadExecutorOptions> = {}) {
  const created = createThreads(options);
  await created.executor.start();
  return created;
}

export async function writeHandler(source: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-thread-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }');
  await writeFile(join(folder, 'handler.ts'), source);
  return join(folder, 'handler.ts');
}
