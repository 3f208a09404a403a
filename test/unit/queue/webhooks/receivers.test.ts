// Which receiver gets an attempt: limits in all, of one user and of one receiver, and that receivers
// which fail or hang hold up nobody.
import { describe, expect, it } from 'vitest';
import { Receivers } from '../../../../src/queue/webhooks/webhooks.ts';
import { createRandom } from '../../../support/random.ts';

const LIMITS = { maxConcurrent: 8, maxPerReceiver: 3, maxPerUser: 8, maxUnprovenPerUser: 4 };

function make(limits: Partial<typeof LIMITS> = {}): Receivers {
  return new Receivers({ ...LIMITS, ...limits });
}

function keyOf(receiver: string, userId = 'ada') {
  return { userId, receiver };
}

/** It has answered before and has more to come. */
function prove(receivers: Receivers, name: string, userId = 'ada'): void {
  const end = receivers.begin(keyOf(name, userId));
  receivers.note(keyOf(name, userId), 0);
  end(true);
}

describe('receivers', () => {
  it('are ready at their time, the longest due first', () => {
    const receivers = make();
    receivers.note(keyOf('b'), 20);
    receivers.note(keyOf('a'), 10);
    receivers.note(keyOf('c'), 30);
    expect(receivers.nextAt()).toBe(10);
    expect(receivers.listReady(20)).toEqual([keyOf('a'), keyOf('b')]);
  });

  it('keep the earliest of their times, until their deliveries are read', () => {
    const receivers = make();
    receivers.note(keyOf('a'), 10);
    receivers.note(keyOf('a'), 20);
    expect(receivers.nextAt()).toBe(10);
    receivers.beginRead(keyOf('a'));
    expect(receivers.nextAt()).toBe(Number.POSITIVE_INFINITY);
    receivers.note(keyOf('a'), 20);
    expect(receivers.nextAt()).toBe(20);
  });

  it('get one attempt at a time until one succeeds, then several', () => {
    const receivers = make();
    receivers.note(keyOf('a'), 0);
    const end = receivers.begin(keyOf('a'));
    expect(receivers.capacityFor(keyOf('a'))).toBe(0);
    expect(receivers.listReady(0)).toEqual([]);
    expect(receivers.nextAt()).toBe(Number.POSITIVE_INFINITY);
    end(true);
    expect(receivers.capacityFor(keyOf('a'))).toBe(3);
    expect(receivers.listReady(0)).toEqual([keyOf('a')]);
  });

  it('get one attempt at a time again after one failed', () => {
    const receivers = make();
    prove(receivers, 'a');
    receivers.begin(keyOf('a'))(false);
    expect(receivers.capacityFor(keyOf('a'))).toBe(1);
  });

  it('keep their state after an aborted attempt', () => {
    const receivers = make();
    prove(receivers, 'a');
    receivers.begin(keyOf('a'))(undefined);
    expect(receivers.capacityFor(keyOf('a'))).toBe(3);
  });

  it('share the limit of all attempts', () => {
    const receivers = make({ maxConcurrent: 2 });
    for (const name of ['a', 'b']) {
      prove(receivers, name);
      receivers.begin(keyOf(name));
    }
    receivers.note(keyOf('c', 'grace'), 0);
    expect(receivers.listReady(0)).toEqual([]);
  });

  it('never have more than half of all attempts until they are proven', () => {
    const receivers = make({ maxConcurrent: 4 });
    receivers.begin(keyOf('a'));
    receivers.begin(keyOf('b'));
    expect(receivers.capacityFor(keyOf('c'))).toBe(0);
    prove(receivers, 'proven', 'grace');
    expect(receivers.capacityFor(keyOf('proven', 'grace'))).toBe(2);
  });

  it('have the whole limit of the user at first', () => {
    const receivers = make({ maxPerUser: 2, maxUnprovenPerUser: 2 });
    receivers.begin(keyOf('a'));
    expect(receivers.capacityFor(keyOf('b'))).toBe(1);
  });

  it("never exceed the user's limit, proven or not", () => {
    const receivers = make({ maxPerUser: 3, maxUnprovenPerUser: 2 });
    receivers.begin(keyOf('a'));
    receivers.begin(keyOf('b'));
    expect(receivers.capacityFor(keyOf('c'))).toBe(0);
    expect(receivers.capacityFor(keyOf('c', 'grace'))).toBe(1);
    prove(receivers, 'd', 'grace');
    for (let n = 0; n < 3; n++) receivers.begin(keyOf('d', 'grace'));
    expect(receivers.capacityFor(keyOf('e', 'grace'))).toBe(0);
  });

  it('come first for the least busy user', () => {
    const receivers = make();
    receivers.begin(keyOf('busy'));
    receivers.note(keyOf('a'), 0);
    receivers.note(keyOf('b', 'grace'), 5);
    expect(receivers.listReady(5)).toEqual([keyOf('b', 'grace'), keyOf('a')]);
  });

  it('fail separately for different users of the same name', () => {
    const receivers = make();
    prove(receivers, 'a');
    prove(receivers, 'a', 'grace');
    receivers.begin(keyOf('a', 'grace'))(false);
    expect(receivers.capacityFor(keyOf('a'))).toBe(3);
  });

  it('are forgotten when nothing is due for them', () => {
    const receivers = make();
    prove(receivers, 'a');
    receivers.beginRead(keyOf('a'));
    receivers.endRead(keyOf('a'));
    expect(receivers.capacityFor(keyOf('a'))).toBe(1);
  });

  it('are not forgotten while their deliveries are read or attempted', () => {
    const receivers = make();
    prove(receivers, 'a');
    receivers.beginRead(keyOf('a'));
    const end = receivers.begin(keyOf('a'));
    receivers.endRead(keyOf('a'));
    expect(receivers.capacityFor(keyOf('a'))).toBe(2);
    end(undefined);
  });

  it('are listed for a user no further than it may have attempts, the longest due first', () => {
    const receivers = make();
    for (let n = 0; n < 1_000; n++) receivers.note(keyOf(`host-${n}`), n);
    receivers.note(keyOf('other', 'grace'), 5_000);
    const listed = receivers.listReady(9_999);
    expect(listed.map(({ receiver }) => receiver)).toEqual([
      'host-0',
      'host-1',
      'host-2',
      'host-3',
      'other',
    ]);
  });

  it('are listed whenever one is due and may have an attempt', () => {
    const random = createRandom(1);
    const int = (below: number) => Math.floor(random() * below);
    const receivers = make();
    const due = new Map<string, number>();
    const ends: ReturnType<Receivers['begin']>[] = [];
    const keys = ['ada', 'grace', 'joan'].flatMap((user) =>
      Array.from({ length: 9 }, (_, n) => keyOf(`host-${n}`, user)),
    );
    const nameOf = ({ receiver, userId }: { receiver: string; userId: string }) =>
      `${userId} ${receiver}`;
    for (let step = 0; step < 5_000; step++) {
      const key = keys[int(keys.length)] ?? keyOf('none');
      const [kind, at] = [int(4), int(100)];
      if (kind === 0) {
        receivers.note(key, at);
        due.set(nameOf(key), Math.min(due.get(nameOf(key)) ?? at, at));
      } else if (kind === 1) {
        receivers.beginRead(key);
        due.delete(nameOf(key));
        receivers.endRead(key);
      } else if (kind === 2 && receivers.capacityFor(key) > 0) {
        ends.push(receivers.begin(key));
      } else {
        ends.splice(int(ends.length), 1)[0]?.([true, false, undefined][int(3)]);
      }
      const now = int(100);
      const free = keys.filter((each) => due.has(nameOf(each)) && receivers.capacityFor(each) > 0);
      const times = free.map((each) => due.get(nameOf(each)) ?? 0);
      expect(receivers.nextAt()).toBe(Math.min(Number.POSITIVE_INFINITY, ...times));
      const ready = free.filter((each) => (due.get(nameOf(each)) ?? 0) <= now).map(nameOf);
      const listed = receivers.listReady(now).map(nameOf);
      expect(ready).toEqual(expect.arrayContaining(listed));
      expect(listed.length > 0).toBe(ready.length > 0);
    }
  });
});
