// Every action in every state, and every sight in every state: what becomes of the pod and what is to be
// done next, by table.
import { describe, expect, it } from 'vitest';
import {
  act,
  decideStep,
  giveGpus,
  giveUp,
  listActions,
  observe,
  recreate,
  settleRemoval,
  terminate,
} from '../../../../src/control/pods/pod-lifecycle.ts';
import { POD_ACTIONS, type PodAction } from '../../../../src/wire/resources/pod.ts';
import {
  describeChange,
  describeStep,
  NOW,
  type SightName,
  type StateName,
  sights,
  states,
} from '../../../support/containers/pod-states.ts';

const expectedOfSights: Record<StateName, Record<SightName, string>> = {
  provisioning: {
    nothing: 'PROVISIONING, end known → create',
    olderRunning: 'PROVISIONING, end known → stop',
    olderExited: 'PROVISIONING, end known → remove',
    created: 'STARTING → start',
    running: 'RUNNING, started → none',
    healthy: 'RUNNING, started → none',
    checking: 'STARTING, started → none',
    unhealthy: 'STARTING, started, says why → none',
    endedBefore: 'STARTING → start',
    endedWell: 'EXITED, to be stopped, end known, started → none',
    crashed: 'STARTING, end known, failures 1, wait 1000, started, says why → wait 1000',
    outOfMemory: 'STARTING, end known, failures 1, wait 1000, started, says why → wait 1000',
  },
  waitingForGpu: {
    nothing: 'PROVISIONING, end known → allot',
    olderRunning: 'PROVISIONING, end known → stop',
    olderExited: 'PROVISIONING, end known → remove',
    created: 'same → allot',
    running: 'RUNNING, started → none',
    healthy: 'RUNNING, started → none',
    checking: 'STARTING, started → none',
    unhealthy: 'STARTING, started, says why → none',
    endedBefore: 'same → allot',
    endedWell: 'EXITED, to be stopped, end known, started → none',
    crashed: 'STARTING, end known, failures 1, wait 1000, started, says why → wait 1000',
    outOfMemory: 'STARTING, end known, failures 1, wait 1000, started, says why → wait 1000',
  },
  provisioningGpu: {
    nothing: 'PROVISIONING, end known → create',
    olderRunning: 'PROVISIONING, end known → stop',
    olderExited: 'PROVISIONING, end known → remove',
    created: 'STARTING → start',
    running: 'RUNNING, started → none',
    healthy: 'RUNNING, started → none',
    checking: 'STARTING, started → none',
    unhealthy: 'STARTING, started, says why → none',
    endedBefore: 'STARTING → start',
    endedWell: 'EXITED, to be stopped, end known, gives GPUs back, started → none',
    crashed: 'STARTING, end known, failures 1, wait 1000, started, says why → wait 1000',
    outOfMemory: 'STARTING, end known, failures 1, wait 1000, started, says why → wait 1000',
  },
  starting: {
    nothing: 'STARTING, end known → create',
    olderRunning: 'STARTING, end known → stop',
    olderExited: 'STARTING, end known → remove',
    created: 'same → start',
    running: 'RUNNING, started → none',
    healthy: 'RUNNING, started → none',
    checking: 'STARTING, started → none',
    unhealthy: 'STARTING, started, says why → none',
    endedBefore: 'same → start',
    endedWell: 'EXITED, to be stopped, end known, started → none',
    crashed: 'STARTING, end known, failures 1, wait 1000, started, says why → wait 1000',
    outOfMemory: 'STARTING, end known, failures 1, wait 1000, started, says why → wait 1000',
  },
  restartsLater: {
    nothing: 'STARTING, end known → wait 500',
    olderRunning: 'STARTING, end known → stop',
    olderExited: 'STARTING, end known → remove',
    created: 'same → wait 500',
    running: 'RUNNING, no wait, started, hush → none',
    healthy: 'RUNNING, no wait, started, hush → none',
    checking: 'STARTING, no wait, started → none',
    unhealthy: 'STARTING, no wait, started, says why → none',
    endedBefore: 'same → wait 500',
    endedWell: 'EXITED, to be stopped, end known, failures 0, no wait, started, hush → none',
    crashed: 'STARTING, end known, failures 2, wait 2000, started, says why → wait 2000',
    outOfMemory: 'STARTING, end known, failures 2, wait 2000, started, says why → wait 2000',
  },
  restartsNow: {
    nothing: 'STARTING, end known → create',
    olderRunning: 'STARTING, end known → stop',
    olderExited: 'STARTING, end known → remove',
    created: 'same → start',
    running: 'RUNNING, no wait, started, hush → none',
    healthy: 'RUNNING, no wait, started, hush → none',
    checking: 'STARTING, no wait, started → none',
    unhealthy: 'STARTING, no wait, started, says why → none',
    endedBefore: 'same → start',
    endedWell: 'EXITED, to be stopped, end known, failures 0, no wait, started, hush → none',
    crashed: 'STARTING, end known, failures 2, wait 2000, started, says why → wait 2000',
    outOfMemory: 'STARTING, end known, failures 2, wait 2000, started, says why → wait 2000',
  },
  startingWhileStopping: {
    nothing: 'STARTING, stopped, end known → create',
    olderRunning: 'STARTING, stopped, end known → stop',
    olderExited: 'STARTING, stopped, end known → remove',
    created: 'STARTING, stopped → start',
    running: 'same → stop',
    healthy: 'same → stop',
    checking: 'same → stop',
    unhealthy: 'same → stop',
    endedBefore: 'STARTING, stopped → start',
    endedWell: 'STARTING, stopped, end known → start',
    crashed: 'STARTING, stopped, end known → start',
    outOfMemory: 'STARTING, stopped, end known → start',
  },
  running: {
    nothing: 'STARTING, end known, not started, says why → create',
    olderRunning: 'STARTING, end known, not started, says why → stop',
    olderExited: 'STARTING, end known, not started, says why → remove',
    created: 'STARTING → start',
    running: 'same → none',
    healthy: 'same → none',
    checking: 'STARTING → none',
    unhealthy: 'STARTING, says why → none',
    endedBefore: 'STARTING → start',
    endedWell: 'EXITED, to be stopped, end known → none',
    crashed: 'STARTING, end known, failures 1, wait 1000, says why → wait 1000',
    outOfMemory: 'STARTING, end known, failures 1, wait 1000, says why → wait 1000',
  },
  runningGpu: {
    nothing: 'STARTING, end known, not started, says why → create',
    olderRunning: 'STARTING, end known, not started, says why → stop',
    olderExited: 'STARTING, end known, not started, says why → remove',
    created: 'STARTING → start',
    running: 'same → none',
    healthy: 'same → none',
    checking: 'STARTING → none',
    unhealthy: 'STARTING, says why → none',
    endedBefore: 'STARTING → start',
    endedWell: 'EXITED, to be stopped, end known, gives GPUs back → none',
    crashed: 'STARTING, end known, failures 1, wait 1000, says why → wait 1000',
    outOfMemory: 'STARTING, end known, failures 1, wait 1000, says why → wait 1000',
  },
  failedTwice: {
    nothing: 'STARTING, end known, not started, says why → create',
    olderRunning: 'STARTING, end known, not started, says why → stop',
    olderExited: 'STARTING, end known, not started, says why → remove',
    created: 'STARTING → start',
    running: 'same → none',
    healthy: 'same → none',
    checking: 'STARTING → none',
    unhealthy: 'STARTING, says why → none',
    endedBefore: 'STARTING → start',
    endedWell: 'EXITED, to be stopped, end known, failures 0 → none',
    crashed: 'ERROR, to be stopped, end known, failures 3, says why → none',
    outOfMemory: 'ERROR, to be stopped, end known, failures 3, says why → none',
  },
  stopping: {
    nothing: 'EXITED, stopped, gives GPUs back → none',
    olderRunning: 'EXITED, stopped → stop',
    olderExited: 'EXITED, stopped, gives GPUs back → remove',
    created: 'EXITED, stopped, gives GPUs back → none',
    running: 'same → stop',
    healthy: 'same → stop',
    checking: 'same → stop',
    unhealthy: 'same → stop',
    endedBefore: 'EXITED, stopped, gives GPUs back → none',
    endedWell: 'EXITED, stopped, end known, gives GPUs back → none',
    crashed: 'EXITED, stopped, end known, gives GPUs back → none',
    outOfMemory: 'EXITED, stopped, end known, gives GPUs back → none',
  },
  exited: {
    nothing: 'same → none',
    olderRunning: 'same → stop',
    olderExited: 'same → remove',
    created: 'same → none',
    running: 'same → stop',
    healthy: 'same → stop',
    checking: 'same → stop',
    unhealthy: 'same → stop',
    endedBefore: 'same → none',
    endedWell: 'EXITED, end known → none',
    crashed: 'EXITED, end known → none',
    outOfMemory: 'EXITED, end known → none',
  },
  error: {
    nothing: 'same → none',
    olderRunning: 'same → stop',
    olderExited: 'same → remove',
    created: 'same → none',
    running: 'same → stop',
    healthy: 'same → stop',
    checking: 'same → stop',
    unhealthy: 'same → stop',
    endedBefore: 'same → none',
    endedWell: 'ERROR, end known → none',
    crashed: 'ERROR, end known → none',
    outOfMemory: 'ERROR, end known → none',
  },
  terminated: {
    nothing: 'TERMINATED, gives GPUs back → remove all',
    olderRunning: 'same → stop',
    olderExited: 'TERMINATED, gives GPUs back → remove all',
    created: 'TERMINATED, gives GPUs back → remove all',
    running: 'same → stop',
    healthy: 'same → stop',
    checking: 'same → stop',
    unhealthy: 'same → stop',
    endedBefore: 'TERMINATED, gives GPUs back → remove all',
    endedWell: 'TERMINATED, end known, gives GPUs back → remove all',
    crashed: 'TERMINATED, end known, gives GPUs back → remove all',
    outOfMemory: 'TERMINATED, end known, gives GPUs back → remove all',
  },
  removed: {
    nothing: 'same → none',
    olderRunning: 'same → stop',
    olderExited: 'same → remove all',
    created: 'same → remove all',
    running: 'same → stop',
    healthy: 'same → stop',
    checking: 'same → stop',
    unhealthy: 'same → stop',
    endedBefore: 'same → remove all',
    endedWell: 'TERMINATED, end known → remove all',
    crashed: 'TERMINATED, end known → remove all',
    outOfMemory: 'TERMINATED, end known → remove all',
  },
};

