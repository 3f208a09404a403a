import { mkdtemp, rm, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { findRun, noteOutOfMemory, type SeenRun } from '../../../../src/engine/process/runs.ts';

it('the engine does not read a large exit file', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'runs-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, 'run-1'), 'no record\n7\n');
  expect(await findRun(folder)).toMatchObject({ number: 1 });
  await truncate(join(folder, 'run-1'), 200_000);
  expect(await findRun(folder)).toMatchObject({ number: 1, record: undefined, end: { code: 137 } });
});

it('a note about memory does not change the time of the end', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'runs-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, 'run-1');
  await writeFile(file, 'no record\n137\n');
  await utimes(file, 1_700_000_000.123, 1_700_000_000.123);
  const run: SeenRun = { number: 1, file, record: undefined, outOfMemory: false, end: undefined };
  await noteOutOfMemory(run);
  const end = { code: 137, at: 1_700_000_000_123 };
  expect(await findRun(folder)).toMatchObject({ outOfMemory: true, end });
});
