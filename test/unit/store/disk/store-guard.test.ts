// Maintenance of a store whose disk reserve cannot be created, its erasure and checks, and its test writes.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';
import { StoreGuard, type StoreGuardOptions } from '../../../../src/store/disk/store-guard.ts';
import { MIGRATIONS, migrate } from '../../../../src/store/sqlite/schema.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';

const DEFAULTS = { reserveBytes: 0, eraseAfterMs: 50_000, checkMs: 0 };

function makePath(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-guard-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return join(folder, 'millrace.db');
}

/** Opens a guard with a clock of its own; `lines` is its log. */
async function openGuard(options: Pick<StoreGuardOptions, 'path'> & Partial<StoreGuardOptions>) {
  const lines: Record<string, unknown>[] = [];
  const log = createLog({ destination: { write: (line) => lines.push(JSON.parse(line)) } });
  const clock = new ManualClock();
  const guard = await StoreGuard.open({ ...DEFAULTS, clock, log, ...options });
  onTestFinished(() => guard.close());
  return { clock, guard, lines };
}

it('logs a maintenance failure that lasts once a minute, with a count', async () => {
  const path = makePath();
  // A folder in the reserve's place cannot be replaced by a file.
  mkdirSync(`${path}.reserve`);
  const { clock, lines } = await openGuard({ path, reserveBytes: 1_048_576 });
  const failed = ['store maintenance failed, retrying', undefined];
  const repeated = ['store failed repeatedly', 11];
  const shown = () => lines.map(({ msg, suppressed }) => [msg, suppressed]);
  await clock.advance(55_000);
  expect(shown()).toEqual([failed]);
  await clock.advance(60_000);
  expect(shown()).toEqual([failed, repeated, failed]);
});

it.each([0, 1_048_576])(
  'logs that it has migrated an older file, with a reserve of %i',
  async (reserveBytes) => {
    const path = makePath();
    const old = new DatabaseSync(path);
    migrate(old);
    old.close();
    MIGRATIONS.push('alter table job add column note text');
    onTestFinished(() => void MIGRATIONS.pop());
    const { guard, lines } = await openGuard({ path, reserveBytes });
    const versions = { from: MIGRATIONS.length - 1, to: MIGRATIONS.length };
    const line = {
      level: 30,
      msg: 'database migrated',
      ...versions,
      durationMs: expect.any(Number),
    };
    expect(lines).toMatchObject([line]);
    await guard.close();
    expect((await openGuard({ path, reserveBytes })).lines).toEqual([]);
    expect((await openGuard({ path: makePath(), reserveBytes })).lines).toEqual([]);
  },
);

it('tests a write when asked for a fault, at most once a second', async () => {
  const { clock, guard } = await openGuard({ path: makePath() });
  const first = guard.findFault();
  expect(await first).toBeUndefined();
  await clock.advance(999);
  expect(guard.findFault()).toBe(first);
  await clock.advance(1);
  const second = guard.findFault();
  expect(second).not.toBe(first);
  expect(await second).toBeUndefined();
});

it('measures the files of payloads, without those of backups, at most once a minute', async () => {
  const path = makePath();
  mkdirSync(`${path}.payloads/backup-1`, { recursive: true });
  for (const name of ['a', 'backup-1/a']) writeFileSync(`${path}.payloads/${name}`, 'abc');
  const { clock, guard } = await openGuard({ path });
  const expectBytes = (bytes: number) =>
    vi.waitFor(() => expect(guard.measure().payloads).toBe(bytes));
  await expectBytes(3);
  writeFileSync(`${path}.payloads/b`, 'abcd');
  await clock.advance(55_000);
  // A walk would have ended by then.
  await delay(50);
  expect(guard.measure().payloads).toBe(3);
  await clock.advance(5_000);
  await expectBytes(7);
  rmSync(`${path}.payloads`, { recursive: true });
  await clock.advance(60_000);
  await expectBytes(0);
});

it('erases the bytes of deleted data at most half of the configured time late', async () => {
  const { clock, guard } = await openGuard({ path: makePath(), eraseAfterMs: 2_000 });
  await clock.advance(0);
  await guard.store.write((tx) => tx.removeWorker('none', 'none'));
  await clock.advance(1_999);
  expect(guard.measure().wal).toBeGreaterThan(0);
  await clock.advance(1_001);
  await expect.poll(() => guard.measure().wal).toBe(0);
  expect(guard.measure().free).toBeGreaterThan(0);
});

it('logs that the check of an existing file was stopped at its time limit', async () => {
  const path = makePath();
  await openSqliteStore({ path }).close();
  const { clock, guard, lines } = await openGuard({ path, checkMs: 10_000 });
  await clock.advance(10_000);
  await guard.close();
  expect(lines).toMatchObject([{ level: 30, checkMs: 10_000 }]);
});

it('logs nothing about a check that was stopped because the store closes', async () => {
  const path = makePath();
  await openSqliteStore({ path }).close();
  const { guard, lines } = await openGuard({ path, checkMs: 10_000 });
  await guard.close();
  expect(lines).toEqual([]);
});
