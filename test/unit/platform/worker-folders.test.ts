// What is left of workers in pods, in real folders.
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { WorkerFolders } from '../../../src/platform/worker-folders.ts';
import type { LeaseRef } from '../../../src/wire/link/worker-link.ts';
import { DiskOutbox } from '../../../src/worker/outbox/disk-outbox.ts';
import { complete } from '../../conformance/outbox.ts';

const LEASE: LeaseRef = { jobId: 'job', attempt: 1, token: 'token' };

async function openFolders() {
  const path = await mkdtemp(join(tmpdir(), 'millrace-worker-folders-'));
  onTestFinished(() => rm(path, { recursive: true }));
  const warnings: string[] = [];
  const warn = (_fields: unknown, message: string) => warnings.push(message);
  const folders = new WorkerFolders({
    path,
    log: Object.assign(Object.create(silentLog), { warn }),
  });
  const place = (worker: string) => join(folders.locate('ep_a'), worker);
  const tidy = (endpoints: string[], pods: string[]) =>
    folders.tidy(() => ({ endpoints: new Set(endpoints), pods: new Set(pods) }));
  return { folders, path, place, tidy, warnings };
}

/** An outcome that its worker had no time to deliver. */
async function leaveOutcome(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const outbox = await DiskOutbox.open({ folder, clock: systemClock, log: silentLog });
  const lane = outbox.open(LEASE);
  complete(lane, '1');
  outbox.touch(lane);
  await outbox.secure();
  await outbox.end();
}

describe('folders of workers in pods', () => {
  it('say what the workers of a pod have not delivered', async () => {
    const { folders, place } = await openFolders();
    await leaveOutcome(place('pod_1-0'));
    expect(await folders.readLeft('ep_a', 'pod_1')).toEqual([LEASE]);
    expect(await folders.readLeft('ep_a', 'pod_11')).toEqual([]);
    expect(await folders.readLeft('ep_b', 'pod_1')).toEqual([]);
  });

  it('are read without waiting for a pipe and without following a link', async () => {
    const { folders, place } = await openFolders();
    await leaveOutcome(place('pod_1-0'));
    for (const name of ['pod_1-1', 'pod_1-2']) await mkdir(place(name));
    execFileSync('mkfifo', [join(place('pod_1-1'), 'outbox.journal')]);
    await symlink(
      join(place('pod_1-0'), 'outbox.journal'),
      join(place('pod_1-2'), 'outbox.journal'),
    );
    expect(await folders.readLeft('ep_a', 'pod_1')).toEqual([LEASE]);
  });

  it('go with their pod, but not before all is delivered', async () => {
    const { place, tidy } = await openFolders();
    await leaveOutcome(place('pod_left'));
    await mkdir(place('pod_gone'));
    await mkdir(place('pod_there-1'));
    await tidy(['ep_a'], ['pod_there']);
    expect(['pod_left', 'pod_gone', 'pod_there-1'].map((name) => existsSync(place(name)))).toEqual([
      true,
      false,
      true,
    ]);
  });

  it('that cannot be removed hold up no other, and are logged once', async () => {
    const { path, tidy, warnings } = await openFolders();
    // A file where a folder of workers should be cannot be listed.
    await writeFile(join(path, 'ep_a'), '');
    await mkdir(join(path, 'ep_b', 'pod_gone'), { recursive: true });
    await tidy(['ep_a', 'ep_b'], []);
    await tidy(['ep_a', 'ep_b'], []);
    expect(existsSync(join(path, 'ep_b', 'pod_gone'))).toBe(false);
    expect(warnings).toEqual(['worker folder cannot be removed']);
  });

  it('go with their endpoint, whatever is in them', async () => {
    const { folders, place, tidy } = await openFolders();
    await leaveOutcome(place('pod_left'));
    await tidy(['ep_b'], []);
    expect(existsSync(folders.locate('ep_a'))).toBe(false);
  });
});
