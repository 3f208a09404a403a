// Topics that several connections share, and what becomes of them when their data is gone.
import { describe, expect, it, onTestFinished } from 'vitest';
import { composeStart } from '../../../../src/api/events/channel.ts';
import { EventHub, type EventHubOptions } from '../../../../src/api/events/event-hub.ts';
import {
  type LoopCredit,
  spendLoopTime,
  waitForCredit,
} from '../../../../src/api/events/user-reads.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { Waiters } from '../../../../src/base/waiters.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { EVENT_LIMITS, readTopic, type Topic } from '../../../../src/wire/routes/event-topics.ts';

const holder = {
  ...{ keyId: 'key_1', userId: 'ada', name: 'k', podId: null },
  ...{ scopes: new Set<string>(), expiresAt: null },
};
const caller = { holder, id: 'key_1', credentials: {} };

function find(name: string): Topic {
  const topic = readTopic(name);
  if (!topic) throw new Error(`unknown topic ${name}`);
  return topic;
}

function open(options: Pick<EventHubOptions, 'read'> & Partial<EventHubOptions>) {
  const clock = new ManualClock(0);
  const hub = new EventHub({
    ...{ clock, log: silentLog, maxConnections: 10 },
    ...{ number: () => undefined, watch: () => undefined },
    // Nothing costs time unless the test says so.
    ...{ monotonic: () => 0, ...options },
  });
  onTestFinished(() => hub.stop());
  const listen = (topic: Topic) => {
    const seen: string[] = [];
    const leave = hub.listen(caller, topic, ({ bytes }) => seen.push(String(bytes)));
    return { seen, leave };
  };
  return { clock, hub, listen };
}

const gone = () => new ProblemError('not_found', 'endpoint e not found');

it('says that a job is gone although nothing can watch it any more', async () => {
  const { listen } = open({
    read: () => Promise.reject(gone()),
    watch() {
      throw gone();
    },
  });
  const { seen } = listen(find('job:e/j'));
  await expect.poll(() => seen).toEqual([expect.stringContaining('"final":true')]);
});

it('reads again for a new connection what was not found before', async () => {
  let exists = false;
  const { hub, listen } = open({
    read: async () => {
      if (!exists) throw gone();
      return { id: 'e' };
    },
  });
  const first = listen(find('endpoint:e'));
  await expect.poll(() => first.seen).toEqual([expect.stringContaining('not_found')]);
  exists = true;
  const second = listen(find('endpoint:e'));
  await expect.poll(() => second.seen).toEqual([expect.stringContaining('"data":{"id":"e"}')]);
  first.leave();
  expect(hub.topics).toBe(1);
  second.leave();
  expect(hub.topics).toBe(0);
});

it('reads a topic once for a user, however it is written and whatever else the keys may do', () => {
  const { hub } = open({ read: async () => ({}) });
  const listen = (name: string, ...scopes: string[]) =>
    hub.listen({ ...caller, holder: { ...holder, scopes: new Set(scopes) } }, find(name), () => {});
  for (let n = 0; n < 20; n++) listen('pod:a', 'pods:read', `jobs:read:endpoint-${n}`);
  for (const name of ['pod:%61', 'pod:a']) listen(name, 'pods:read', 'keys:read');
  expect(hub.topics).toBe(1);
  listen('pod:a', 'pods:read', 'pods:write');
  expect(hub.topics).toBe(2);
  listen('overview', 'jobs:read:a', 'jobs:read:b');
  listen('overview', 'jobs:read:b', 'jobs:read:a', 'pods:read');
  expect(hub.topics).toBe(3);
  listen('overview', 'jobs:read:a');
  listen('overview', 'jobs:read');
  expect(hub.topics).toBe(5);
});

it('writes the name of a topic as each client has written it', async () => {
  const { listen } = open({ read: async () => ({ id: 'a' }) });
  const [first, second] = [listen(find('pod:a')), listen(find('pod:%61'))];
  await expect.poll(() => first.seen.length + second.seen.length).toBe(2);
  expect(first.seen).toEqual(second.seen);
  const snapshot = { event: 'snapshot' as const, bytes: Buffer.from(''), isFinal: false };
  expect(composeStart(find('pod:%61'), snapshot)).toBe(
    'event: snapshot\ndata: {"topic":"pod:%61",',
  );
});

it('reads a topic again only if its number has changed', async () => {
  const topic = find('endpoints');
  let [number, reads] = [1, 0];
  const { clock, hub, listen } = open({
    number: () => number,
    async read() {
      reads += 1;
      return { reads };
    },
  });
  const { seen } = listen(topic);
  await clock.advance(20_000);
  expect(reads).toBe(1);
  expect(hub.spent.reads).toBe(1);
  number += 1;
  await clock.advance(topic.rule.everyMs);
  expect(seen).toEqual(['"data":{"reads":1}}\n\n', '"data":{"reads":2}}\n\n']);
});

