// What one user may take of the event streams of a node, and how a topic goes on after a failure.
import { expect, it, onTestFinished } from 'vitest';
import { type EventCaller, EventHub } from '../../../../src/api/events/event-hub.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { EVENT_LIMITS, readTopic, type Topic } from '../../../../src/wire/routes/event-topics.ts';

function callerOf(userId: string, id: string): EventCaller {
  const holder = { keyId: id, name: 'k', scopes: new Set(['admin']), expiresAt: null, podId: null };
  return { holder: { ...holder, userId }, id, credentials: {} };
}

function openHub(read: (caller: EventCaller) => Promise<object>) {
  const clock = new ManualClock();
  const watch = () => undefined;
  const base = { clock, log: silentLog, maxConnections: 40, monotonic: () => 0 };
  const hub = new EventHub({ ...base, number: () => undefined, read, watch });
  onTestFinished(() => hub.stop());
  return { clock, hub };
}

const topicOf = (name: string): Topic => {
  const topic = readTopic(name);
  if (!topic) throw new Error(`${name} is no topic`);
  return topic;
};

it('leaves half of the connections to other users, whatever the number of keys', () => {
  const { hub } = openHub(async () => ({}));
  const leave = Array.from({ length: 20 }, (_, index) => hub.enter(callerOf('ada', `key${index}`)));
  expect(() => hub.enter(callerOf('ada', 'one more'))).toThrow('already have 20 event streams');
  hub.enter(callerOf('bob', 'other'));
  leave[0]?.();
  hub.enter(callerOf('ada', 'one more'));
});

it('has a bound of different topics for each user', () => {
  const { hub } = openHub(async () => ({}));
  const listen = (user: string, index: number) =>
    hub.listen(callerOf(user, 'k'), topicOf(`pod:${index}`), () => {});
  const leave = Array.from({ length: EVENT_LIMITS.userTopics }, (_, at) => listen('ada', at));
  expect(() => listen('ada', 1_000)).toThrow('already have 500 different topics');
  listen('ada', 7);
  listen('bob', 1_000);
  leave[0]?.();
  leave[0]?.();
  listen('ada', 1_000);
  expect(() => listen('ada', 1_001)).toThrow('already have 500');
});

it('goes on with the next caller after another node has refused a revoked key', async () => {
  const { clock, hub } = openHub(async ({ id }) => {
    if (id === 'revoked') throw new ProblemError('unauthorized', 'the API key is unknown');
    return { fine: true };
  });
  const seen: string[] = [];
  const topic = topicOf('overview');
  const leave = hub.listen(callerOf('ada', 'revoked'), topic, () => {});
  hub.listen(callerOf('ada', 'good'), topic, ({ bytes }) => seen.push(bytes.toString()));
  await clock.advance(1_000);
  leave();
  await clock.advance(2_000);
  expect(seen.at(-1)).toContain('"fine":true');
});
