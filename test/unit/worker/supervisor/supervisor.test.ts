// The supervisor over real processes that speak its protocol; only their work is pretended.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock, systemClock } from '../../../../src/base/clock.ts';
import { createLog, silentLog } from '../../../../src/base/log.ts';
import type { WorkerBye } from '../../../../src/wire/link/worker-link.ts';
import type { DeviceSet } from '../../../../src/worker/gpu/device-sets.ts';
import type { Keeper } from '../../../../src/worker/supervisor/keeper.ts';
import {
  Supervisor,
  type SupervisorOptions,
} from '../../../../src/worker/supervisor/supervisor.ts';
import { WorkerProcess } from '../../../../src/worker/supervisor/worker-process.ts';
import { listChildren } from '../../../support/process-tree.ts';
import { until } from '../../../support/until.ts';

const program = fileURLToPath(
  new URL('../../../support/workers/pretend-worker.js', import.meta.url),
);

function makeSet(uuid: string): DeviceSet {
  const device = { kind: 'gpu', index: 0, uuid, name: 'G', memoryBytes: 1 } as const;
  return { devices: [device], environment: {} };
}

let byes: WorkerBye[];
let launched: WorkerProcess[];
/** What the next processes do, the last one for all that follow. */
let script: string[];
let supervisor: Supervisor | undefined;

beforeEach(() => {
  byes = [];
  launched = [];
  script = [''];
});

afterEach(async () => {
  const stopped = supervisor?.stop();
  supervisor = undefined;
  for (const process of launched) process.kill();
  await Promise.all(launched.map(({ ended }) => ended));
  await stopped;
});

function supervise(options: Partial<SupervisorOptions> = {}): Supervisor {
  supervisor = new Supervisor({
    sets: [makeSet('GPU-0')],
    workerId: 'w',
    launch: (_, { incarnation = 1, workerId = 'found' }) => {
      const words = script.length > 1 ? script.shift() : script[0];
      const process_ = new WorkerProcess({
        command: [process.execPath, program, workerId, String(incarnation)],
        environment: { ...process.env, PRETEND: words },
      });
      launched.push(process_);
      return process_;
    },
    sayBye: async (bye) => {
      byes.push(bye);
    },
    readUndelivered: async () => [],
    killAfterMs: 60_000,
    clock: systemClock,
    log: silentLog,
    ...options,
  });
  supervisor.start();
  return supervisor;
}

