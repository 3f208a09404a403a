// The file that reserves disk space, on the real disk.
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { DiskReserve } from '../../../../src/store/disk/space-gate.ts';

let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-reserve-'));
  path = join(folder, 'reserve');
});
afterEach(() => rmSync(folder, { recursive: true }));

it.each([1, 1_048_576, 1_500_000])('holds %i bytes until it is released', async (bytes) => {
  const reserve = new DiskReserve({ path, bytes });
  expect(reserve.isHeld).toBe(false);
  expect(await reserve.make()).toBe(true);
  expect(statSync(path).size).toBe(bytes);
  expect(reserve.isHeld).toBe(true);
  reserve.release();
  expect(reserve.isHeld).toBe(false);
  expect(existsSync(path)).toBe(false);
});

it('is not made if the disk has too little space', async () => {
  const reserve = new DiskReserve({ path, bytes: 2 ** 50 });
  expect(await reserve.make()).toBe(false);
  expect(existsSync(path)).toBe(false);
});
