// What is left of workers in pods, in real folders.
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { WorkerFolders } from '../../../../src/platform/compute/worker-folders.ts';
import type { LeaseRef } from '../../../../src/wire/link/worker-link.ts';
import { DiskOutbox } from '../../../../src/worker/outbox/disk-outbox.ts';
import { writeIdentity } from '../../../../src/worker/outbox/folder-owner.ts';
import { complete } from '../../../support/workers/outbox-reports.ts';

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
  const tidy = (endpoints: string[], pods: Record<string, string> = {}) =>
    folders.tidy(() => ({ endpoints: new Set(endpoints), pods: new Map(Object.entries(pods)) }));
  /** As a worker makes it at its start. */
  const add = async (worker: string, podId?: string, endpointId = 'ep_a') => {
    await mkdir(place(worker), { recursive: true });
    writeIdentity(place(worker), { incarnation: 1, endpointId, podId });
  };
  return { add, folders, path, place, tidy, warnings };
}

/** An outcome that its worker had no time to deliver. */
async function leaveOutcome(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const outbox = await DiskOutbox.open({ folder, clock: systemClock, log: silentLog });
  const attempt = outbox.addAttempt(LEASE);
  complete(attempt, '1');
  outbox.notifyChanged(attempt);
  await outbox.flush();
  await outbox.close();
}

describe('folders of workers in pods', () => {
  it('show undelivered outcomes of a worker', async () => {
    const { folders, place } = await openFolders();
    await leaveOutcome(place('w-0'));
    expect(await folders.readLeft('ep_a', 'w-0')).toEqual([LEASE]);
    expect(await folders.readLeft('ep_a', 'w')).toEqual([]);
    expect(await folders.readLeft('ep_b', 'w-0')).toEqual([]);
  });

  it('are read without waiting for a pipe and without following a link', async () => {
    const { add, folders, place, tidy } = await openFolders();
    await leaveOutcome(place('w-0'));
    await add('w-0', 'pod_1');
    for (const name of ['w-1', 'w-2']) {
      await mkdir(place(name));
      for (const file of ['outbox.journal', 'worker.json']) {
        if (name === 'w-1') execFileSync('mkfifo', [join(place(name), file)]);
        else await symlink(join(place('w-0'), file), join(place(name), file));
      }
      expect(await folders.readLeft('ep_a', name)).toEqual([]);
    }
    await tidy(['ep_a']);
    expect(await readdir(folders.locate('ep_a'))).toEqual(['w-0']);
  });

  it('are removed with their pod once all outcomes are delivered', async () => {
    const { add, folders, place, tidy } = await openFolders();
    await leaveOutcome(place('left'));
    await add('left', 'pod_gone');
    await add('pod_there-1', 'pod_gone');
    await add('there', 'pod_there');
    await tidy(['ep_a'], { pod_there: 'ep_a' });
    expect(await readdir(folders.locate('ep_a'))).toEqual(['left', 'there']);
  });

  it('are removed without a pod when the endpoint has no pod', async () => {
    const { add, folders, place, tidy } = await openFolders();
    await add('old');
    await mkdir(place('new'));
    await tidy(['ep_a'], { pod_there: 'ep_a' });
    expect(await readdir(folders.locate('ep_a'))).toEqual(['new', 'old']);
    await tidy(['ep_a'], { pod_there: 'ep_b' });
    expect(await readdir(folders.locate('ep_a'))).toEqual([]);
  });

  it('are logged once if they cannot be removed, and delay no other', async () => {
    const { path, tidy, warnings } = await openFolders();
    // A file where a folder of workers should be cannot be listed.
    await writeFile(join(path, 'ep_a'), '');
    await mkdir(join(path, 'ep_b', 'pod_gone'), { recursive: true });
    await tidy(['ep_a', 'ep_b']);
    await tidy(['ep_a', 'ep_b']);
    expect(existsSync(join(path, 'ep_b', 'pod_gone'))).toBe(false);
    expect(warnings).toEqual(['worker folder cannot be removed']);
  });

  it('are removed with their endpoint, whatever they contain', async () => {
    const { folders, place, tidy } = await openFolders();
    await leaveOutcome(place('pod_left'));
    await tidy(['ep_b']);
    expect(existsSync(folders.locate('ep_a'))).toBe(false);
  });
});
