import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { openSqliteStore } from '../../../src/store/sqlite.ts';
import { ENDPOINT } from '../../conformance/store/stored-jobs.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-crash-'));
afterAll(() => rmSync(folder, { recursive: true }));

const writer = fileURLToPath(new URL('acknowledging-writer.ts', import.meta.url));

/** Lets the writer work until it has named `count` jobs, kills it, and gives all that it named. */
async function killWriterAfter(count: number, path: string): Promise<string[]> {
  const child = spawn(process.execPath, [writer, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  let output = '';
  for await (const data of child.stdout.setEncoding('utf8')) {
    output += data;
    if (output.split('\n').length > count) child.kill('SIGKILL');
  }
  expect(await exited).toEqual([null, 'SIGKILL']);
  // The last piece is empty, or a name that was cut off.
  return output.split('\n').slice(0, -1);
}

it('every acknowledged write exists, complete and counted, after a kill during writes', async () => {
  const path = join(folder, 'killed.db');
  const named = await killWriterAfter(500, path);
  expect(named.length).toBeGreaterThanOrEqual(500);
  const store = openSqliteStore({ path });
  try {
    const found = await store.read(function* (tx) {
      const jobs = yield* tx.queuedJobs(ENDPOINT, 1_000_000);
      const whole: string[] = [];
      for (const job of jobs) if (yield* tx.output(job)) whole.push(job.id);
      const endpoint = yield* tx.endpoint(ENDPOINT);
      return { ids: new Set(whole), jobs: jobs.length, counted: endpoint?.inQueue };
    });
    expect(named.filter((id) => !found.ids.has(id))).toEqual([]);
    expect(found.ids.size).toBe(found.jobs);
    expect(found.counted).toBe(found.jobs);
  } finally {
    await store.close();
  }
}, 30_000);