it('notices a change while it reads', async () => {
  let number = 1;
  const { clock, listen } = open({
    number: () => number,
    async read() {
      const shown = number;
      number = 2;
      return { shown };
    },
  });
  const { seen } = listen(find('endpoints'));
  await clock.advance(10_000);
  expect(seen.at(-1)).toContain('"shown":2');
});

it('reads a topic whose number is the same after a failure that passes', async () => {
  let fails = false;
  let number = 1;
  const { clock, listen } = open({
    number: () => number,
    async read() {
      if (fails) throw new ProblemError('unavailable', 'the store fails');
      return { id: 'a' };
    },
  });
  const { seen } = listen(find('endpoints'));
  await clock.advance(0);
  [fails, number] = [true, 2];
  await clock.advance(2_000);
  fails = false;
  await clock.advance(2_000);
  const data = expect.stringContaining('"id":"a"');
  expect(seen).toEqual([data, expect.stringContaining('unavailable'), data]);
});

/** Reads whose loop time a test chooses: `costMs` by user. */
function openCostly(costMs: Readonly<Record<string, number>>, waitFor = async () => {}) {
  let loopMs = 0;
  const reads: Record<string, number> = { ada: 0, ben: 0 };
  const opened = open({
    monotonic: () => loopMs,
    async read({ holder: { userId } }) {
      reads[userId] = (reads[userId] ?? 0) + 1;
      loopMs += costMs[userId] ?? 0;
      await waitFor();
      return { n: reads };
    },
  });
  return { ...opened, reads };
}

it('reads costly topics of one user less often, and those of others as before', async () => {
  const { clock, hub, reads } = openCostly({ ada: 20 });
  for (let n = 0; n < 30; n++) hub.listen(caller, find(`activity:e${n}`), () => {});
  hub.listen({ ...caller, holder: { ...holder, userId: 'ben' } }, find('activity:e'), () => {});
  for (let s = 0; s < 20; s++) await clock.advance(1_000);
  expect(reads['ben']).toBeGreaterThanOrEqual(19);
  // 500 ms at once and 50 ms a second; without the bound they would take 600 reads, 12,000 ms.
  expect(reads['ada']).toBeGreaterThanOrEqual(74);
  expect(reads['ada']).toBeLessThanOrEqual(76);
  expect(hub.spent.loopMs).toBe(20 * (reads['ada'] ?? 0));
});

it('reads no more for a user whose client reconnects all the time', async () => {
  const { clock, hub, listen, reads } = openCostly({ ada: 100 });
  for (let round = 0; round < 100; round++) {
    const { leave } = listen(find('pods'));
    await clock.advance(10);
    leave();
  }
  expect(hub.topics).toBe(0);
  expect(reads['ada']).toBeLessThanOrEqual(6);
});

it('does not count the time in which a read waits', async () => {
  let passed = 0;
  const { clock, hub } = open({
    monotonic: () => passed,
    async read() {
      passed += 3;
      await new Promise((resolve) => setImmediate(resolve));
      // Others used the loop meanwhile.
      passed += 900;
      await new Promise((resolve) => setImmediate(resolve));
      return {};
    },
  });
  hub.listen(caller, find('pods'), () => {});
  await clock.advance(0);
  expect(hub.spent).toEqual({ reads: 1, loopMs: 3 });
});

it('sends a change to many streams in several iterations of the event loop, and counts the time', async () => {
  let loopMs = 0;
  const { clock, hub } = open({ monotonic: () => loopMs, read: async () => ({}) });
  let turns = 0;
  let isOver = false;
  const count = () => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  const seen: number[] = [];
  for (let n = 0; n < 20; n++) {
    hub.listen(caller, find('pods'), () => {
      loopMs += 2;
      seen.push(turns);
    });
  }
  setImmediate(count);
  await clock.advance(0);
  await expect.poll(() => seen.length).toBe(20);
  isOver = true;
  expect(new Set(seen).size).toBe(10);
  expect(hub.spent.loopMs).toBe(40);
});

it('keeps the topics of all users together within a share of the event loop', async () => {
  let loopMs = 0;
  const reads: Record<string, number> = {};
  const { clock, hub } = open({
    monotonic: () => loopMs,
    async read({ holder: { userId } }) {
      loopMs += 50;
      reads[userId] = (reads[userId] ?? 0) + 1;
      return { loopMs };
    },
  });
  for (let n = 0; n < 20; n++) {
    const holder = { ...caller.holder, userId: `user${n}` };
    hub.listen({ ...caller, id: `key${n}`, holder }, find('pods'), () => {});
  }
  for (let seconds = 0; seconds < 20; seconds += 1) await clock.advance(1_000);
  // 1 s at once and 250 ms a second; without the bound, 20 users would take 10 s.
  expect(loopMs).toBeLessThan(6_500);
  expect(loopMs).toBeGreaterThan(4_500);
  const counts = Object.values(reads);
  expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(2);
});