const expectedOfActions: Record<StateName, Partial<Record<PodAction, string>>> = {
  provisioning: { stop: 'EXITED, to be stopped, stopping', terminate: 'TERMINATED, to be gone' },
  waitingForGpu: { stop: 'EXITED, to be stopped, stopping', terminate: 'TERMINATED, to be gone' },
  provisioningGpu: { stop: 'EXITED, to be stopped, stopping', terminate: 'TERMINATED, to be gone' },
  starting: { stop: 'EXITED, to be stopped, stopping', terminate: 'TERMINATED, to be gone' },
  restartsLater: {
    stop: 'EXITED, to be stopped, stopping, failures 0, no wait, hush',
    terminate: 'TERMINATED, to be gone, failures 0, no wait, hush',
  },
  restartsNow: {
    stop: 'EXITED, to be stopped, stopping, failures 0, no wait, hush',
    terminate: 'TERMINATED, to be gone, failures 0, no wait, hush',
  },
  startingWhileStopping: { stop: 'EXITED, to be stopped', terminate: 'TERMINATED, to be gone' },
  running: {
    stop: 'EXITED, to be stopped, stopping',
    restart: 'STARTING, new container, end known, not started',
    terminate: 'TERMINATED, to be gone',
  },
  runningGpu: {
    stop: 'EXITED, to be stopped, stopping',
    restart: 'STARTING, new container, end known, not started',
    terminate: 'TERMINATED, to be gone',
  },
  failedTwice: {
    stop: 'EXITED, to be stopped, stopping, failures 0',
    restart: 'STARTING, new container, end known, failures 0, not started',
    terminate: 'TERMINATED, to be gone, failures 0',
  },
  stopping: { start: 'STARTING, to be running', terminate: 'TERMINATED, to be gone' },
  exited: { start: 'STARTING, to be running', terminate: 'TERMINATED, to be gone' },
  error: { start: 'STARTING, to be running, hush', terminate: 'TERMINATED, to be gone, hush' },
  terminated: {},
  removed: {},
};

