import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { locatePayloads } from '../../../../src/store/disk/payload-files.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { deleteUnused, ENDPOINT } from '../../../support/store/stored-jobs.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-crash-'));
afterAll(() => rmSync(folder, { recursive: true }));

const writerFile = (name: string) =>
  fileURLToPath(new URL(`../../../support/store/${name}`, import.meta.url));

/** Lets the writer work until it has named `count` jobs, kills it, and gives all that it named. */
async function killWriterAfter(count: number, path: string, file: string): Promise<string[]> {
  const child = spawn(process.execPath, [writerFile(file), path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
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

it('finds every acknowledged write, complete and counted, after a kill during writes', async () => {
  const path = join(folder, 'killed.db');
  const named = await killWriterAfter(500, path, 'acknowledging-writer.ts');
  expect(named.length).toBeGreaterThanOrEqual(500);
  const store = openSqliteStore({ path });
  try {
    const found = await store.read((tx) => {
      const jobs = tx.queuedJobs(ENDPOINT, 1_000_000);
      const whole: string[] = [];
      for (const job of jobs) if (tx.output(job)) whole.push(job.id);
      const endpoint = tx.endpoint(ENDPOINT);
      return { ids: new Set(whole), jobs: jobs.length, counted: endpoint?.inQueue };
    });
    expect(named.filter((id) => !found.ids.has(id))).toEqual([]);
    expect(found.ids.size).toBe(found.jobs);
    expect(found.counted).toBe(found.jobs);
  } finally {
    await store.close();
  }
}, 30_000);

it('loses no acknowledged input after a kill during uploads, and deletes what it left', async () => {
  const path = join(folder, 'uploads.db');
  const named = await killWriterAfter(60, path, 'uploading-writer.ts');
  const store = openSqliteStore({ path });
  let bytes = 0;
  try {
    expect((await store.read((tx) => tx.unusedPayloads(10))).length).toBeGreaterThan(0);
    await deleteUnused(store);
    const jobs = await store.read((tx) => tx.queuedJobs(ENDPOINT, 1_000_000));
    const ids = new Set(jobs.map(({ id }) => id));
    expect(named.filter((id) => !ids.has(id))).toEqual([]);
    for (const { endpointId, id, position } of jobs) {
      const input = await store.read((tx) => tx.input({ endpointId, id }));
      const written = new Uint8Array(40_000).fill(position % 251);
      expect(Buffer.compare(input ?? written.subarray(0, 0), written)).toBe(0);
      bytes += input?.length ?? 0;
    }
  } finally {
    await store.close();
  }
  const database = new DatabaseSync(path);
  const rows = 'select sum(file_bytes) as files, sum(octet_length(bytes)) as others from job_input';
  const row = database.prepare(rows).get();
  database.close();
  expect(row).toMatchObject({ files: bytes, others: 0 });
  const sizes = readdirSync(locatePayloads(path)).map(
    (name) => statSync(join(locatePayloads(path), name)).size,
  );
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(bytes);
}, 30_000);
