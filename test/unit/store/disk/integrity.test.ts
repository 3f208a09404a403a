// A file that cannot be checked does not count as damaged. Also checks the files of payloads.
import { mkdtempSync, rmSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { LargePayloads } from '../../../../src/queue/payloads/large-payloads.ts';
import { completeSettings } from '../../../../src/queue/settings.ts';
import { locatePayloads, PayloadFolder } from '../../../../src/store/disk/payload-files.ts';
import { checkIntegrity } from '../../../../src/store/disk/store-files.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { ENDPOINT, makeJob } from '../../../support/store/stored-jobs.ts';

const { signal } = new AbortController();
const { execPath } = process;

let path: string;
let folder: string;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-integrity-'));
  path = join(folder, 'm.db');
  await openSqliteStore({ path }).close();
});
afterEach(() => {
  process.execPath = execPath;
  rmSync(folder, { recursive: true });
});

it('finds no problems in a sound file', async () => {
  const result = await checkIntegrity({ path, depth: 'quick', signal });
  expect(result).toEqual({ problems: [], isComplete: true });
});

it('does not call a file damaged that cannot be opened', async () => {
  const missing = join(folder, 'missing.db');
  const check = checkIntegrity({ path: missing, depth: 'quick', signal });
  await expect(check).rejects.toThrow('SQLITE_CANTOPEN');
});

it('rejects only the check if its process cannot be started', async () => {
  process.execPath = join(folder, 'no-node');
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  process.on('unhandledRejection', note);
  const check = checkIntegrity({ path, depth: 'quick', signal });
  await expect(check).rejects.toThrow('ENOENT');
  await new Promise((resolve) => setImmediate(resolve));
  process.off('unhandledRejection', note);
  expect(unhandled).toEqual([]);
});

describe('a file of a payload', () => {
  /** More than one row names the file. */
  const BYTES = 1_500_000;

  const check = () => checkIntegrity({ path, depth: 'quick', signal });

  /** Adds jobs with an input in a file each. @returns the paths of the files */
  async function addJobs(...ids: string[]): Promise<string[]> {
    const store = openSqliteStore({ path });
    const payloads = new LargePayloads({
      ...{ store, clock: systemClock, settings: completeSettings() },
    });
    const files = new PayloadFolder({ folder: locatePayloads(path) });
    const paths: string[] = [];
    for (const id of ids) {
      const key = { endpointId: ENDPOINT, id };
      const bytes = Buffer.alloc(BYTES, id);
      const input = await payloads.upload({ kind: 'input', key, bytes });
      await store.write((tx) => tx.insertJob(makeJob({ id }), input));
      paths.push(files.locate(input));
    }
    await store.close();
    return paths;
  }

  const describeLoss = (file: string | undefined, id: string) =>
    `the file ${file} with the input of job ${id} of endpoint ${ENDPOINT} is missing or too short`;

  it('is no problem if it is whole', async () => {
    await addJobs('a');
    expect(await check()).toEqual({ problems: [], isComplete: true });
  });

  it('is reported once with its job if it is missing or too short', async () => {
    const [missing = '', short = ''] = await addJobs('a', 'b', 'c');
    rmSync(missing);
    truncateSync(short, BYTES - 1);
    const { problems } = await check();
    expect(problems.sort()).toEqual([describeLoss(missing, 'a'), describeLoss(short, 'b')].sort());
  });

  it('is no problem before the upload has created it, or after its job was removed', async () => {
    const [file = ''] = await addJobs('a');
    const store = openSqliteStore({ path });
    await store.write((tx) => {
      tx.beginFile('output', { endpointId: ENDPOINT, id: 'a' }, BYTES);
      tx.removeJob(makeJob({ id: 'a' }));
    });
    await store.close();
    rmSync(file);
    expect(await check()).toEqual({ problems: [], isComplete: true });
  });
});
