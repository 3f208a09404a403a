// Large outputs on a full disk. Here a page limit stands for the disk; test/e2e/storage uses a real one.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { DiskReserve, SpaceGate } from '../../../../src/store/disk/space-gate.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { StoreUnavailableError } from '../../../../src/store/store.ts';
import type { Lease } from '../../../../src/wire/link/worker-link.ts';
import {
  completed,
  ENDPOINT,
  Hand,
  logOf,
  outcomeOf,
  Platform,
} from '../../../support/queue-platform.ts';

/** A full disk accepts payloads up to a quarter of it. */
const RESERVE_BYTES = 1_048_576;

const KEY = { endpointId: ENDPOINT, id: 'lost' };

let folder: string;
let platform: Platform;
let worker: Hand;
let leases: Lease[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-full-'));
  const reserve = new DiskReserve({ path: join(folder, 'reserve'), bytes: RESERVE_BYTES });
  await reserve.make();
  const gate = new SpaceGate(reserve);
  const store = openSqliteStore({ path: join(folder, 'm.db'), maxPages: 400, gate });
  platform = new Platform({ store, settings: { payloadPartBytes: 20_000 } });
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
  for (let job = 0; job < 3; job++) await platform.submit();
  leases = await worker.take({ max: 3 });
  // One write, so that nothing of it stays.
  const lost = store.write((tx) => tx.beginPayload('input', KEY, new Uint8Array(3_000_000)));
  await expect(lost).rejects.toThrow(StoreUnavailableError);
  expect(gate.isFull).toBe(true);
});

afterEach(async () => {
  await platform.close();
  rmSync(folder, { recursive: true });
});

function makeText(bytes: number): Buffer {
  return Buffer.from(JSON.stringify('x'.repeat(bytes - 2)));
}

function leaseAt(index: number): Lease {
  const lease = leases[index];
  if (!lease) throw new Error(`no lease ${index}`);
  return lease;
}

function endOf(index: number, bytes: number, seq = 1) {
  return outcomeOf(leaseAt(index), seq, completed, makeText(bytes).toString());
}

async function listStates(): Promise<[string, number][]> {
  const jobs = await Promise.all(leases.map(({ jobId }) => platform.job(jobId)));
  return jobs.map(({ lastSeq, status }) => [status, lastSeq]);
}

it('stops only the reports of the job whose output does not fit', async () => {
  const reports = [endOf(0, 10), endOf(1, 400_000), logOf(leaseAt(1), 2, 'l\n'), endOf(2, 50_000)];
  await expect(worker.report(reports)).rejects.toThrow(StoreUnavailableError);
  expect(await listStates()).toEqual([
    ['COMPLETED', 1],
    ['IN_PROGRESS', 0],
    ['COMPLETED', 1],
  ]);
});

it('reserves the space of the first of two outputs', async () => {
  const [first, second] = await Promise.allSettled([
    worker.reportOne(endOf(0, 200_000)),
    worker.reportOne(endOf(1, 200_000)),
  ]);
  expect(first).toEqual({ status: 'fulfilled', value: { answer: 'applied' } });
  expect(second).toMatchObject({ status: 'rejected', reason: { code: 'SQLITE_FULL' } });
  // A part of the second output would have taken up this space.
  expect(await worker.reportOne(endOf(2, 60_000))).toEqual({ answer: 'applied' });
});
