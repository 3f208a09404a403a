import { describe, expect, it } from 'vitest';
import {
  RateCounts,
  type RatesAnswer,
  type RatesBody,
  ratesAnswer,
  ratesBody,
  sliceOf,
} from '../../../../src/platform/nodes/rate-counts.ts';
import { RateSlices } from '../../../../src/platform/nodes/shared-rates.ts';
import { fc } from '../../../support/properties.ts';
import { createRandom } from '../../../support/random.ts';

const MINUTE = 60_000;
const subjectOf = (limit: number, key = 'ann', calls = 1) => ({
  ...{ window: 'minute', key, limit, ms: MINUTE, calls },
});

/** Nodes and a leader in one process; the test says what arrives. */
class Cluster {
  now = 1_000;
  readonly ids: readonly string[];
  readonly nodes: readonly RateSlices[];
  leader: RateCounts;
  isLeaderThere = true;

  constructor(count: number) {
    this.ids = Array.from({ length: count }, (_, index) => `node-${index}`);
    this.nodes = this.ids.map((node) => new RateSlices({ node, countNodes: () => count }));
    this.leader = new RateCounts({ term: 'first', nodes: this.ids, now: this.now });
    this.follow('first');
    // The first nodes to report were answered before the leader knew all counts.
    this.now += 1_000;
  }

  at(index: number): RateSlices {
    const node = this.nodes[index];
    if (!node) throw new Error(`no node ${index}`);
    return node;
  }

  follow(term: string): void {
    for (const node of this.nodes) node.noteTerm(term);
    for (const node of this.nodes) this.exchange(node);
  }

  answer(body: RatesBody): RatesAnswer {
    const sent = ratesBody.parse(JSON.parse(JSON.stringify(body)));
    return ratesAnswer.parse(this.leader.answer(sent, { live: this.ids, now: this.now }));
  }

  exchange(node: RateSlices): void {
    for (let body = node.report(this.now); body; body = node.report(this.now)) {
      if (this.isLeaderThere) node.learn(this.answer(body), this.now);
      else node.fail(this.now);
    }
  }

  /** One call, or several together, answered at once. */
  call(index: number, limit: number, key?: string, calls?: number) {
    const node = this.at(index);
    const subject = subjectOf(limit, key, calls);
    let count = node.take(subject, this.now);
    this.exchange(node);
    count ??= node.retry(subject, this.now) ?? node.giveUp(subject, this.now);
    return count;
  }

  /** How many of the calls are admitted. */
  spend(index: number, limit: number, calls: number): number {
    let admitted = 0;
    for (let made = 0; made < calls; made++) if (this.call(index, limit).isAdmitted) admitted++;
    return admitted;
  }
}

describe('a slice', () => {
  it.each([
    // limit, free, nodes → calls ahead of need
    [6_000, 6_000, 1, 300],
    [6_000, 6_000, 3, 100],
    [6_000, 300, 3, 50],
    [6_000, 5, 3, 0],
    [100, 100, 5, 1],
    [10, 10, 1, 0],
    [6_000, 0, 2, 0],
  ])('takes from %i calls with %i left for %i nodes %i calls', (limit, free, nodes, calls) => {
    expect(sliceOf(limit, free, nodes)).toBe(calls);
  });

  it('is spent without a call to the leader', () => {
    const cluster = new Cluster(2);
    expect(cluster.call(0, 6_000)).toEqual({
      isAdmitted: true,
      remaining: 5_999,
      msBeforeNext: MINUTE,
    });
    for (let n = 0; n < 70; n++) {
      expect(cluster.at(0).take(subjectOf(6_000), cluster.now)?.isAdmitted).toBe(true);
    }
    expect(cluster.at(0).report(cluster.now)).toBeUndefined();
  });
});

describe('calls that are admitted together', () => {
  it.each([1, 3])('never exceed the limit over %i nodes, and fill it', (count) => {
    const cluster = new Cluster(count);
    const random = createRandom(count);
    const limit = 2_000;
    let admitted = 0;
    for (let n = 0; n < 200; n++) {
      const calls = 1 + Math.floor(random() * 100);
      if (cluster.call(n % count, limit, 'ann', calls).isAdmitted) admitted += calls;
    }
    expect(admitted).toBeLessThanOrEqual(limit);
    expect(admitted).toBeGreaterThanOrEqual(0.95 * limit);
  });

  it('leave what is too little for them to the other nodes', () => {
    const cluster = new Cluster(2);
    expect(cluster.call(0, 100, 'ann', 60).isAdmitted).toBe(true);
    expect(cluster.call(1, 100, 'ann', 60).isAdmitted).toBe(false);
    cluster.exchange(cluster.at(1));
    cluster.now += 200;
    expect(cluster.call(0, 100, 'ann', 35).isAdmitted).toBe(true);
  });

  it('are given back together', () => {
    const cluster = new Cluster(1);
    expect(cluster.call(0, 100, 'ann', 60)).toMatchObject({ isAdmitted: true, remaining: 40 });
    expect(cluster.call(0, 100, 'ann', 60).isAdmitted).toBe(false);
    cluster.at(0).giveBack(subjectOf(100, 'ann', 60), cluster.now);
    cluster.now += 200;
    expect(cluster.call(0, 100, 'ann', 60).isAdmitted).toBe(true);
  });
});

