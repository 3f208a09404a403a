import { afterEach, describe, expect, it } from 'vitest';
import type { KeeperState } from '../../../../src/worker/supervisor/keeper.ts';
import { addUpHealth, type KeeperView } from '../../../../src/worker/supervisor/supervisor.ts';
import { WorkerProcess } from '../../../../src/worker/supervisor/worker-process.ts';
import type { WorkerHealth } from '../../../../src/worker/worker.ts';

const started: WorkerProcess[] = [];

afterEach(async () => {
  for (const process of started) process.kill();
  await Promise.all(started.splice(0).map(({ ended }) => ended));
});

function startProcess(): WorkerProcess {
  const command = [process.execPath, '-e', 'setInterval(() => {}, 1000)'];
  const worker = new WorkerProcess({ command, environment: { ...process.env } });
  started.push(worker);
  return worker;
}

const fine: WorkerHealth = {
  ready: true,
  state: 'ready',
  slots: 2,
  running: 1,
  ended: 4,
  stuck: 0,
  outboxDepth: 3,
};

function running(ending?: 'recycle' | 'quarantine' | 'stop', isReady = true): KeeperState {
  const process = startProcess();
  return {
    name: 'running',
    process,
    startedAt: 0,
    isReady,
    ending: ending && { to: ending, reason: `to ${ending}`, cancelKill: () => {} },
  };
}

function waiting(isGivenUp: boolean): KeeperState {
  const reason = 'no model';
  const rest = { isFinal: false, exitCode: undefined, cancel: () => {} };
  return { name: 'waiting', reason, until: 1, isGivenUp, ...rest };
}

function view(state: KeeperState, health: WorkerHealth | undefined, index = 0): KeeperView {
  const uuid = `GPU-${index}`;
  const device = { kind: 'gpu', index, uuid, name: 'G', memoryBytes: 1 } as const;
  return { workerId: `w-${index}`, devices: [device], state, restarts: 0, health };
}

describe('the health of all workers of a supervisor', () => {
  it('is ready when each worker is ready, and contains their sums', () => {
    const health = addUpHealth([view(running(), fine), view(running(), fine, 1)], false);
    expect(health).toMatchObject({
      ready: true,
      state: 'running',
      slots: 4,
      running: 2,
      outboxDepth: 6,
      workers: [{ state: 'ready' }, { state: 'ready' }],
    });
    expect(health).not.toHaveProperty('reason');
  });

  it('names the worker that is not ready and the reason', () => {
    const bad = { ...fine, ready: false, reason: 'the platform does not answer takes' };
    const health = addUpHealth([view(running(), fine), view(running(), bad, 1)], false);
    expect(health).toMatchObject({
      ready: false,
      reason: 'w-1: the platform does not answer takes',
    });
  });

  it.each([
    {
      what: 'does not answer',
      state: () => running(),
      reason: 'the worker process does not respond',
    },
    {
      what: 'has just started',
      state: () => running(undefined, false),
      reason: 'starting: waiting for the process',
    },
    { what: 'waits for its restart', state: () => waiting(false), reason: 'no model' },
    { what: 'will not restart', state: () => waiting(true), reason: 'no model' },
    { what: 'is being replaced', state: () => running('recycle'), reason: 'to recycle' },
  ])('is not ready while the only worker $what', ({ reason, state }) => {
    expect(addUpHealth([view(state(), undefined)], false)).toMatchObject({ ready: false, reason });
  });

  it('shows a worker that is being replaced as draining, whatever its process reports', () => {
    const { workers } = addUpHealth([view(running('recycle'), fine)], false);
    expect(workers).toMatchObject([{ state: 'draining', reason: 'to recycle' }]);
  });

  it('is ready without workers on quarantined devices and names them', () => {
    const out: KeeperState = { name: 'quarantined', reason: 'too hot' };
    const health = addUpHealth([view(running(), fine), view(out, undefined, 1)], false);
    expect(health).toMatchObject({ ready: true, degraded: 'w-1: too hot', slots: 2 });
  });

  it('counts a worker that is leaving a bad device as out of service', () => {
    const views = [view(running(), fine), view(running('quarantine'), fine, 1)];
    expect(addUpHealth(views, false)).toMatchObject({
      ready: true,
      degraded: 'w-1: to quarantine',
    });
  });

  it('is not ready when every device is quarantined', () => {
    const out: KeeperState = { name: 'quarantined', reason: 'too hot' };
    const health = addUpHealth([view(out, undefined)], false);
    expect(health).toMatchObject({ ready: false, reason: 'all devices are quarantined' });
  });

  it('is not ready while the supervisor drains', () => {
    const health = addUpHealth([view(running(), fine)], true);
    expect(health).toMatchObject({ ready: false, reason: 'draining', state: 'draining' });
  });
});
