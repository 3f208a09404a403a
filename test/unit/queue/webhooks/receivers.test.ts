// Which receiver gets an attempt: limits in all, of one user and of one receiver, and that receivers
// which fail or hang hold up nobody.
import { describe, expect, it } from 'vitest';
import { Receivers } from '../../../../src/queue/webhooks/receivers.ts';

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
  it('are ready when their time has come, the longest due first', () => {
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

  it('that are not proven never have more than half of all attempts', () => {
    const receivers = make({ maxConcurrent: 4 });
    receivers.begin(keyOf('a'));
    receivers.begin(keyOf('b'));
    expect(receivers.capacityFor(keyOf('c'))).toBe(0);
    prove(receivers, 'proven', 'grace');
    expect(receivers.capacityFor(keyOf('proven', 'grace'))).toBe(2);
  });

  it("of one user never exceed the user's limit, proven or not", () => {
    const receivers = make({ maxPerUser: 3, maxUnprovenPerUser: 2 });
    receivers.begin(keyOf('a'));
    receivers.begin(keyOf('b'));
    expect(receivers.capacityFor(keyOf('c'))).toBe(0);
    expect(receivers.capacityFor(keyOf('c', 'grace'))).toBe(1);
    prove(receivers, 'd', 'grace');
    for (let n = 0; n < 3; n++) receivers.begin(keyOf('d', 'grace'));
    expect(receivers.capacityFor(keyOf('e', 'grace'))).toBe(0);
  });

  it('of the least busy user come first', () => {
    const receivers = make();
    receivers.begin(keyOf('busy'));
    receivers.note(keyOf('a'), 0);
    receivers.note(keyOf('b', 'grace'), 5);
    expect(receivers.listReady(5)).toEqual([keyOf('b', 'grace'), keyOf('a')]);
  });

  it('of the same name but different users fail separately', () => {
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
});