const stateNames = Object.keys(states).filter((name): name is StateName => name in states);
const sightNames = Object.keys(sights).filter((name): name is SightName => name in sights);

function lock(name: StateName) {
  return { ...states[name], spec: { ...states[name].spec, locked: true } };
}

describe('an observation', () => {
  for (const state of stateNames) {
    it.each(sightNames)(`of a pod that is ${state}: %s`, (sight) => {
      const before = states[state];
      const after = observe(before, sights[sight], NOW);
      const step = decideStep(after, sights[sight], NOW);
      const outcome = `${describeChange(before, after)} → ${describeStep(step)}`;
      expect(outcome).toBe(expectedOfSights[state][sight]);
    });

    it.each(sightNames)(
      `settles within two observations of a pod that is ${state}: %s`,
      (sight) => {
        const once = observe(states[state], sights[sight], NOW);
        const twice = observe(once, sights[sight], NOW);
        expect(observe(twice, sights[sight], NOW)).toBe(twice);
      },
    );
  }

  it('makes a pod RUNNING only if its container runs and is not unhealthy', () => {
    for (const state of stateNames) {
      for (const sight of sightNames) {
        const { status } = observe(states[state], sights[sight], NOW);
        if (status !== 'RUNNING') continue;
        expect(sights[sight]).toMatchObject({ state: 'running', generation: 2 });
        expect(['none', 'healthy']).toContain(sights[sight]?.health);
      }
    }
  });

  it('resets the failures after a run of a minute', () => {
    const seen = { ...sights.running, startedAt: NOW - 60_000 };
    expect(observe(states.failedTwice, seen, NOW - 1).failures).toBe(2);
    expect(observe(states.failedTwice, seen, NOW).failures).toBe(0);
  });

  it('counts a failure after a run of a minute as the first, even if the run was not observed', () => {
    const seen = { ...sights.crashed, startedAt: NOW - 61_000, endedAt: NOW - 1_000 };
    expect(observe(states.failedTwice, seen, NOW)).toMatchObject({
      status: 'STARTING',
      failures: 1,
    });
    const short = { ...seen, endedAt: NOW - 1_001 };
    expect(observe(states.failedTwice, short, NOW)).toMatchObject({ status: 'ERROR', failures: 3 });
  });

  it('is no failure of the pod if a machine ends the container, and the pod starts again at once', () => {
    const leaving = 'its node is drained';
    const announced = observe(states.failedTwice, { ...sights.running, leaving }, NOW);
    expect(announced).toMatchObject({ status: 'RUNNING', leaving, reason: leaving });
    // The cluster has given it up.
    const stays = observe(announced, sights.running, NOW);
    expect(stays).toMatchObject({ status: 'RUNNING', reason: null });
    expect(stays).not.toHaveProperty('leaving');
    const ended = observe(announced, { ...sights.crashed, leaving }, NOW);
    expect(ended).toMatchObject({ status: 'STARTING', failures: 2, retryAt: null });
    expect(decideStep(ended, sights.crashed, NOW)).toEqual({ kind: 'start' });
    const gone = observe(announced, undefined, NOW);
    expect(gone).toMatchObject({ status: 'STARTING', reason: expect.stringContaining(leaving) });
    expect(gone).not.toHaveProperty('leaving');
    expect(decideStep(gone, undefined, NOW)).toEqual({ kind: 'create' });
  });

  it('ends the worker if a machine ends its container', () => {
    const leaving = 'its node is drained';
    const worker = { ...states.runningGpu, endpointId: 'ep_1' };
    const announced = observe(worker, { ...sights.running, leaving }, NOW);
    for (const seen of [undefined, { ...sights.crashed, leaving }]) {
      const ended = observe(announced, seen, NOW);
      expect(ended).toMatchObject({ status: 'EXITED', desired: 'stopped', gpus: [], leaving });
      expect(decideStep(ended, seen, NOW)).toEqual({ kind: 'none' });
    }
  });

  it('binds a restarting pod to the GPUs of its container', () => {
    const seen = { ...sights.created, gpus: ['g7'] };
    expect(decideStep(states.waitingForGpu, seen, NOW)).toEqual({ kind: 'allot', among: ['g7'] });
  });
});

