// WorkerList: the states, crashes and ends that it derives from pods and connected workers.
import { describe, expect, it } from 'vitest';
import type { PodState } from '../../../../src/control/pods/pod-state.ts';
import type { SeenWorker } from '../../../../src/control/scaling/work-view.ts';
import { findLastOutput } from '../../../../src/control/scaling/worker-ends.ts';
import {
  type Crashes,
  type PassInput,
  WorkerList,
} from '../../../../src/control/scaling/worker-list.ts';
import { states } from '../../../support/containers/pod-states.ts';

const OPENED = 1_000_000;
const SILENT_MS = 30_000;
const TIMEOUT_MS = 20_000;

const podOf = (state: PodState, changes: Partial<PodState> = {}): PodState => ({
  ...{ ...state, createdAt: OPENED, endpointId: 'ep_1' },
  ...changes,
});
const running = podOf(states.running, { startedAt: OPENED });
const exited = podOf(states.exited);
const failed = podOf(states.restartsLater, {
  reason: 'it exited with code 1; it restarts',
});

function openList(crashes?: Crashes) {
  const workerList = new WorkerList({ openedAt: OPENED, silentMs: SILENT_MS, crashes });
  let now = OPENED;
  const observe = (pods: PodState[], seen: Partial<SeenWorker>[] = [], changes = {}) => {
    const given: PassInput = {
      ...{ now, pods, type: 'QUEUE', executionTimeoutMs: TIMEOUT_MS, isCurrent: () => true },
      seen: seen.map((worker) => ({
        podId: 'pod_1',
        jobs: 0,
        taken: 0,
        draining: false,
        ...worker,
      })),
      ...changes,
    };
    return workerList.observe(given);
  };
  const pass = (ms: number) => {
    now += ms;
  };
  return { workerList, observe, pass, now: () => now };
}

describe('a worker', () => {
  it('is starting until it is seen, and then ready', () => {
    const { observe } = openList();
    expect(observe([running]).workers).toMatchObject([{ state: 'starting', idleSince: null }]);
    expect(observe([running], [{}]).workers).toMatchObject([{ state: 'ready' }]);
    expect(observe([running]).workers).toMatchObject([{ state: 'starting' }]);
  });

  it('is not ready while it drains, whatever caused the drain', () => {
    const { observe } = openList();
    observe([running], [{}]);
    expect(observe([running], [{ draining: true }]).workers).toMatchObject([{ state: 'draining' }]);
  });

  it('is idle since it was first seen without a job', () => {
    const { observe, now, pass } = openList();
    const since = now();
    observe([running], [{}]);
    pass(3_000);
    expect(observe([running], [{}]).workers).toMatchObject([{ jobs: 0, idleSince: since }]);
    expect(observe([running], [{ jobs: 1, taken: 1 }]).workers).toMatchObject([
      { jobs: 1, idleSince: null },
    ]);
  });

  it('counts as busy if it had a job between two passes', () => {
    const { observe, now, pass } = openList();
    observe([running], [{}]);
    pass(3_000);
    expect(observe([running], [{ taken: 1 }]).workers).toMatchObject([{ idleSince: now() }]);
  });

  it('combines several workers of its pod', () => {
    const { observe } = openList();
    const seen = [
      { podId: 'pod_1', jobs: 1 },
      { podId: 'pod_1', jobs: 2 },
      { podId: 'pod_12', jobs: 4 },
      { podId: null, jobs: 8 },
    ];
    expect(observe([running], seen).workers).toMatchObject([{ id: 'pod_1', jobs: 3 }]);
  });

  it('counts while it drains until its pod is gone', () => {
    const { observe, now, workerList } = openList();
    observe([running], [{}]);
    workerList.noteDrained('pod_1', now());
    expect(observe([running], [{ draining: true }]).workers).toMatchObject([{ state: 'draining' }]);
    expect(observe([podOf(states.terminated)]).workers).toMatchObject([{ state: 'draining' }]);
    expect(observe([]).workers).toEqual([]);
  });

  it('is drained again if it has forgotten its drain', () => {
    const { observe, now, workerList } = openList();
    observe([running], [{}]);
    workerList.noteDrained('pod_1', now());
    expect(observe([running], [{ draining: true }]).undrained).toEqual([]);
    expect(observe([running], [{ draining: false }]).undrained).toEqual(['pod_1']);
  });

  it('is reported once when it has ended', () => {
    const { observe } = openList();
    expect(observe([exited]).ended).toHaveLength(1);
    expect(observe([exited])).toMatchObject({ ended: [], workers: [{ state: 'draining' }] });
  });
});

