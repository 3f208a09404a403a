// Follows docs/guides/tutorial.md three times as a newcomer does: with an empty npm cache, and the install scripts. Prints the
// time from `npm install` to the first chunk of the deployed endpoint; a person reads it.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { npm } from '../support/npm.ts';
import { runCommandLine } from '../support/printed-commands.ts';
import { followTutorial, readTutorial } from '../support/tutorial.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-tutorial-'));
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

it.each([1, 2, 3])('leads to a streamed answer, run %i', async (run) => {
  const { lines } = await readTutorial();
  const init = lines.find((line) => line.includes('init ../my-worker')) ?? '';
  const project = join(folder, 'my-worker');
  const began = performance.now();
  const { exitCode, stderr } = await runCommandLine(init.replace('../my-worker', project));
  expect(exitCode, stderr).toBe(0);
  const initialized = performance.now();
  await npm(['install', '--cache', join(folder, 'cache')], project);
  const installed = performance.now();
  const { deployed, deployMs } = await followTutorial(project);
  expect(deployed).toMatch(/^"HELLO"\n"FROM"\n"HERE"\n/m);
  const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;
  const parts = `init ${seconds(initialized - began)}, npm install ${seconds(installed - initialized)}`;
  const rest = `serve, deploy and first chunk ${seconds(deployMs)}`;
  console.info(`tutorial, run ${run}: ${seconds(installed - began + deployMs)}: ${parts}, ${rest}`);
});
