// Whose folder it is, with real processes beside this one where it takes two.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';
import { FolderInUseError, lockFolder } from '../../../../src/worker/outbox/folder-owner.ts';
import {
  openWorkerFolder,
  StateFolderError,
  type StateFolderOptions,
  type WorkerFolder,
} from '../../../../src/worker/outbox/state-folder.ts';
import { complete, leaseRef } from '../../../support/workers/outbox-reports.ts';

const LOCK = pathToFileURL(
  resolve(import.meta.dirname, '../../../../src/worker/outbox/folder-owner.ts'),
).href;

let stateDir: string;
let logged: string;
let named: number;
const clock = new ManualClock();
const opened: WorkerFolder[] = [];
const children: ChildProcess[] = [];

beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'millrace-state-'));
  logged = '';
  named = 0;
});

afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const folder of opened.splice(0)) await folder.close();
  rmSync(stateDir, { recursive: true });
});

async function openFolder(options: Partial<StateFolderOptions> = {}): Promise<WorkerFolder> {
  const destination = {
    write: (line: string) => {
      logged += line;
    },
  };
  const folder = await openWorkerFolder({
    stateDir,
    workerId: undefined,
    incarnation: undefined,
    endpointId: 'echo',
    createWorkerId: () => `new-${++named}`,
    clock,
    log: createLog({ destination }),
    ...options,
  });
  opened.push(folder);
  return folder;
}

/** A process that tries to lock the folder; `said` is `locked` or why not. */
async function lockElsewhere(folder: string): Promise<{ child: ChildProcess; said: string }> {
  const source = `
    import { lockFolder } from ${JSON.stringify(LOCK)};
    setInterval(() => {}, 60_000);
    lockFolder(process.argv[1]).then(() => 'locked', String).then((said) => process.stdout.write(said));
  `;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source, folder], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const [said] = await once(child.stdout, 'data');
  return { child, said: String(said) };
}

