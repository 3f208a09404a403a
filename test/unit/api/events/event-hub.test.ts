// Topics that several connections share, and what becomes of them when their data is gone.
import { expect, it, onTestFinished } from 'vitest';
import { composeStart } from '../../../../src/api/events/channel.ts';
import { EventHub, type EventHubOptions } from '../../../../src/api/events/event-hub.ts';
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

function open(options: Pick<EventHubOptions, 'read' | 'watch'>) {
  const clock = new ManualClock(0);
  const hub = new EventHub({ clock, log: silentLog, maxConnections: 10, ...options });
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
    watch: () => undefined,
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
  const { hub } = open({ read: async () => ({}), watch: () => undefined });
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
  const { listen } = open({ read: async () => ({ id: 'a' }), watch: () => undefined });
  const [first, second] = [listen(find('pod:a')), listen(find('pod:%61'))];
  await expect.poll(() => first.seen.length + second.seen.length).toBe(2);
  expect(first.seen).toEqual(second.seen);
  const snapshot = { event: 'snapshot' as const, bytes: Buffer.from(''), isFinal: false };
  expect(composeStart(find('pod:%61'), snapshot)).toBe(
    'event: snapshot\ndata: {"topic":"pod:%61",',
  );
});

it('reads large topics of one user less often, and small ones of others as before', async () => {
  const reads = { ada: 0, ben: 0 };
  const { clock, hub } = open({
    async read({ holder: { userId } }) {
      reads[userId === 'ada' ? 'ada' : 'ben'] += 1;
      return { n: reads.ada, text: 'x'.repeat(userId === 'ada' ? 2_000_000 : 10) };
    },
    watch: () => undefined,
  });
  for (let n = 0; n < 30; n++) hub.listen(caller, find(`activity:e${n}`), () => {});
  hub.listen({ ...caller, holder: { ...holder, userId: 'ben' } }, find('activity:e'), () => {});
  for (let ms = 0; ms < 20_000; ms += 100) await clock.advance(100);
  expect(reads.ben).toBeGreaterThanOrEqual(19);
  // 8 MB at once and 4 MB a second; without the bound it would be 600.
  expect(reads.ada).toBeLessThan(80);
  expect(reads.ada).toBeGreaterThan(30);
});

it('reads no more for a user whose client reconnects all the time', async () => {
  let bytes = 0;
  const { clock, hub, listen } = open({
    read: async () => {
      const text = 'x'.repeat(2_000_000);
      bytes += text.length;
      return { text };
    },
    watch: () => undefined,
  });
  for (let round = 0; round < 100; round++) {
    const { leave } = listen(find('pods'));
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    leave();
    await clock.advance(10);
  }
  expect(hub.topics).toBe(0);
  const { userBurstBytes, userBytesPerSecond } = EVENT_LIMITS;
  expect(bytes).toBeLessThan(userBurstBytes + userBytesPerSecond + 2_000_000);
});

it('refuses topics of a user that would keep too many bytes', async () => {
  const { clock, hub } = open({
    read: async () => ({ text: 'x'.repeat(4_000_000) }),
    watch: () => undefined,
  });
  const seen: string[] = [];
  for (let n = 0; n < 20; n++) {
    hub.listen(caller, find(`activity:e${n}`), ({ bytes, event }) => {
      seen.push(event === 'snapshot' ? event : String(bytes));
    });
  }
  for (let s = 0; s < 60; s++) await clock.advance(1_000);
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
    for (let s = 0; s < 30; s++) await clock.advance(1_000);
    for (const { leave, seen } of topics) {
      expect(seen.at(-1)).toContain('"data"');
      leave();
    }
    await clock.advance(0);
  }
});

it('gives bytes back that a topic has waited for in vain', async () => {
  const { clock, listen } = open({
    read: async () => ({ n: clock.now(), text: 'x'.repeat(2_000_000) }),
    watch: () => undefined,
  });
  const first = listen(find('pods'));
  for (let n = 0; n < 400; n++) {
    const { leave } = listen(find(`activity:e${n}`));
    await clock.advance(0);
    leave();
    await clock.advance(0);
  }
  first.leave();
  const { seen } = listen(find('pods'));
  for (let s = 0; s < 10; s++) await clock.advance(1_000);
  expect(seen).not.toEqual([]);
});

it('reads the changes of a topic no faster than the bytes of its user allow', async () => {
  let reads = 0;
  const { clock, listen } = open({
    async read() {
      reads += 1;
      return { n: reads, text: 'x'.repeat(4_000_000) };
    },
    watch: () => waiters.open('e'),
  });
  const waiters = new Waiters(clock);
  listen(find('endpoint:e'));
  for (let ms = 0; ms < 20_000; ms += 100) {
    waiters.wake('e');
    await clock.advance(100);
  }
  // 8 MB at once and 4 MB a second; without the bound it would be more.
  expect(reads).toBeGreaterThan(10);
  expect(reads).toBeLessThan(25);
});
