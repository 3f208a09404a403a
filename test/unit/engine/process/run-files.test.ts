import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { findRun } from '../../../../src/engine/process/runs.ts';

it('the engine does not read a large exit file', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'runs-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, 'run-1'), 'no record\n7\n');
  expect(await findRun(folder)).toMatchObject({ number: 1 });
  await truncate(join(folder, 'run-1'), 200_000);
  expect(await findRun(folder)).toMatchObject({ number: 1, record: undefined, end: { code: 137 } });
});