interface EndCase {
  what: string;
  pod: PodState;
  wasReady?: boolean;
  isDrained?: boolean;
  afterMs?: number;
  seen?: Partial<SeenWorker>[];
  type?: 'LOAD_BALANCER';
  /** Undefined: it has not ended. */
  end: { isCrash: boolean } | undefined;
}

const waiting = podOf(states.waitingForGpu);
const adopted = { createdAt: OPENED - 1 };

const ends: EndCase[] = [
  { what: 'left before it was ready', pod: exited, end: { isCrash: true } },
  { what: 'left unasked', pod: exited, wasReady: true, end: { isCrash: true } },
  { what: 'drained', pod: exited, isDrained: true, end: { isCrash: false } },
  { what: 'failed', pod: failed, end: { isCrash: true } },
  { what: 'failed for good', pod: podOf(states.error), end: { isCrash: true } },
  {
    what: 'failed while it drained',
    pod: podOf(states.error),
    isDrained: true,
    end: { isCrash: false },
  },
  {
    what: 'exited before the platform started',
    pod: { ...exited, ...adopted },
    end: { isCrash: false },
  },
  {
    what: 'failed before the platform started',
    pod: { ...failed, ...adopted },
    end: { isCrash: true },
  },
  { what: 'is being ended', pod: podOf(states.terminated), end: undefined },
  { what: 'has just begun to wait for a GPU', pod: waiting, afterMs: 9_999, end: undefined },
  { what: 'waits for a GPU', pod: waiting, afterMs: 10_000, end: { isCrash: false } },
  { what: 'is silent', pod: running, wasReady: true, afterMs: 29_999, end: undefined },
  {
    what: 'is silent for too long',
    pod: running,
    wasReady: true,
    afterMs: 30_000,
    end: { isCrash: true },
  },
  { what: 'becomes ready in a while', pod: running, afterMs: 899_999, end: undefined },
  { what: 'does not become ready', pod: running, afterMs: 900_000, end: { isCrash: true } },
  {
    what: 'has no container yet',
    pod: podOf(states.provisioning),
    afterMs: 9_000_000,
    end: undefined,
  },
  { what: 'has time to leave', pod: running, isDrained: true, afterMs: 79_999, end: undefined },
  {
    ...{ what: 'has a job yet, whose limit may be longer than the endpoint has' },
    ...{ pod: running, isDrained: true, afterMs: 9_000_000 },
    ...{ seen: [{ jobs: 1, busyUntil: OPENED + 9_000_000, draining: true }], end: undefined },
  },
  {
    what: 'does not leave',
    pod: running,
    isDrained: true,
    afterMs: 80_000,
    end: { isCrash: false },
  },
  {
    ...{ what: 'drains and is silent', pod: running, wasReady: true, isDrained: true },
    ...{ afterMs: 29_999, end: undefined },
  },
  {
    ...{ what: 'drains and is silent for too long', pod: running, wasReady: true },
    ...{ isDrained: true, afterMs: 30_000, end: { isCrash: false } },
  },
  {
    ...{ what: 'is drained behind a balancer and has requests', type: 'LOAD_BALANCER' },
    ...{ pod: running, isDrained: true, seen: [{ jobs: 1, draining: true }], end: undefined },
  },
  {
    ...{ what: 'is drained behind a balancer and has none', type: 'LOAD_BALANCER' },
    ...{ pod: running, isDrained: true, seen: [{ draining: true }], end: { isCrash: false } },
  },
];

