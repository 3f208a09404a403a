import { describe, expect, it } from 'vitest';
import {
  judgePing,
  mayServe,
  type PingHealth,
  type PingResult,
  PodTargets,
} from '../../../../src/control/balancing/balanced-worker.ts';
import type { PodState } from '../../../../src/control/pods/pod-state.ts';
import type { Container } from '../../../../src/engine/engine.ts';
import { states } from '../../../support/containers/pod-states.ts';

const running = states.running;
const worker: PodState = {
  ...running,
  endpointId: 'ep_1',
  spec: { ...running.spec, ports: ['22/tcp', '8000/http', '9000/http'] },
};
const seen: Container = {
  ...{ id: 'pod_1', generation: 2, labels: {}, state: 'running', health: 'none' },
  ...{
    hasDiskLimit: false,
    exitCode: null,
    outOfMemory: false,
    startedAt: 1,
    endedAt: null,
    gpus: [],
    ip: null,
  },
  ports: [
    { private: 9_000, public: 41_009, type: 'http', ip: '127.0.0.1' },
    { private: 22, public: 41_022, type: 'tcp', ip: '127.0.0.1' },
    { private: 8_000, public: 41_008, type: 'http', ip: '127.0.0.1' },
  ],
};

function find(pod: PodState, container: Container | undefined) {
  const targets = new PodTargets({
    ...{ all: () => [pod], get: () => pod, seen: () => container, onChange: () => () => {} },
  });
  expect(targets.all()).toEqual([targets.find('pod_1') ?? []].flat());
  return targets.find('pod_1');
}

describe('the target of a worker', () => {
  it('is the address of its first HTTP port', () => {
    expect(find(worker, seen)).toEqual({
      ...{ endpointId: 'ep_1', podId: 'pod_1', ip: '127.0.0.1', port: 41_008, isLeaving: false },
    });
  });

  it('is undefined for a pod without an endpoint or an HTTP port', () => {
    expect(find({ ...worker, endpointId: null }, seen)).toBeUndefined();
    expect(find({ ...worker, spec: { ...worker.spec, ports: ['22/tcp'] } }, seen)).toBeUndefined();
  });

  it('is undefined while its container does not run or has no port', () => {
    expect(find(worker, undefined)).toBeUndefined();
    expect(find(worker, { ...seen, state: 'exited', ports: [] })).toBeUndefined();
    expect(find(worker, { ...seen, ports: [] })).toBeUndefined();
  });

  it('is leaving when the pod stops or its container is outdated', () => {
    expect(find({ ...worker, desired: 'gone' }, seen)?.isLeaving).toBe(true);
    expect(find({ ...worker, desired: 'stopped' }, seen)?.isLeaving).toBe(true);
    expect(find({ ...worker, generation: 3 }, seen)?.isLeaving).toBe(true);
  });
});

const AFTER: Record<PingHealth, Record<PingResult, PingHealth>> = {
  starting: { ready: 'ready', starting: 'starting', failed: 'starting' },
  ready: { ready: 'ready', starting: 'starting', failed: 'missed' },
  missed: { ready: 'ready', starting: 'starting', failed: 'out' },
  out: { ready: 'ready', starting: 'starting', failed: 'out' },
};

describe('the health of a worker', () => {
  it.each(Object.entries(AFTER))('follows after %s from the ping', (health, after) => {
    for (const [result, expected] of Object.entries(after)) {
      expect([result, judgePing(health as PingHealth, result as PingResult)]).toEqual([
        ...[result, expected],
      ]);
    }
  });

  it('allows requests while it is ready and after one lost ping', () => {
    const serving = (Object.keys(AFTER) as PingHealth[]).filter(mayServe);
    expect(serving).toEqual(['ready', 'missed']);
  });
});