describe('one count over all nodes', () => {
  it.each([1, 2, 3, 5])('admits the whole limit over %i nodes, one call at a time', (count) => {
    const cluster = new Cluster(count);
    let admitted = 0;
    for (let n = 0; n < 150; n++) if (cluster.call(n % count, 100).isAdmitted) admitted++;
    expect(admitted).toBeGreaterThanOrEqual(95);
    expect(admitted).toBeLessThanOrEqual(100);
  });

  it('says when the window ends, and begins a new one then', () => {
    const cluster = new Cluster(2);
    cluster.spend(0, 10, 10);
    cluster.now += 20_000;
    const full = { isAdmitted: false, remaining: 0, msBeforeNext: 40_000 };
    expect(cluster.call(1, 10)).toEqual(full);
    cluster.now += 39_999;
    expect(cluster.call(0, 10)).toEqual({ ...full, msBeforeNext: 1 });
    cluster.now += 1;
    expect(cluster.call(1, 10)).toEqual({
      isAdmitted: true,
      remaining: 9,
      msBeforeNext: MINUTE,
    });
    expect(cluster.call(0, 10)).toMatchObject({ isAdmitted: true, remaining: 8 });
  });

  it('counts no call that is given back', () => {
    const cluster = new Cluster(1);
    for (let n = 0; n < 30; n++) {
      expect(cluster.call(0, 10).isAdmitted).toBe(true);
      expect(cluster.at(0).giveBack(subjectOf(10), cluster.now).remaining).toBe(10);
    }
  });

  it('counts a slice as spent if its answer is lost', () => {
    const cluster = new Cluster(2);
    const node = cluster.at(0);
    expect(node.take(subjectOf(100), cluster.now)).toBeUndefined();
    const body = node.report(cluster.now);
    if (!body) throw new Error('no report');
    cluster.answer(body);
    node.fail(cluster.now);
    cluster.now += 300;
    const { isAdmitted, remaining } = cluster.call(1, 100);
    expect({ isAdmitted, remaining }).toEqual({ isAdmitted: true, remaining: 96 });
    expect(cluster.answer(body).grants).toEqual([]);
  });

  it('reports more windows than one call carries in several calls', () => {
    const cluster = new Cluster(1);
    for (let n = 0; n < 500; n++) cluster.at(0).take(subjectOf(10, `user-${n}`), cluster.now);
    let calls = 0;
    for (let body = cluster.at(0).report(cluster.now); body; calls++) {
      cluster.at(0).learn(cluster.answer(body), cluster.now);
      body = cluster.at(0).report(cluster.now);
    }
    expect(calls).toBe(4);
    expect(cluster.at(0).retry(subjectOf(10, 'user-499'), cluster.now)?.isAdmitted).toBe(true);
  });

  it('is kept while calls and answers overlap, however they arrive', () => {
    const property = fc.property(
      fc.record({
        count: fc.integer({ min: 1, max: 5 }),
        limit: fc.integer({ min: 1, max: 2_000 }),
        latency: fc.integer({ min: 0, max: 50 }),
        /** Calls at once. */
        burst: fc.integer({ min: 1, max: 60 }),
        seed: fc.nat(),
      }),
      (run) => {
        const { admitted, limit } = simulate(run);
        expect(admitted).toBeLessThanOrEqual(limit * 1.05);
        expect(admitted).toBeGreaterThanOrEqual(Math.floor(limit * 0.95));
      },
    );
    fc.assert(property, { numRuns: 150 });
  });
});

