import { closeSync, openSync } from 'node:fs';
import { devNull } from 'node:os';
import { expect, it } from 'vitest';
import { FileSync } from '../../../../src/store/disk/file-sync.ts';

it('waits in the thread pool from the first slow call until 50 calls in a row were fast', () => {
  const sync = new FileSync();
  sync.note(2);
  expect(sync.isDiskSlow).toBe(false);
  sync.note(2.1);
  expect(sync.isDiskSlow).toBe(true);
  for (let call = 0; call < 49; call++) sync.note(1);
  expect(sync.isDiskSlow).toBe(true);
  sync.note(30);
  for (let call = 0; call < 49; call++) sync.note(1);
  expect(sync.isDiskSlow).toBe(true);
  sync.note(1);
  expect(sync.isDiskSlow).toBe(false);
});

it.each([
  ['a fast', 0],
  ['a slow', 5],
])('measures its calls, and rejects with the error of %s disk', async (_name, msPerCall) => {
  let now = 0;
  const sync = new FileSync(() => {
    now += msPerCall;
    return now;
  });
  const file = openSync(import.meta.filename, 'r');
  await sync.run(file);
  expect(sync.isDiskSlow).toBe(msPerCall > 2);
  await sync.run(file);
  closeSync(file);
  // A device has nothing to put on disk.
  const device = openSync(devNull, 'r');
  await expect(sync.run(device)).rejects.toMatchObject({ code: 'EINVAL' });
  closeSync(device);
});
