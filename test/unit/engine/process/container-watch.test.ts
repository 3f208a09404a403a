// What is looked at while containers run; which end is told of is in the engines' conformance suite.
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { readProcess } from '../../../../src/base/process/process-table.ts';
import { ContainerWatch, MAX_LOG_BYTES } from '../../../../src/engine/process/container-watch.ts';
import { until } from '../../../support/until.ts';

function identifyThis() {
  const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return { pid: process.pid, startTicks: readProcess(process.pid)?.startTicks ?? '', bootId };
}

it('truncates a log that is too long at the next poll', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-watch-'));
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const watch = new ContainerWatch({ listRunning: async () => [], log: silentLog });
  onTestFinished(() => {
    watch.close();
    vi.useRealTimers();
    rmSync(folder, { recursive: true });
  });
  const printed = join(folder, 'log');
  writeFileSync(printed, Buffer.alloc(MAX_LOG_BYTES + 1, 'a'));
  watch.listen(() => {});
  watch.add({ id: 'pod_a', leader: identifyThis(), printed }, undefined);
  vi.advanceTimersByTime(250);
  await until(() => existsSync(`${printed}.1`));
  expect(statSync(printed).size).toBe(0);
});