function conflict(condition: string) {
  const message = expect.stringContaining(condition);
  return expect.objectContaining({ code: 'conflict', message });
}

describe('an action', () => {
  for (const state of stateNames) {
    it.each(POD_ACTIONS)(`on a pod that is ${state}: %s`, (action) => {
      const pod = states[state];
      const expected = expectedOfActions[state][action];
      expect(listActions(pod).includes(action)).toBe(expected !== undefined);
      if (expected === undefined) {
        expect(() => act(pod, action, NOW)).toThrow(conflict(pod.status));
      } else {
        expect(describeChange(pod, act(pod, action, NOW))).toBe(expected);
      }
    });

    it.each(POD_ACTIONS)(`on a locked pod that is ${state}: %s`, (action) => {
      const pod = lock(state);
      const expected = action === 'start' ? expectedOfActions[state].start : undefined;
      expect(listActions(pod).includes(action)).toBe(expected !== undefined);
      if (expected !== undefined) {
        expect(describeChange(pod, act(pod, action, NOW))).toBe(expected);
        return;
      }
      const isLocked = expectedOfActions[state][action] !== undefined;
      expect(() => act(pod, action, NOW)).toThrow(conflict(isLocked ? 'locked' : pod.status));
    });
  }

  it('start waits for GPUs if the pod has none, and keeps those that it has not released', () => {
    const given = observe(states.stopping, sights.endedWell, NOW);
    expect(act(given, 'start', NOW).status).toBe('PROVISIONING');
    expect(act(states.stopping, 'start', NOW)).toMatchObject({ status: 'STARTING', gpus: ['g1'] });
  });
});