it('sends the last snapshot to many new streams in several iterations of the event loop', async () => {
  let loopMs = 0;
  const { clock, hub } = open({ monotonic: () => loopMs, read: async () => ({}) });
  hub.listen(caller, find('pods'), () => {});
  await clock.advance(0);
  const before = hub.spent.loopMs;
  let turns = 0;
  const seen: number[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  for (let n = 0; n < 20; n++) {
    hub.listen(caller, find('pods'), () => {
      loopMs += 2;
      seen.push(turns);
      if (seen.length === 20) resolve();
    });
  }
  const count = () => {
    turns += 1;
    if (seen.length < 20) setImmediate(count);
  };
  setImmediate(count);
  await promise;
  expect(new Set(seen).size).toBe(10);
  await clock.advance(0);
  expect(hub.spent.loopMs - before).toBe(40);
});

describe('the share of the event loop', () => {
  const bound = EVENT_LIMITS.userLoop;
  it.each([
    { costMs: 0.1, wanted: 10, reads: 600 },
    { costMs: 5, wanted: 10, reads: 600 },
    { costMs: 10, wanted: 10, reads: 350 },
    { costMs: 100, wanted: 10, reads: 35 },
    { costMs: 4_000, wanted: 1, reads: 1 },
  ])('is kept by reads of $costMs ms, $wanted a second', ({ costMs, reads, wanted }) => {
    let credit: LoopCredit = { freeMs: bound.burstMs, at: 0 };
    let done = 0;
    for (let now = 0; now < 60_000; now += 1_000 / wanted) {
      credit = spendLoopTime(credit, { now, spentMs: 0 }, bound);
      if (waitForCredit(credit, bound) > 0) continue;
      credit = spendLoopTime(credit, { now, spentMs: costMs }, bound);
      done += 1;
    }
    expect(done).toBe(reads);
  });

  it('tells when the next read may begin', () => {
    const spent = spendLoopTime({ freeMs: 0, at: 0 }, { now: 0, spentMs: 10 }, bound);
    expect(waitForCredit(spent, bound)).toBe(200);
    const later = spendLoopTime(spent, { now: 200, spentMs: 0 }, bound);
    expect(waitForCredit(later, bound)).toBe(0);
    // A clock that goes back takes nothing.
    expect(spendLoopTime(later, { now: 0, spentMs: 0 }, bound).freeMs).toBe(later.freeMs);
  });
});

it('refuses topics of a user that would keep too many bytes', async () => {
  const { clock, hub } = open({
    read: async () => ({ text: 'x'.repeat(4_000_000) }),
  });
  const seen: string[] = [];
  for (let n = 0; n < 20; n++) {
    hub.listen(caller, find(`activity:e${n}`), ({ bytes, event }) => {
      seen.push(event === 'snapshot' ? event : String(bytes));
    });
  }
  await clock.advance(1_000);
  expect(seen.filter((each) => each === 'snapshot')).toHaveLength(16);
  expect(seen).toContainEqual(expect.stringContaining('rate_limited'));
});

it('counts no bytes of a topic that nobody reads any more', async () => {
  const { clock, listen } = open({
    read: async () => ({ text: 'x'.repeat(4_000_000) }),
    watch: () => undefined,
  });
  for (let round = 0; round < 2; round++) {
    const topics = Array.from({ length: 16 }, (_, n) => listen(find(`activity:e${round}-${n}`)));
    await clock.advance(1_000);
    for (const { leave, seen } of topics) {
      expect(seen.at(-1)).toContain('"data"');
      leave();
    }
    await clock.advance(0);
  }
});

it('reads the changes of a topic no faster than the share of its user allows', async () => {
  let reads = 0;
  const { clock, listen } = open({
    monotonic: () => reads * 50,
    async read() {
      reads += 1;
      return { n: reads };
    },
    watch: () => waiters.open('e'),
  });
  const waiters = new Waiters(clock);
  listen(find('endpoint:e'));
  for (let ms = 0; ms < 20_000; ms += 100) {
    waiters.wake('e');
    await clock.advance(100);
  }
  // 500 ms at once and 50 ms a second; without the bound it would be more.
  expect(reads).toBeGreaterThan(25);
  expect(reads).toBeLessThan(33);
});
