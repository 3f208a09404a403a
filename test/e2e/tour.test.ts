// The tour of examples/tour: runs the printed command against a platform and checks its result.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { killPods } from '../support/containers/left-pods.ts';
import { readCodeBlocks, runCommandLine } from '../support/printed-commands.ts';
import { Process } from '../support/processes.ts';

let folder: string;
let platform: Process;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-tour-'));
  platform = new Process(['serve', '--key-file', 'keys', '--port', '0'], { cwd: folder });
});

afterEach(async () => {
  await platform.end();
  killPods(folder);
  await rm(folder, { recursive: true, force: true });
});

it('scales from zero to three workers and back, and runs a pod, in the tour', async () => {
  const url = await platform.find(/ready at (http:\/\/127\.0\.0\.1:\d+)/);
  const blocks = await readCodeBlocks('examples/tour/README.md');
  const line = blocks.map(({ text }) => text).find((text) => text.includes('examples/tour'));
  const command = line?.replace(' keys)', ` ${join(folder, 'keys')})`) ?? '';
  const { exitCode, stderr, stdout } = await runCommandLine(
    `MILLRACE_URL=${url} ${command.trim()}`,
    resolve('.'),
  );
  expect(exitCode, stdout + stderr).toBe(0);
  const workers = [...stdout.matchAll(/workers (\d+),/g)].map(([, count]) => Number(count));
  expect(Math.max(...workers)).toBe(3);
  expect(stdout).toMatch(/workers 0, waiting 0, completed 200\n/);
  expect(stdout).toMatch(/no worker: .*3 of at most 3.*idle for 2 s: /s);
  expect(stdout).toMatch(/RUNNING.*here I am.*EXITED.*RUNNING.*TERMINATED: may nothing/s);
  expect(stdout).toMatch(/all of it is gone again\n$/);
}, 120_000);
