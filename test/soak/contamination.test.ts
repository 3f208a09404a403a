// Jobs that change built-ins, one by one, each followed by an innocent job in the same thread.
import { describe, it } from 'vitest';
import {
  contaminatingHandler,
  expectRight,
  innocentValue,
  targets,
  writeChange,
} from '../support/contamination.ts';
import { startThreads, writeHandler } from '../support/workers/thread-script.ts';

const changes = targets.flatMap(([target, methods]) =>
  methods.flatMap((method) => [
    writeChange(target, method, 'fake'),
    writeChange(target, method, 'boom'),
  ]),
);

describe('an innocent job', () => {
  it.each(changes)('never returns a wrong output after %s', async (code) => {
    const handlerPath = await writeHandler(contaminatingHandler);
    const { begin } = await startThreads({ handlerPath, concurrency: 1 });
    await begin({ code }, 3_000).end;
    expectRight(await begin({ value: innocentValue }, 3_000).end);
  });
});