describe('without a leader', () => {
  it('admits the fair share of each node of what is left', () => {
    const cluster = new Cluster(3);
    cluster.isLeaderThere = false;
    const shares = cluster.ids.map((_, index) => cluster.spend(index, 90, 90));
    expect(shares).toEqual([30, 30, 30]);
    expect(cluster.call(0, 90)).toEqual({ isAdmitted: false, remaining: 0, msBeforeNext: 1_000 });
  });

  it('gives a share once in a window', () => {
    const cluster = new Cluster(2);
    cluster.spend(0, 100, 20);
    cluster.isLeaderThere = false;
    const before = cluster.spend(0, 100, 200);
    cluster.now += 5_000;
    expect(before).toBeLessThanOrEqual(45);
    expect(cluster.spend(0, 100, 100)).toBe(0);
  });

  it('counts afterwards what was admitted', () => {
    const cluster = new Cluster(2);
    cluster.isLeaderThere = false;
    expect(cluster.spend(0, 100, 200)).toBe(50);
    cluster.isLeaderThere = true;
    cluster.now += 1_000;
    const rest = cluster.spend(1, 100, 200) + cluster.spend(0, 100, 1);
    expect(rest).toBeLessThanOrEqual(100);
    cluster.now += 1_000;
    expect(cluster.spend(0, 100, 100)).toBe(0);
  });
});

describe('a new leader', () => {
  const change = (cluster: Cluster, live = cluster.ids) => {
    cluster.leader = new RateCounts({ term: 'second', nodes: live, now: cluster.now });
  };

  it('goes on from what the nodes report', () => {
    const cluster = new Cluster(3);
    const spent = cluster.spend(0, 100, 40) + cluster.spend(1, 100, 20);
    expect(spent).toBe(60);
    change(cluster);
    cluster.follow('second');
    cluster.now += 500;
    expect(cluster.call(2, 100).remaining).toBeLessThan(40);
    const rest = cluster.spend(2, 100, 100) + 1;
    expect(rest).toBeGreaterThanOrEqual(35);
    expect(rest).toBeLessThanOrEqual(40);
    expect(cluster.call(2, 100).msBeforeNext).toBe(MINUTE - 500);
  });

  it('knows from one node what others had been granted', () => {
    const cluster = new Cluster(2);
    cluster.spend(1, 100, 60);
    cluster.spend(0, 100, 1);
    // Node 1 is gone with its counts.
    change(cluster, ['node-0']);
    cluster.at(0).noteTerm('second');
    cluster.exchange(cluster.at(0));
    expect(cluster.spend(0, 100, 100)).toBeLessThanOrEqual(40);
  });

  it('grants nothing before all live nodes have reported, for no more than 3 s', () => {
    const cluster = new Cluster(2);
    cluster.spend(0, 100, 80);
    change(cluster);
    cluster.at(1).noteTerm('second');
    cluster.exchange(cluster.at(1));
    // A fair share of a window that this node has not seen.
    expect(cluster.spend(1, 100, 100)).toBe(50);
    cluster.now += 3_000;
    expect(cluster.call(1, 1_000, 'bob')).toMatchObject({ isAdmitted: true });
    expect(cluster.call(1, 1_000, 'bob').remaining).toBe(998);
  });
});

interface Run {
  count: number;
  limit: number;
  latency: number;
  burst: number;
  seed: number;
}

/** Calls at random nodes until three times the limit was asked for, within one window. */
function simulate({ burst, count, latency, limit, seed }: Run) {
  const random = createRandom(seed);
  const below = (n: number) => Math.floor(random() * n);
  const cluster = new Cluster(count);
  const subject = subjectOf(limit);
  const events: { at: number; act: () => void }[] = [];
  const after = (ms: number, act: () => void) => events.push({ at: cluster.now + ms, act });
  const waiting = cluster.ids.map(() => 0);
  let admitted = 0;
  const send = (index: number) => {
    const node = cluster.at(index);
    const body = node.report(cluster.now);
    if (!body) return;
    after(below(latency + 1), () => {
      const answer = cluster.answer(body);
      after(below(latency + 1), () => {
        node.learn(answer, cluster.now);
        const calls = waiting[index] ?? 0;
        waiting[index] = 0;
        for (let n = 0; n < calls; n++) settle(index, node.retry(subject, cluster.now));
        send(index);
      });
    });
  };
  const settle = (index: number, count: { isAdmitted: boolean } | undefined) => {
    if (!count) waiting[index] = (waiting[index] ?? 0) + 1;
    else if (count.isAdmitted) admitted += 1;
  };
  // Some users call one node for long, then another.
  const isSticky = random() < 0.5;
  const step = Math.max(1, Math.floor(40_000 / ((limit * 3) / burst + 1)));
  const last = Math.ceil((limit * 3) / burst);
  for (let n = 0; n <= last; n++) {
    const index = isSticky ? Math.floor((n * count) / (last + 1)) : below(count);
    after(n * Math.min(step, 100), () => {
      for (let call = 0; call < burst; call++) {
        settle(index, cluster.at(index).take(subject, cluster.now));
        send(index);
      }
    });
  }
  while (events.length > 0) {
    const next = events.reduce((first, each) => (each.at < first.at ? each : first));
    events.splice(events.indexOf(next), 1);
    cluster.now = next.at;
    next.act();
  }
  return { admitted, limit };
}
