// Jobs that replace built-ins, one by one, with `isolation: 'job'`.
import { describe, expect, it } from 'vitest';
import {
  otherValue,
  replacingHandler,
  targets,
  writeChange,
} from '../support/replaced-built-ins.ts';
import { readOutput } from '../support/workers/leases.ts';
import { startThreads, writeHandler } from '../support/workers/thread-script.ts';

const changes = targets.flatMap(([target, methods]) =>
  methods.flatMap((method) => [
    writeChange(target, method, 'fake'),
    writeChange(target, method, 'boom'),
  ]),
);

/** Lines of a thread without its JSON.stringify are not JSON. */
const logDestination = { write: () => undefined };

describe('a job in another thread', () => {
  it.each(changes)('returns its own output beside and after %s', async (code) => {
    const handlerPath = await writeHandler(replacingHandler);
    const { begin } = await startThreads({ handlerPath, threads: 2, logDestination });
    const replacing = begin({ code }, 3_000);
    const beside = begin({ value: otherValue });
    await replacing.end;
    for (const { end } of [beside, begin({ value: otherValue }), begin({ value: otherValue })]) {
      expect(readOutput(await end)).toEqual(otherValue);
    }
  });
});
