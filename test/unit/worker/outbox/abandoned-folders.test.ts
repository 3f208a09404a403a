// Delivers from real folders, over a scripted link.
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock, systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { LinkError } from '../../../../src/wire/link/worker-link.ts';
import {
  AbandonedFolders,
  type AbandonedFoldersOptions,
} from '../../../../src/worker/outbox/abandoned-folders.ts';
import { readUndelivered } from '../../../../src/worker/outbox/outbox-entries.ts';
import {
  openWorkerFolder,
  type StateFolderOptions,
  type WorkerFolder,
} from '../../../../src/worker/outbox/state-folder.ts';
import { complete, leaseRef } from '../../../support/workers/outbox-reports.ts';
import { ScriptedLink } from '../../../support/workers/worker-script.ts';

let stateDir: string;
let link: ScriptedLink & { close(): Promise<void> };
const opened: { close(): Promise<void> }[] = [];

beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'millrace-abandoned-'));
  link = Object.assign(new ScriptedLink(), { close: async () => {} });
});

afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
  rmSync(stateDir, { recursive: true });
});

async function openFolder(
  workerId: string,
  options: Partial<StateFolderOptions> = {},
): Promise<WorkerFolder> {
  return openWorkerFolder({
    ...{ stateDir, workerId, incarnation: undefined, endpointId: 'echo' },
    ...{ createWorkerId: () => workerId, clock: systemClock, log: silentLog },
    ...options,
  });
}

/** A worker has ended these jobs without delivering their outcomes, and its process is gone. */
async function abandon(
  workerId: string,
  jobIds: string[],
  options: Partial<StateFolderOptions> = {},
): Promise<void> {
  const { outbox, close } = await openFolder(workerId, options);
  for (const jobId of jobIds) {
    const attempt = outbox.addAttempt(leaseRef(jobId));
    complete(attempt);
    outbox.notifyChanged(attempt);
  }
  await outbox.flush();
  await close();
}

function start(options: Partial<AbandonedFoldersOptions> = {}): AbandonedFolders {
  const folders = new AbandonedFolders({
    ...{ stateDir, endpointId: 'echo', workerId: 'own', version: '1', devices: [] },
    ...{ openLink: async () => link, clock: systemClock, log: silentLog },
    ...options,
  });
  opened.push(folders);
  folders.start();
  return folders;
}

const readLeft = (workerId: string) => readUndelivered(join(stateDir, workerId));
const listByes = () => link.byes.map(({ workerId }) => workerId);

describe('abandoned folders', () => {
  it('have their outcomes delivered under the ID of their worker', async () => {
    await abandon('a', ['job-a']);
    await abandon('b', ['job-b', 'job-c']);
    start();
    await expect.poll(() => listByes()).toEqual(['b', 'a']);
    expect(link.hellos.map(({ workerId }) => workerId)).toEqual(['b', 'a']);
    expect(link.reported).toEqual(['job-b#1 completed', 'job-c#1 completed', 'job-a#1 completed']);
    await opened[0]?.close();
    expect([await readLeft('a'), await readLeft('b')]).toEqual([[], []]);
    expect(existsSync(join(stateDir, 'a'))).toBe(true);
  });

  it('are not those of this worker, of another endpoint, or without outcomes', async () => {
    await abandon('own', ['job-own']);
    await abandon('foreign', ['job-foreign'], { endpointId: 'another' });
    await abandon('empty', []);
    await abandon('a', ['job-a']);
    start();
    await expect.poll(() => listByes()).toEqual(['a']);
    await opened[0]?.close();
    expect(link.reported).toEqual(['job-a#1 completed']);
    expect([...(await readLeft('own')), ...(await readLeft('foreign'))]).toEqual([
      leaseRef('job-own'),
      leaseRef('job-foreign'),
    ]);
  });

  it('are reported and removed for other pods if the state folder is exclusive to a pod', async () => {
    await abandon('sibling', [], { podId: 'this-pod' });
    await abandon('empty', [], { podId: 'old-pod' });
    await abandon('a', ['job-a'], { podId: 'old-pod' });
    start({ podId: 'this-pod', isExclusiveToPod: true });
    await expect.poll(() => listByes()).toEqual(['a', 'empty']);
    await opened[0]?.close();
    const remaining = ['sibling', 'empty', 'a'].filter((id) => existsSync(join(stateDir, id)));
    expect(remaining).toEqual(['sibling']);
  });

  it('are delivered from although the worker of another folder keeps it', async () => {
    await abandon('a', ['job-a']);
    await abandon('b', ['job-b', 'job-c']);
    opened.push(await openFolder('b'));
    const clock = new ManualClock();
    start({ clock });
    const listAll = async () => {
      await clock.advance(1_000);
      return listByes();
    };
    await expect.poll(listAll).toEqual(['a']);
  });

  it('go back to their worker when it runs again', async () => {
    await abandon('a', ['job-a']);
    link.onReport = () => Promise.reject(new LinkError('unavailable', 'not now'));
    start();
    await expect.poll(() => link.reportCalls.length).toBeGreaterThan(0);
    const folder = await openFolder('a');
    opened.push(folder);
    expect(folder.outbox.undeliveredOnDisk()).toEqual([leaseRef('job-a')]);
  });
});