function isRunning(pid: number): boolean {
  try {
    return !/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

function isReady(keeper: Keeper | undefined): boolean {
  return keeper?.state.name === 'running' && keeper.state.isReady;
}

function nth(index: number): WorkerProcess {
  const process = launched[index];
  if (!process) throw new Error(`process ${index} was not launched`);
  return process;
}

async function startReady(options: Partial<SupervisorOptions> = {}): Promise<Keeper> {
  const { keepers } = supervise(options);
  await until(() => keepers.every(isReady));
  const [keeper] = keepers;
  if (!keeper) throw new Error('there is no keeper');
  return keeper;
}

describe('a supervisor', () => {
  it('starts a worker for each device set and numbers the worker IDs', async () => {
    const sets = [makeSet('GPU-0'), makeSet('GPU-1')];
    await startReady({ sets });
    expect(launched.map(({ identity }) => identity?.workerId)).toEqual(['w-0', 'w-1']);
  });

  it('drains every worker when it is stopped, and then exits cleanly', async () => {
    const sets = [makeSet('GPU-0'), makeSet('GPU-1')];
    await startReady({ sets });
    await supervisor?.stop();
    expect(await supervisor?.ended).toEqual({ name: 'left', isClean: true });
    expect(await Promise.all(launched.map(({ ended }) => ended))).toEqual([
      { code: 0, signal: null },
      { code: 0, signal: null },
    ]);
    expect(byes).toEqual([]);
  });

  it('exits cleanly if a late signal ended a worker after its bye', async () => {
    script = ['late'];
    await startReady();
    await supervisor?.stop();
    expect(await supervisor?.ended).toEqual({ name: 'left', isClean: true });
    expect(byes).toEqual([]);
  });

  it('does not exit cleanly if a worker left undelivered outcomes', async () => {
    script = ['dirty'];
    await startReady();
    await supervisor?.stop();
    expect(await supervisor?.ended).toEqual({ name: 'left', isClean: false });
  });

  it('logs only the workers that do not exit cleanly while it stops', async () => {
    script = ['', 'dirty'];
    const lines: Record<string, unknown>[] = [];
    const destination = { write: (line: string) => lines.push(JSON.parse(line)) };
    await startReady({
      sets: [makeSet('GPU-0'), makeSet('GPU-1')],
      log: createLog({ destination }),
    });
    await supervisor?.stop();
    const logged = lines.filter(({ msg }) => msg === 'worker process exited during shutdown');
    expect(logged).toMatchObject([{ worker: 'w-1', pid: nth(1).pid, cause: expect.any(String) }]);
  });

  it('replaces a killed process at once, with the same worker ID and a later incarnation', async () => {
    const keeper = await startReady();
    nth(0).kill();
    await until(() => launched.length === 2 && isReady(keeper));
    const [first, second] = launched.map(({ identity }) => identity);
    expect(second?.workerId).toBe('w');
    expect(second?.incarnation).toBeGreaterThan(first?.incarnation ?? 0);
    expect(keeper.restarts).toBe(1);
  });

  it('takes the incarnation of a process from its start, not from the end of the previous process', async () => {
    const clock = new ManualClock();
    const keeper = await startReady({ clock });
    nth(0).kill();
    await until(() => launched.length === 2 && isReady(keeper));
    nth(1).kill();
    await until(() => keeper.state.name === 'waiting');
    const diedAt = clock.now();
    await clock.advance(2_000);
    await until(() => isReady(keeper));
    expect(nth(2).identity?.incarnation).toBeGreaterThan(diedAt);
  });

  it('says bye for a dead process, with the contents of its outbox', async () => {
    const left = { jobId: 'j', attempt: 1, token: 't' };
    const keeper = await startReady({ readUndelivered: async () => [left] });
    nth(0).kill();
    await until(() => launched.length === 2 && isReady(keeper));
    expect(byes).toEqual([
      {
        workerId: 'w',
        incarnation: 1,
        reason: 'crashed',
        outbox: [left],
        detail: 'ended by SIGKILL',
      },
    ]);
  });

  it('repeats a bye that did not reach the platform', async () => {
    let calls = 0;
    const sayBye = async (bye: WorkerBye) => {
      calls += 1;
      if (calls === 1) throw new Error('away');
      byes.push(bye);
    };
    await startReady({ sayBye });
    nth(0).kill();
    await until(() => byes.length === 1);
    expect(calls).toBe(2);
  });

  it('retries a failing start and gives up after several failures in a row', async () => {
    script = ['fail'];
    const clock = new ManualClock();
    const { keepers } = supervise({ startAttempts: 3, clock });
    for (const count of [1, 2]) {
      await until(() => launched.length === count && keepers[0]?.state.name === 'waiting');
      await clock.advance(2_000);
    }
    expect(await supervisor?.ended).toEqual({
      name: 'gave_up',
      reason: 'no model',
      isFinal: false,
      exitCode: undefined,
    });
    expect(launched).toHaveLength(3);
  });

  it('gives up at once if another process would fail too', async () => {
    script = ['fail-final'];
    supervise();
    expect(await supervisor?.ended).toMatchObject({ name: 'gave_up', isFinal: true });
    expect(launched).toHaveLength(1);
  });

  it('continues with the other workers when one is abandoned', async () => {
    script = ['fail-final', ''];
    const { keepers } = supervise({ sets: [makeSet('GPU-0'), makeSet('GPU-1')] });
    await until(() => keepers[0]?.state.name === 'waiting' && isReady(keepers[1]));
    expect(keepers[0]?.state).toMatchObject({ isGivenUp: true });
    expect(supervisor?.isStopping).toBe(false);
  });

  it('starts no other process for a dismissed worker, and ends', async () => {
    await startReady();
    process.kill(nth(0).pid ?? 0, 'SIGUSR2');
    expect(await supervisor?.ended).toEqual({ name: 'left', isClean: true });
    expect(launched).toHaveLength(1);
  });

  it('ends when one worker is dismissed and the other abandoned', async () => {
    const sets = [makeSet('GPU-0'), makeSet('GPU-1')];
    script = ['', 'fail-final'];
    const { keepers } = supervise({ sets });
    await until(() => isReady(keepers[0]) && keepers[1]?.state.name === 'waiting');
    process.kill(nth(0).pid ?? 0, 'SIGUSR2');
    expect(await supervisor?.ended).toMatchObject({ name: 'gave_up' });
  });

  it('exits cleanly when it is stopped before a worker has an identity', async () => {
    script = ['nobody'];
    supervise();
    await supervisor?.stop();
    expect(await nth(0).ended).toEqual({ code: null, signal: 'SIGTERM' });
    expect(await supervisor?.ended).toEqual({ name: 'left', isClean: true });
    expect(byes).toEqual([]);
  });

  it('repeats a bye only for a short time when it is stopped', async () => {
    const clock = new ManualClock();
    let calls = 0;
    const sayBye = async () => {
      calls += 1;
      throw new Error('away');
    };
    await startReady({ clock, sayBye });
    nth(0).kill();
    await until(() => calls === 1);
    await supervisor?.stop();
    expect(await supervisor?.ended).toMatchObject({ name: 'left' });
    expect(calls).toBe(2);
  });

  it('ends the leftover child processes of a worker process', async () => {
    script = ['parent', ''];
    const keeper = await startReady();
    const [child = 0] = listChildren(nth(0).pid ?? 0);
    nth(0).kill();
    await until(() => launched.length === 2 && isReady(keeper));
    await until(() => !isRunning(child));
  });

  it('replaces a worker that another program has stopped', async () => {
    const keeper = await startReady();
    process.kill(nth(0).pid ?? 0, 'SIGTERM');
    await until(() => launched.length === 2 && isReady(keeper));
    expect(byes).toEqual([]);
  });

  it('kills a process that does not exit and releases its jobs without a failure', async () => {
    script = ['stay'];
    await startReady({ killAfterMs: 20 });
    await supervisor?.stop();
    expect(await nth(0).ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(byes).toMatchObject([{ reason: 'drained', detail: 'ended by SIGKILL' }]);
    expect(await supervisor?.ended).toEqual({ name: 'left', isClean: false });
  });

  it('kills a process whose event loop is blocked', async () => {
    const clock = new ManualClock();
    const keeper = await startReady({ clock });
    process.kill(nth(0).pid ?? 0, 'SIGSTOP');
    await clock.advance(13 * 5_000);
    expect(await nth(0).ended).toEqual({ code: null, signal: 'SIGKILL' });
    await until(() => launched.length === 2 && isReady(keeper));
  });

  it('exits with an error when it is stopped between two processes and an outcome is on disk', async () => {
    script = ['', 'fail'];
    const clock = new ManualClock();
    const left = { jobId: 'j', attempt: 1, token: 't' };
    const keeper = await startReady({ clock, readUndelivered: async () => [left] });
    nth(0).kill();
    await until(() => keeper.state.name === 'waiting');
    await supervisor?.stop();
    expect(await supervisor?.ended).toEqual({ name: 'left', isClean: false });
  });
});

describe('a worker whose device is bad', () => {
  it('releases its jobs and stops, and is not replaced until the device is readmitted', async () => {
    const keeper = await startReady();
    keeper.quarantine('too hot');
    await until(() => keeper.state.name === 'quarantined');
    expect(await nth(0).ended).toEqual({ code: 0, signal: null });
    expect(keeper.activity).toBeUndefined();
    keeper.readmit();
    await until(() => isReady(keeper));
    expect(launched).toHaveLength(2);
  });

  it('counts the replacing process among the restarts', async () => {
    const keeper = await startReady();
    expect(keeper.activity?.incarnation).toBe(0);
    keeper.quarantine('too hot');
    await until(() => keeper.state.name === 'quarantined');
    keeper.readmit();
    await until(() => isReady(keeper));
    expect(keeper.activity?.incarnation).toBe(1);
    expect(keeper.restarts).toBe(1);
  });

  it('is not restarted when its device recovers if the platform has dismissed it', async () => {
    const sets = [makeSet('GPU-0'), makeSet('GPU-1')];
    const keeper = await startReady({ sets });
    process.kill(nth(0).pid ?? 0, 'SIGUSR2');
    await until(() => keeper.state.name === 'stopped');
    keeper.quarantine('too hot');
    keeper.readmit();
    expect(keeper.state.name).toBe('stopped');
    process.kill(nth(1).pid ?? 0, 'SIGUSR2');
    expect(await supervisor?.ended).toEqual({ name: 'left', isClean: true });
    expect(launched).toHaveLength(2);
  });

  it('releases its jobs without a failure, even while it is being recycled', async () => {
    script = ['deaf'];
    const keeper = await startReady({ killAfterMs: 20 });
    keeper.quarantine('too hot');
    keeper.recycle('memory');
    await until(() => keeper.state.name === 'quarantined' && byes.length === 1);
    expect(byes).toMatchObject([{ reason: 'drained' }]);
  });

  it('is readmitted while its process is still stopping', async () => {
    const keeper = await startReady();
    keeper.quarantine('too hot');
    keeper.readmit();
    await until(() => launched.length === 2 && isReady(keeper));
  });

  it('is not started if its device was bad from the start', async () => {
    const { keepers } = supervise({ sets: [] });
    expect(keepers).toEqual([]);
    const bad = new Supervisor({
      sets: [makeSet('GPU-0')],
      workerId: 'w',
      launch: () => {
        throw new Error('launched');
      },
      sayBye: async () => {},
      readUndelivered: async () => [],
      killAfterMs: 1,
      clock: systemClock,
      log: silentLog,
    });
    bad.keepers[0]?.quarantine('lost');
    bad.start();
    expect(bad.keepers[0]?.state).toEqual({ name: 'quarantined', reason: 'lost' });
    await bad.stop();
  });

  it('does not wait while the next process is due', async () => {
    script = ['fail'];
    const clock = new ManualClock();
    const { keepers } = supervise({ clock });
    const [keeper] = keepers;
    await until(() => keeper?.state.name === 'waiting');
    keeper?.quarantine('lost');
    await clock.advance(60_000);
    expect(keeper?.state).toEqual({ name: 'quarantined', reason: 'lost' });
    expect(launched).toHaveLength(1);
  });
});

describe('a recycled worker', () => {
  it('stops, and the next process starts at once', async () => {
    const keeper = await startReady();
    keeper.recycle('memory');
    await until(() => launched.length === 2 && isReady(keeper));
    expect(await nth(0).ended).toEqual({ code: 0, signal: null });
    expect(byes).toEqual([]);
  });
});

describe('a question', () => {
  it('is answered by the process', async () => {
    const keeper = await startReady();
    expect(await keeper.ask()).toMatchObject({ health: { slots: 2 } });
    expect(keeper.activity).toEqual({ incarnation: 0, running: 1, ended: 3 });
  });

  it('is not awaited when the process has ended', async () => {
    const keeper = await startReady();
    process.kill(nth(0).pid ?? 0, 'SIGSTOP');
    const answer = keeper.ask();
    nth(0).kill();
    expect(await answer).toBeUndefined();
  });
});

it('detects by its exit a process that ends before it has read its input', async () => {
  const input = 'x'.repeat(1_000_000);
  const ended = new WorkerProcess({ command: ['true'], environment: process.env, input }).ended;
  expect(await ended).toEqual({ code: 0, signal: null });
});