describe('the platform itself', () => {
  it('ends a locked pod, and an ended pod only once', () => {
    const ended = terminate(lock('running'), NOW);
    expect(ended).toMatchObject({ status: 'TERMINATED', desired: 'gone', endedAt: NOW });
    expect(terminate(ended, NOW + 1)).toBe(ended);
  });

  it('recreates a running pod and keeps a stopped pod stopped', () => {
    const spec = { ...states.running.spec, args: 'other' };
    expect(recreate(states.running, spec)).toMatchObject({
      status: 'STARTING',
      generation: 3,
      spec,
    });
    expect(recreate(states.exited, spec)).toMatchObject({ status: 'EXITED', generation: 3, spec });
    const waiting = recreate(states.provisioning, spec);
    expect(waiting).toMatchObject({ status: 'PROVISIONING', generation: 3, spec });
  });

  it('abandons only pods that should run', () => {
    const given = giveUp(states.starting, 'no such image', NOW);
    expect(given).toMatchObject({ status: 'ERROR', desired: 'stopped', reason: 'no such image' });
    expect(giveUp(states.exited, 'no such image', NOW)).toBe(states.exited);
    expect(giveUp(states.terminated, 'no such image', NOW)).toBe(states.terminated);
  });

  it('assigns GPUs only to pods that wait for them', () => {
    expect(giveGpus(states.waitingForGpu, ['g2']).gpus).toEqual(['g2']);
    for (const name of ['provisioningGpu', 'provisioning', 'terminated'] as const) {
      expect(giveGpus(states[name], ['g2'])).toBe(states[name]);
    }
  });

  it('settles only the removal of a pod that must be removed', () => {
    expect(settleRemoval(states.terminated)).toMatchObject({ removed: true, gpus: [] });
    expect(settleRemoval(states.exited)).toBe(states.exited);
  });
});
