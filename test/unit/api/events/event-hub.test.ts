// Topics that several connections share, and what becomes of them when their data is gone.
import { expect, it, onTestFinished } from 'vitest';
import { EventHub, type EventHubOptions } from '../../../../src/api/events/event-hub.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { readTopic, type Topic } from '../../../../src/wire/routes/event-topics.ts';

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
  return { hub, listen };
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
