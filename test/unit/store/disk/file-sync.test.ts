import { closeSync, openSync } from 'node:fs';
import { devNull } from 'node:os';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { FileSync } from '../../../../src/store/disk/durability.ts';

let file = 0;
beforeAll(() => {
  file = openSync(import.meta.filename, 'r');
});
afterAll(() => closeSync(file));

/** A disk whose calls on the spot take so many ms. */
function openDisk() {
  let now = 0;
  const disk = { ms: 0 };
  const sync = new FileSync(() => {
    now += disk.ms;
    return now;
  });
  const run = async (calls: number) => {
    for (let call = 0; call < calls; call++) await sync.run(file, 0);
  };
  return { disk, sync, run };
}

it('waits in the thread pool for 50 calls after two in a row that took more than 2 ms', async () => {
  const { disk, run, sync } = openDisk();
  for (const ms of [2, 2.1, 2, 2.1]) {
    disk.ms = ms;
    await run(1);
    expect(sync.isDiskSlow).toBe(false);
  }
  await run(1);
  expect(sync.isDiskSlow).toBe(true);
  await run(49);
  expect(sync.isDiskSlow).toBe(true);
  await run(1);
  expect(sync.isDiskSlow).toBe(false);
});

it('tries a disk that stays slow less and less often, and one that was fast again soon', async () => {
  const { disk, run, sync } = openDisk();
  const countPooled = async () => {
    let pooled = 0;
    await run(1);
    for (; sync.isDiskSlow; pooled++) await run(1);
    return pooled;
  };
  disk.ms = 20;
  await run(1);
  const pooled = [];
  for (let time = 0; time < 8; time++) pooled.push(await countPooled());
  expect(pooled).toEqual([50, 100, 200, 400, 800, 1_600, 3_200, 3_200]);
  disk.ms = 1;
  await run(1);
  disk.ms = 20;
  expect(await countPooled()).toBe(0);
  expect(await countPooled()).toBe(50);
});

it.each([
  ['a fast', 0],
  ['a slow', 5],
])('rejects with the error of %s disk', async (_name, ms) => {
  const { disk, run, sync } = openDisk();
  disk.ms = ms;
  await run(2);
  // A device has nothing to put on disk.
  const device = openSync(devNull, 'r');
  await expect(sync.run(device, 0)).rejects.toMatchObject({ code: 'EINVAL' });
  closeSync(device);
});

it('waits in the thread pool for many bytes, which say nothing about the disk', async () => {
  const { disk, sync } = openDisk();
  disk.ms = 20;
  await sync.run(file, 500_000);
  await sync.run(file, 600_000);
  expect(sync.isDiskSlow).toBe(false);
  await sync.run(file, 500_000);
  expect(sync.isDiskSlow).toBe(true);
});
