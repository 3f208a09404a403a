// A million queued jobs in 10,000 groups: memory and leases a second beside the same jobs without groups.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import type { QueuedGroups } from '../support/runs/queued-groups.ts';

const jobs = Number(process.env['JOBS'] ?? 1_000_000);
const groups = jobs / 100;
const script = fileURLToPath(new URL('../support/runs/queued-groups.ts', import.meta.url));

async function measure(groupsOfRun: number): Promise<QueuedGroups> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-groups-'));
  try {
    const args = ['--expose-gc', script, folder, jobs, groupsOfRun, groups].map(String);
    const { stdout } = await promisify(execFile)(process.execPath, args);
    return JSON.parse(stdout);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

it(`keeps ${jobs} queued jobs in ${groups} groups in little more memory than without groups`, async () => {
  const plain = await measure(0);
  const grouped = await measure(groups);
  console.log(`${jobs} jobs: ${JSON.stringify({ plain, grouped })}`);
  // Each group has one lease before any has two.
  expect(grouped.groupsLeased).toBe(groups);
  // The last turns of the groups, and what the collector leaves.
  expect(grouped.leasedMb).toBeLessThan(plain.leasedMb + 100);
});
