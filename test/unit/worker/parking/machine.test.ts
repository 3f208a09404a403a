// The memory of a machine: a worker's place in the ledger, by the figures of a stand-in for nvidia-smi.
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { LedgerFile, locateLedger } from '../../../../src/worker/parking/ledger-file.ts';
import {
  LedgerMachine,
  parseMemory,
  readAvailableBytes,
  readMemory,
  shareHostLimit,
} from '../../../../src/worker/parking/machine.ts';

const MB = 2 ** 20;
const GPU = 'GPU-6f2d41c8';

function open() {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-machine-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const nvidiaSmi = join(folder, 'nvidia-smi');
  const say = (usedMb: number) => {
    writeFileSync(
      nvidiaSmi,
      `#!/bin/sh\necho 'GPU-other, 1, 1'\necho '${GPU}, 10000, ${usedMb}'\n`,
    );
    chmodSync(nvidiaSmi, 0o755);
  };
  say(0);
  /** Its next run prints figures from before it is let go. */
  const hold = () => {
    const [asked, go] = [join(folder, 'asked'), join(folder, 'go')];
    writeFileSync(
      nvidiaSmi,
      `#!/bin/sh\n: > '${asked}'\nwhile [ ! -e '${go}' ]; do sleep 0.01; done\necho '${GPU}, 10000, 0'\n`,
    );
    return () => writeFileSync(go, '');
  };
  const ask = () => vi.waitFor(() => expect(existsSync(join(folder, 'asked'))).toBe(true), 20_000);
  const ledger = join(folder, 'ledger');
  const enter = (workerId: string, given = nvidiaSmi) =>
    new LedgerMachine({
      ledger: new LedgerFile(locateLedger(ledger)),
      workerId,
      device: GPU,
      hostLimitBytes: 9_000 * MB,
      readMemory: async () => (given === '' ? undefined : readMemory(given, GPU)),
    });
  return { ask, enter, hold, say, list: () => new LedgerFile(ledger).list() };
}

it('promises a worker the memory that its model held, less the reserve', async () => {
  const { enter, list, say } = open();
  const [a, b] = [enter('a'), enter('b')];
  await a.noteParked(6_000 * MB);
  await b.noteParked(3_000 * MB);
  say(3_745);
  expect(await a.reserve()).toMatchObject({ isGranted: false, holders: [] });
  say(3_744);
  expect(await a.reserve()).toMatchObject({ isGranted: true, holders: [] });
  // The memory of the first one is promised, though the driver does not show it yet.
  expect(await b.reserve()).toMatchObject({ isGranted: false, holders: ['a'] });
  await a.noteResident();
  say(6_000);
  expect(await b.reserve()).toMatchObject({ isGranted: true, holders: [] });
  expect(
    list()
      .map(({ id, state }) => `${id} ${state}`)
      .sort(),
  ).toEqual(['a resident', 'b waking']);
});

it('asks for as much as before when the model has to start anew', async () => {
  const { enter, list, say } = open();
  const a = enter('a');
  await a.noteParked(6_000 * MB);
  await a.noteParked(0);
  expect(list()).toMatchObject([{ state: 'ended', bytes: 6_000 * MB }]);
  say(5_000);
  expect((await a.reserve()).isGranted).toBe(false);
});

it('lets others change the ledger while nvidia-smi is slow, and does not rely on its old figures', async () => {
  const { ask, enter, hold, say } = open();
  const [a, b] = [enter('a'), enter('b', '')];
  await a.noteParked(6_000 * MB);
  await b.noteParked(3_000 * MB);
  const go = hold();
  const reserving = a.reserve();
  await ask();
  expect((await b.reserve()).isGranted).toBe(true);
  await b.noteResident();
  go();
  expect(await reserving).toMatchObject({ isGranted: false, holders: ['b'] });
  say(3_000);
  expect((await a.reserve()).isGranted).toBe(true);
});

it('leaves the room to the helper of the driver if nothing tells the memory in use', async () => {
  const { enter, say } = open();
  say(9_999);
  const a = enter('a', '');
  await a.noteParked(6_000 * MB);
  expect((await a.reserve()).isGranted).toBe(true);
  const b = enter('b', '/nowhere/nvidia-smi');
  await b.noteParked(3_000 * MB);
  expect((await b.reserve()).isGranted).toBe(true);
});

it('lets one of two models stay that have come to the host at once, and both do not fit', async () => {
  const { enter, list } = open();
  const [a, b] = [enter('a'), enter('b')];
  const answers = await Promise.all([a.noteParked(6_000 * MB), b.noteParked(6_000 * MB)]);
  expect(answers.toSorted()).toEqual([false, true]);
  expect(list()).toHaveLength(1);
});

it('bounds the memory of all parked models by its limit and by what is free', async () => {
  const { enter } = open();
  const [a, b] = [enter('a'), enter('b')];
  const fits = Math.min(9_000 * MB, readAvailableBytes());
  await a.noteParked(fits / 2);
  expect(await b.hasHostRoom(fits / 4, false)).toBe(true);
  expect(await b.hasHostRoom(9_000 * MB - fits / 2 + 1, true)).toBe(false);
  expect(await b.hasHostRoom(9_000 * MB - fits / 2, true)).toBe(true);
  expect(await enter('c').hasHostRoom(readAvailableBytes() * 2, false)).toBe(false);
});

it('reads the memory of the device from what nvidia-smi prints', () => {
  expect(parseMemory(`${GPU}, 143771, 512\n`, GPU)).toEqual({
    totalBytes: 143_771 * MB,
    usedBytes: 512 * MB,
  });
  expect(parseMemory(`${GPU}, [N/A], [N/A]\n`, GPU)).toBeUndefined();
  expect(parseMemory('NVIDIA-SMI has failed', GPU)).toBeUndefined();
});

it('refuses a folder that others can write to', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-open-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o777);
  expect(() => locateLedger(folder)).toThrow(
    `${folder} belongs to another user, or other users can write to it`,
  );
});

it('says when nobody tells the memory in use', async () => {
  const { enter } = open();
  expect(await enter('a').reserve()).toMatchObject({ isMeasured: true });
  expect(await enter('b', '').reserve()).toMatchObject({ isMeasured: false });
});

it('shares the bound that the first worker has measured, until all of them are gone', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-host-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const gone = { pid: 2 ** 22 - 1, startTicks: '1', bootId: 'another' };
  const file = new LedgerFile(folder);
  expect(await file.shareLimit(() => 5, gone)).toBe(5);
  const measured = await shareHostLimit(folder);
  expect(measured).toBeGreaterThan(5);
  expect(await file.shareLimit(() => 7, gone)).toBe(measured);
});