describe('the end of a worker that', () => {
  it.each(ends)('$what', (given) => {
    const { observe, now, pass, workerList } = openList();
    const { afterMs = 0, end, isDrained, pod, seen = [], type, wasReady } = given;
    observe([podOf(states.running, { createdAt: pod.createdAt })], wasReady ? [{}] : []);
    if (isDrained) workerList.noteDrained('pod_1', now());
    pass(afterMs);
    const { ended } = observe([pod], seen, type ? { type } : {});
    expect(ended).toEqual(end ? [{ podId: 'pod_1', reason: expect.any(String), ...end }] : []);
    const streak = end?.isCrash ? 1 : 0;
    expect(workerList.crashes.streak).toBe(streak);
  });
});

describe('crashes', () => {
  const podNamed = (id: string, pod: PodState) => ({ ...pod, id });

  it('lengthen the pause in a row, up to a minute', () => {
    const { observe, now, pass, workerList } = openList();
    const pauses = Array.from({ length: 8 }, (_, n) => {
      observe([podNamed(`pod_${n}`, failed)]);
      const pauseMs = workerList.crashes.notBefore - now();
      pass(pauseMs);
      return pauseMs / 1_000;
    });
    expect(pauses).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
    expect(workerList.crashes.reason).toBe('it exited with code 1');
  });

  it('are forgotten when a worker becomes ready', () => {
    const { observe, workerList } = openList({ streak: 5, notBefore: OPENED + 9_000, reason: 'x' });
    observe([running]);
    expect(workerList.crashes.streak).toBe(5);
    observe([running], [{}]);
    expect(workerList.crashes).toEqual({ streak: 0, notBefore: 0, reason: null });
  });

  it('count as the first after a worker was ready', () => {
    const { observe, workerList } = openList();
    const well = podNamed('pod_2', running);
    observe([podNamed('pod_1', running), well], [{ podId: 'pod_2' }]);
    observe([podNamed('pod_1', failed), well]);
    observe([podNamed('pod_3', failed), well]);
    expect(workerList.crashes.streak).toBe(2);
    observe([podNamed('pod_2', failed)]);
    expect(workerList.crashes.streak).toBe(1);
  });

  it('are forgotten when the spec of workers changes', () => {
    const { observe, workerList } = openList();
    observe([failed]);
    workerList.forgiveCrashes();
    expect(workerList.crashes.streak).toBe(0);
  });
});

describe('a worker on a node that is gone', () => {
  const REPLACE_MS = 300_000;
  const lost = podOf(running, { unreachable: { since: OPENED, why: 'node a is gone' } });

  function open(replaceAfterMs?: number) {
    const options = { openedAt: OPENED, silentMs: SILENT_MS, replaceAfterMs, crashes: undefined };
    const workerList = new WorkerList(options);
    const observe = (now: number, pods: PodState[], seen: SeenWorker[] = []) =>
      workerList.observe({
        ...{ now, pods, seen, type: 'QUEUE', executionTimeoutMs: TIMEOUT_MS },
        isCurrent: () => true,
      });
    return { workerList, observe };
  }
  const connected: SeenWorker = { podId: 'pod_1', jobs: 0, taken: 0, draining: false };

  it('counts, however long it is silent, until it is to be replaced', () => {
    const { observe, workerList } = open(REPLACE_MS);
    observe(OPENED, [running], [connected]);
    const silent = observe(OPENED + REPLACE_MS - 1, [lost]);
    expect(silent.ended).toEqual([]);
    expect(silent.workers).toMatchObject([{ id: 'pod_1', state: 'starting' }]);
    const { ended } = observe(OPENED + REPLACE_MS, [lost]);
    expect(ended).toEqual([{ podId: 'pod_1', reason: 'node a is gone', isCrash: false }]);
    expect(workerList.crashes.streak).toBe(0);
  });

  it('is not replaced without an option', () => {
    const { observe } = open();
    observe(OPENED, [running], [connected]);
    expect(observe(OPENED + 100 * REPLACE_MS, [lost]).ended).toEqual([]);
  });

  it('is not replaced while it still calls the platform', () => {
    const { observe } = open(REPLACE_MS);
    observe(OPENED, [running], [connected]);
    const { ended, workers } = observe(OPENED + REPLACE_MS, [lost], [connected]);
    expect([ended, workers[0]?.state]).toEqual([[], 'ready']);
  });

  it('gets time to reconnect when its node is back', () => {
    const { observe } = open(REPLACE_MS);
    observe(OPENED, [running], [connected]);
    const backAt = OPENED + REPLACE_MS - 1;
    observe(backAt, [lost]);
    expect(observe(backAt + SILENT_MS - 1, [running]).ended).toEqual([]);
    expect(observe(backAt + SILENT_MS, [running]).ended).toMatchObject([{ isCrash: true }]);
  });
});

