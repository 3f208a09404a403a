// What is made of an endpoint's pods and of the workers that are seen, from one look to the next.
import { describe, expect, it } from 'vitest';
import type { PodState } from '../../../../src/control/pods/pod-state.ts';
import type { SeenWorker } from '../../../../src/control/scaling/work-view.ts';
import {
  type Crashes,
  Roster,
  type RosterLook,
} from '../../../../src/control/scaling/worker-list.ts';
import { states } from '../pod-states.ts';

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

function openRoster(crashes?: Crashes) {
  const roster = new Roster({ openedAt: OPENED, silentMs: SILENT_MS, crashes });
  let now = OPENED;
  const look = (pods: PodState[], seen: Partial<SeenWorker>[] = [], changes = {}) => {
    const given: RosterLook = {
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
    return roster.look(given);
  };
  const pass = (ms: number) => {
    now += ms;
  };
  return { roster, look, pass, now: () => now };
}

describe('a worker', () => {
  it('is starting until it is seen, and ready as long as it is', () => {
    const { look } = openRoster();
    expect(look([running]).workers).toMatchObject([{ state: 'starting', idleSince: null }]);
    expect(look([running], [{}]).workers).toMatchObject([{ state: 'ready' }]);
    expect(look([running]).workers).toMatchObject([{ state: 'starting' }]);
  });

  it('is not ready while it drains, whoever drained it', () => {
    const { look } = openRoster();
    look([running], [{}]);
    expect(look([running], [{ draining: true }]).workers).toMatchObject([{ state: 'draining' }]);
  });

  it('is idle since it was first seen without a job', () => {
    const { look, now, pass } = openRoster();
    const since = now();
    look([running], [{}]);
    pass(3_000);
    expect(look([running], [{}]).workers).toMatchObject([{ jobs: 0, idleSince: since }]);
    expect(look([running], [{ jobs: 1, taken: 1 }]).workers).toMatchObject([
      { jobs: 1, idleSince: null },
    ]);
  });

  it('counts as busy if it had a job between two passes', () => {
    const { look, now, pass } = openRoster();
    look([running], [{}]);
    pass(3_000);
    expect(look([running], [{ taken: 1 }]).workers).toMatchObject([{ idleSince: now() }]);
  });

  it('is its pod’s workers together, where there are several', () => {
    const { look } = openRoster();
    const seen = [
      { podId: 'pod_1', jobs: 1 },
      { podId: 'pod_1', jobs: 2 },
      { podId: 'pod_12', jobs: 4 },
      { podId: null, jobs: 8 },
    ];
    expect(look([running], seen).workers).toMatchObject([{ id: 'pod_1', jobs: 3 }]);
  });

  it('that drains counts until its pod is gone', () => {
    const { look, now, roster } = openRoster();
    look([running], [{}]);
    roster.noteDrained('pod_1', now());
    expect(look([running], [{ draining: true }]).workers).toMatchObject([{ state: 'draining' }]);
    expect(look([podOf(states.terminated)]).workers).toMatchObject([{ state: 'draining' }]);
    expect(look([]).workers).toEqual([]);
  });

  it('that has forgotten its drain is drained again', () => {
    const { look, now, roster } = openRoster();
    look([running], [{}]);
    roster.noteDrained('pod_1', now());
    expect(look([running], [{ draining: true }]).undrained).toEqual([]);
    expect(look([running], [{ draining: false }]).undrained).toEqual(['pod_1']);
  });

  it('is named once when it has ended', () => {
    const { look } = openRoster();
    expect(look([exited]).ended).toHaveLength(1);
    expect(look([exited])).toMatchObject({ ended: [], workers: [{ state: 'draining' }] });
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
  { what: 'left as it was told', pod: exited, isDrained: true, end: { isCrash: false } },
  { what: 'failed', pod: failed, end: { isCrash: true } },
  { what: 'failed for good', pod: podOf(states.error), end: { isCrash: true } },
  {
    what: 'failed after it was told to leave',
    pod: podOf(states.error),
    isDrained: true,
    end: { isCrash: false },
  },
  { what: 'left while nobody looked', pod: { ...exited, ...adopted }, end: { isCrash: false } },
  { what: 'failed while nobody looked', pod: { ...failed, ...adopted }, end: { isCrash: true } },
  { what: 'is being ended', pod: podOf(states.terminated), end: undefined },
  { what: 'has just begun to wait for a GPU', pod: waiting, afterMs: 9_999, end: undefined },
  { what: 'waits for a GPU', pod: waiting, afterMs: 10_000, end: { isCrash: false } },
  { what: 'is not heard of', pod: running, wasReady: true, afterMs: 29_999, end: undefined },
  {
    what: 'is not heard of any more',
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
    ...{ what: 'is drained behind a balancer and has requests', type: 'LOAD_BALANCER' },
    ...{ pod: running, isDrained: true, seen: [{ jobs: 1, draining: true }], end: undefined },
  },
  {
    ...{ what: 'is drained behind a balancer and has none', type: 'LOAD_BALANCER' },
    ...{ pod: running, isDrained: true, seen: [{ draining: true }], end: { isCrash: false } },
  },
];

describe('whether it is over with a worker that', () => {
  it.each(ends)('$what', (given) => {
    const { look, now, pass, roster } = openRoster();
    const { afterMs = 0, end, isDrained, pod, seen = [], type, wasReady } = given;
    look([podOf(states.running, { createdAt: pod.createdAt })], wasReady ? [{}] : []);
    if (isDrained) roster.noteDrained('pod_1', now());
    pass(afterMs);
    const { ended } = look([pod], seen, type ? { type } : {});
    expect(ended).toEqual(end ? [{ podId: 'pod_1', reason: expect.any(String), ...end }] : []);
    const streak = end?.isCrash ? 1 : 0;
    expect(roster.crashes.streak).toBe(streak);
  });
});

describe('crashes', () => {
  const podNamed = (id: string, pod: PodState) => ({ ...pod, id });

  it('in a row make the pause longer, up to a minute', () => {
    const { look, now, pass, roster } = openRoster();
    const pauses = Array.from({ length: 8 }, (_, n) => {
      look([podNamed(`pod_${n}`, failed)]);
      const pauseMs = roster.crashes.notBefore - now();
      pass(pauseMs);
      return pauseMs / 1_000;
    });
    expect(pauses).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
    expect(roster.crashes.reason).toBe('it exited with code 1');
  });

  it('are forgotten when a worker becomes ready', () => {
    const { look, roster } = openRoster({ streak: 5, notBefore: OPENED + 9_000, reason: 'x' });
    look([running]);
    expect(roster.crashes.streak).toBe(5);
    look([running], [{}]);
    expect(roster.crashes).toEqual({ streak: 0, notBefore: 0, reason: null });
  });

  it('of one that was ready count as the first', () => {
    const { look, roster } = openRoster();
    const well = podNamed('pod_2', running);
    look([podNamed('pod_1', running), well], [{ podId: 'pod_2' }]);
    look([podNamed('pod_1', failed), well]);
    look([podNamed('pod_3', failed), well]);
    expect(roster.crashes.streak).toBe(2);
    look([podNamed('pod_2', failed)]);
    expect(roster.crashes.streak).toBe(1);
  });

  it('are forgiven when workers are made from something else', () => {
    const { look, roster } = openRoster();
    look([failed]);
    roster.forgiveCrashes();
    expect(roster.crashes.streak).toBe(0);
  });
});
