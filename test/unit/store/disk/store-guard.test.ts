// Maintenance of a store whose disk reserve cannot be created, and its test writes.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog, silentLog } from '../../../../src/base/log.ts';
import { StoreGuard } from '../../../../src/store/disk/store-guard.ts';

it('logs a maintenance failure that lasts once a minute, with a count', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-guard-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'millrace.db');
  // A folder in the reserve's place cannot be replaced by a file.
  mkdirSync(`${path}.reserve`);
  const lines: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(JSON.parse(String(line)));
      done();
    },
  });
  const clock = new ManualClock();
  const guard = await StoreGuard.open({
    ...{ path, clock, log: createLog({ destination }) },
    ...{ reserveBytes: 1_048_576, eraseAfterMs: 50_000, checkMs: 0 },
  });
  onTestFinished(() => guard.close());
  const failed = ['store maintenance failed, retrying', undefined];
  const repeated = ['store failed repeatedly', 11];
  const shown = () => lines.map(({ msg, suppressed }) => [msg, suppressed]);
  await clock.advance(55_000);
  expect(shown()).toEqual([failed]);
  await clock.advance(60_000);
  expect(shown()).toEqual([failed, repeated, failed]);
});

it('tests a write when asked for a fault, at most once a second', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-guard-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const clock = new ManualClock();
  const guard = await StoreGuard.open({
    ...{ path: join(folder, 'millrace.db'), clock, log: silentLog },
    ...{ reserveBytes: 0, eraseAfterMs: 50_000, checkMs: 0 },
  });
  onTestFinished(() => guard.close());
  const first = guard.findFault();
  expect(await first).toBeUndefined();
  await clock.advance(999);
  expect(guard.findFault()).toBe(first);
  await clock.advance(1);
  const second = guard.findFault();
  expect(second).not.toBe(first);
  expect(await second).toBeUndefined();
});