const line = (level: number, rest: object) => JSON.stringify({ level, time: 1, ...rest });

describe('the exit report of a worker', () => {
  it('is its last line, without the source of errors', () => {
    const log = 'before\nError: this handler is broken\n    at file:///h.mjs:1:7\n}\n';
    expect(findLastOutput(log)).toBe('Error: this handler is broken');
  });

  it('is not a success message', () => {
    const log = ['Error: out of luck', line(30, { msg: 'worker ready' }), ''].join('\n');
    expect(findLastOutput(log)).toBe('Error: out of luck');
    expect(findLastOutput(`${line(30, { msg: 'worker ready' })}\n`)).toBeUndefined();
  });

  it('is the message of its last log error with the cause, without fields', () => {
    const err = { type: 'Error', message: 'no such file', stack: 'Error: no such file\n    at x' };
    expect(findLastOutput(line(50, { msg: 'worker failed', err }))).toBe(
      'worker failed: no such file',
    );
    expect(findLastOutput(line(40, { msg: 'it fails: no such file', err }))).toBe(
      'it fails: no such file',
    );
  });

  it('is the message of its last log error with the reason that a field has', () => {
    const reason = 'Error: self-signed certificate';
    expect(findLastOutput(line(40, { reason, msg: 'version not loaded, retrying' }))).toBe(
      'version not loaded, retrying: Error: self-signed certificate',
    );
  });

  it('is a line that only looks like a log line, unchanged', () => {
    expect(findLastOutput('{"level":30,"msg":"cut o')).toBe('{"level":30,"msg":"cut o');
  });

  it('is empty without output, and never long', () => {
    expect(findLastOutput('\n  at x\n')).toBeUndefined();
    expect(findLastOutput('x'.repeat(1_000))).toHaveLength(300);
  });
});