function heldBy(pid: number | undefined) {
  return { name: FolderInUseError.name, message: expect.stringContaining(`pid ${pid}`) };
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

describe('the lock of a folder', () => {
  it('belongs to one process at a time and ends with it', async () => {
    const { child, said } = await lockElsewhere(stateDir);
    expect(said).toBe('locked');
    await expect(lockFolder(stateDir)).rejects.toMatchObject(heldBy(child.pid));
    await kill(child);
    const lock = await lockFolder(stateDir);
    expect(readdirSync(stateDir)).toHaveLength(1);
    lock.release();
    expect(readdirSync(stateDir)).toEqual([]);
  });

  it('belongs also to a stopped process', async () => {
    const { child } = await lockElsewhere(stateDir);
    child.kill('SIGSTOP');
    await expect(lockFolder(stateDir)).rejects.toThrow(FolderInUseError);
  });

  it('goes to exactly one of several processes that want it at the same time', async () => {
    const tries = Array.from({ length: 6 }, () => lockFolder(stateDir));
    const got = (await Promise.allSettled(tries)).filter(({ status }) => status === 'fulfilled');
    expect(got).toHaveLength(1);
    expect(readdirSync(stateDir)).toHaveLength(1);
    for (const lock of await Promise.allSettled(tries)) {
      if (lock.status === 'fulfilled') lock.value.release();
    }
  });

  it('is released by a guest for the owner, which waits for it', async () => {
    let isWanted = false;
    const guest = await lockFolder(stateDir, {
      onWanted: () => {
        isWanted = true;
        setImmediate(() => guest.release());
      },
    });
    const owner = await lockFolder(stateDir);
    expect(isWanted).toBe(true);
    expect(readdirSync(stateDir)).toHaveLength(1);
    owner.release();
  });

  it('is refused to a guest while another process has it, and that process does not notice', async () => {
    const onWanted = () => {};
    const owner = await lockFolder(stateDir);
    await expect(lockFolder(stateDir, { onWanted })).rejects.toThrow(FolderInUseError);
    owner.release();
    let wanted = 0;
    const guest = await lockFolder(stateDir, { onWanted: () => (wanted += 1) });
    await expect(lockFolder(stateDir, { onWanted })).rejects.toThrow(FolderInUseError);
    expect(wanted).toBe(0);
    guest.release();
  });

  it.runIf(process.platform === 'linux')(
    'works even if the path is too long for a socket',
    async () => {
      const folder = join(stateDir, 'x'.repeat(150));
      mkdirSync(folder);
      const { child, said } = await lockElsewhere(folder);
      expect(said).toBe('locked');
      await expect(lockFolder(folder)).rejects.toMatchObject(heldBy(child.pid));
      await kill(child);
      (await lockFolder(folder)).release();
    },
  );
});

describe('the folder of a worker', () => {
  it('gives the next process the same worker ID and a higher incarnation', async () => {
    const first = await openFolder({ incarnation: clock.now() + 5_000 });
    await first.close();
    const second = await openFolder();
    expect(second.workerId).toBe(first.workerId);
    expect(second.incarnation).toBe(first.incarnation + 1);
  });

  it('has the time as its first incarnation', async () => {
    expect(await openFolder()).toMatchObject({ workerId: 'new-1', incarnation: clock.now() });
  });

  it('gives a later incarnation than its last one, whatever the caller asks for', async () => {
    const first = await openFolder({ workerId: 'w', incarnation: 50 });
    await first.close();
    expect((await openFolder({ workerId: 'w', incarnation: 40 })).incarnation).toBe(51);
  });

  it('is not shared: without a worker ID, the second process is a new worker', async () => {
    expect((await openFolder()).workerId).toBe('new-1');
    expect((await openFolder()).workerId).toBe('new-2');
  });

  it('is refused to a second process that asks for it by worker ID', async () => {
    await openFolder({ workerId: 'w1' });
    const refused = openFolder({ workerId: 'w1' });
    await expect(refused).rejects.toThrow(StateFolderError);
    await expect(refused).rejects.toThrow(join(stateDir, 'w1'));
    await expect(refused).rejects.toThrow(`pid ${process.pid}`);
  });

  it('is chosen first if it holds an outcome', async () => {
    for (const workerId of ['a', 'b', 'c']) {
      const folder = await openFolder({ workerId });
      if (workerId === 'b') {
        const attempt = folder.outbox.addAttempt(leaseRef('job'));
        complete(attempt);
        folder.outbox.notifyChanged(attempt);
      }
      await folder.close();
    }
    const next = await openFolder();
    expect(next.workerId).toBe('b');
    expect(next.outbox.undeliveredOnDisk()).toEqual([leaseRef('job')]);
  });

  it('is not used for another endpoint', async () => {
    await (await openFolder({ workerId: 'w1' })).close();
    const refused = openFolder({ workerId: 'w1', endpointId: 'other' });
    await expect(refused).rejects.toThrow(StateFolderError);
    await expect(refused).rejects.toThrow('echo');
    expect((await openFolder({ endpointId: 'other' })).workerId).toBe('new-1');
  });

  it('cannot be outside the state folder', async () => {
    await expect(openFolder({ workerId: '../w1' })).rejects.toThrow(StateFolderError);
  });

  it('is used with a new identity when its identity cannot be read', async () => {
    await (await openFolder({ workerId: 'w1' })).close();
    writeFileSync(join(stateDir, 'w1', 'worker.json'), '{"incar');
    expect(await openFolder({ workerId: 'w1' })).toMatchObject({ incarnation: clock.now() });
    expect(JSON.parse(readFileSync(join(stateDir, 'w1', 'worker.json'), 'utf8'))).toEqual({
      incarnation: clock.now(),
      endpointId: 'echo',
    });
  });

  it('returns its outcomes when it is not writable', async () => {
    const before = await openFolder({ workerId: 'w1' });
    const attempt = before.outbox.addAttempt(leaseRef('job'));
    complete(attempt);
    before.outbox.notifyChanged(attempt);
    await before.close();
    mkdirSync(join(stateDir, 'w1', 'worker.json.new'));
    const after = await openFolder({ workerId: 'w1' });
    expect(after.incarnation).toBeGreaterThan(before.incarnation);
    expect(after.outbox.undeliveredOnDisk()).toEqual([leaseRef('job')]);
    expect(logged).toContain('writing the state folder failed');
  });

  it('is replaced by memory if it cannot be created, with a log line', async () => {
    writeFileSync(join(stateDir, 'file'), '');
    const folder = await openFolder({ stateDir: join(stateDir, 'file'), workerId: 'w1' });
    expect(folder).toMatchObject({ workerId: 'w1', incarnation: clock.now() });
    expect(folder.outbox.diskError).toBeDefined();
    expect(logged).toContain('undelivered outcomes are in memory only');
  });
});