describe('a worker that says that it has left its GPU', () => {
  const onGpu = podOf(running, { gpus: ['GPU-0'] });
  const parking = { state: 'parked', vramBytes: 5, hostLimitBytes: 9 } as const;

  it('is not believed if it may not be parked, and must come back', () => {
    const { observe } = openList();
    observe([onGpu], [{}]);
    const { parking: steps, workers } = observe([onGpu], [{ parking }], { mayPark: false });
    expect(steps).toEqual([{ podId: 'pod_1', step: 'wish', wish: 'ready' }]);
    expect(workers).toMatchObject([{ state: 'ready' }]);
  });

  it('is believed after a restart of the platform, which has forgotten that it asked', () => {
    const { observe } = openList();
    const { parking: steps } = observe([onGpu], [{ parking }], { mayPark: true });
    expect(steps).toEqual([{ podId: 'pod_1', step: 'left', parked: { since: OPENED, bytes: 5 } }]);
  });

  it('has not left more than its GPUs have', () => {
    const { observe, workerList } = openList();
    const liar = { ...parking, vramBytes: Number.MAX_SAFE_INTEGER };
    const given = { mayPark: true, gpuMemoryOf: () => 7 };
    const { parking: steps } = observe([onGpu], [{ parking: liar }], given);
    expect(steps).toEqual([{ podId: 'pod_1', step: 'left', parked: { since: OPENED, bytes: 7 } }]);
    expect(workerList.parkedBytes).toBe(7);
  });

  it('may be cut off for as long as others', () => {
    const { observe, pass, workerList } = openList();
    const left = { ...running, parked: { since: OPENED, gpus: ['GPU-0'], bytes: 5 } };
    observe([left], [{ parking }], { mayPark: true });
    expect(workerList.parkedBytes).toBe(5);
    pass(SILENT_MS - 1);
    expect(observe([left]).ended).toEqual([]);
    pass(1);
    expect(observe([left]).ended).toMatchObject([
      { reason: 'the worker stopped responding', isCrash: false },
    ]);
  });

  it.each([
    [0, 15],
    [5, 5],
  ])('and wakes with %i bytes has %i minutes for it', (bytes, minutes) => {
    const { observe, pass } = openList();
    const wakes = { ...onGpu, parked: { since: OPENED, gpus: ['GPU-0'], bytes } };
    const look = () => observe([wakes], [{ parking: { ...parking, state: 'waking' } }]).ended;
    look();
    pass(minutes * 60_000 - 1);
    expect(look()).toEqual([]);
    pass(1);
    expect(look()).toMatchObject([{ reason: 'it did not wake in time', isCrash: false }]);
  });

  it('has not failed if it ends while it wakes up', () => {
    const { observe } = openList();
    const wakes = { ...onGpu, parked: { since: OPENED, gpus: ['GPU-0'], bytes: 5 } };
    observe([wakes], [{ parking: { ...parking, state: 'waking' } }], { mayPark: true });
    const { ended } = observe([podOf(states.exited)], []);
    expect(ended).toMatchObject([{ isCrash: false }]);
  });
});

describe('a spare worker', () => {
  const spare = podOf(running, { gpus: ['GPU-0'], spare: true });
  const parking = { state: 'ready', vramBytes: 0, hostLimitBytes: 9 } as const;
  const may = { mayPark: true };

  it('is parked from its start on, and asked to leave its GPU when it is there', () => {
    const { observe } = openList();
    expect(observe([spare], [], may).workers).toMatchObject([{ state: 'parked' }]);
    const { parking: steps, workers } = observe([spare], [{ parking }], may);
    expect(steps).toEqual([{ podId: 'pod_1', step: 'wish', wish: 'parked' }]);
    expect(workers).toMatchObject([{ state: 'parked' }]);
  });

  it('that is needed is asked to stay, and starts until it is ready', () => {
    const { observe, workerList } = openList();
    observe([spare], [], may);
    workerList.noteNeeded('pod_1');
    const { spare: _, ...used } = spare;
    const leaving = { ...parking, state: 'parking' } as const;
    const { parking: steps, workers } = observe([used], [{ parking: leaving }], may);
    expect(steps).toEqual([{ podId: 'pod_1', step: 'wish', wish: 'ready' }]);
    expect(workers).toMatchObject([{ state: 'starting' }]);
    const ready = { ...parking, wish: 'ready' } as const;
    const again = observe([used], [{ parking: ready }], may);
    expect(again.parking).toEqual([]);
    expect(again.workers).toMatchObject([{ state: 'ready' }]);
  });

  it('that does not say within 10 s that it can be parked ends, but not while it runs a job', () => {
    const { observe, pass } = openList();
    observe([spare], [{ jobs: 1 }], may);
    pass(9_999);
    expect(observe([spare], [{}], may).ended).toEqual([]);
    pass(1);
    expect(observe([spare], [{ jobs: 1 }], may).ended).toEqual([]);
    expect(observe([spare], [{}], may).ended).toMatchObject([
      { reason: 'it is a spare worker, and cannot be parked', isCrash: false },
    ]);
  });

  it('that ends before it was ready has crashed', () => {
    const { observe } = openList();
    observe([spare], [], may);
    const dead = podOf(states.exited, { spare: true });
    expect(observe([dead], [], may).ended).toMatchObject([{ isCrash: true }]);
  });
});
