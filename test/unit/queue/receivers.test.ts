// Who gets a try: limits in all and for each receiver, and that those that fail hold up nobody.
import { describe, expect, it } from 'vitest';
import { Receivers } from '../../../src/queue/receivers.ts';

function make({ maxBytes = 100, maxConcurrent = 8, maxPerReceiver = 3 } = {}): Receivers {
  return new Receivers({ maxBytes, maxConcurrent, maxPerReceiver });
}

/** It has failed before and has more to come. */
function letFail(receivers: Receivers, name: string, nextAt = 0): void {
  const end = receivers.begin(name);
  receivers.note(name, nextAt);
  end(false);
}

describe('receivers', () => {
  it('are ready when their time has come, the longest due first', () => {
    const receivers = make();
    receivers.note('b', 20);
    receivers.note('a', 10);
    receivers.note('c', 30);
    expect(receivers.nextAt()).toBe(10);
    expect(receivers.listReady(20)).toEqual(['a', 'b']);
  });

  it('keep the earliest of their times, until they are looked up', () => {
    const receivers = make();
    receivers.note('a', 10);
    receivers.note('a', 20);
    expect(receivers.nextAt()).toBe(10);
    receivers.beginLook('a');
    expect(receivers.nextAt()).toBe(Number.POSITIVE_INFINITY);
    receivers.note('a', 20);
    expect(receivers.nextAt()).toBe(20);
  });

  it('get so many tries at a time and no more', () => {
    const receivers = make();
    receivers.note('a', 0);
    const ends = [receivers.begin('a'), receivers.begin('a'), receivers.begin('a')];
    expect(receivers.roomFor('a')).toBe(0);
    expect(receivers.listReady(0)).toEqual([]);
    expect(receivers.nextAt()).toBe(Number.POSITIVE_INFINITY);
    ends[0]?.(true);
    expect(receivers.roomFor('a')).toBe(1);
    expect(receivers.listReady(0)).toEqual(['a']);
  });

  it('share the tries that there are in all', () => {
    const receivers = make({ maxConcurrent: 4 });
    for (const name of ['a', 'a', 'a', 'b']) receivers.begin(name);
    receivers.note('c', 0);
    expect(receivers.listReady(0)).toEqual([]);
  });

  it('that failed get one try at a time, until one succeeds', () => {
    const receivers = make();
    letFail(receivers, 'a');
    expect(receivers.roomFor('a')).toBe(1);
    const end = receivers.begin('a');
    expect(receivers.roomFor('a')).toBe(0);
    end(true);
    expect(receivers.roomFor('a')).toBe(3);
  });

  it('whose try was broken off are neither better nor worse for it', () => {
    const receivers = make();
    letFail(receivers, 'a');
    receivers.begin('a')(undefined);
    expect(receivers.roomFor('a')).toBe(1);
  });

  it('that failed never have more than half of all tries', () => {
    const receivers = make({ maxConcurrent: 4 });
    for (const name of ['a', 'b', 'c']) letFail(receivers, name);
    receivers.begin('a');
    receivers.begin('b');
    expect(receivers.roomFor('c')).toBe(0);
    expect(receivers.roomFor('healthy')).toBeGreaterThan(0);
  });

  it('get no more bytes than fit, and one record that never fits', () => {
    const receivers = make();
    expect(receivers.hasRoomOf('a', 500)).toBe(true);
    const end = receivers.begin('a', 60);
    expect(receivers.hasRoomOf('b', 40)).toBe(true);
    expect(receivers.hasRoomOf('b', 41)).toBe(false);
    end(true);
    expect(receivers.hasRoomOf('b', 41)).toBe(true);
  });

  it('that failed never have more than half of all bytes, so that others have some', () => {
    const receivers = make();
    for (const name of ['a', 'b']) letFail(receivers, name);
    const end = receivers.begin('a', 40);
    expect(receivers.hasRoomOf('b', 10)).toBe(true);
    expect(receivers.hasRoomOf('b', 11)).toBe(false);
    expect(receivers.hasRoomOf('healthy', 60)).toBe(true);
    end(false);
    expect(receivers.hasRoomOf('b', 100)).toBe(true);
  });

  it('are forgotten when there is nothing for them', () => {
    const receivers = make();
    letFail(receivers, 'a', 50);
    receivers.beginLook('a');
    receivers.endLook('a');
    expect(receivers.roomFor('a')).toBe(3);
  });

  it('are not forgotten while they are looked up or tried', () => {
    const receivers = make();
    letFail(receivers, 'a');
    receivers.beginLook('a');
    const end = receivers.begin('a');
    receivers.endLook('a');
    expect(receivers.roomFor('a')).toBe(0);
    end(undefined);
  });
});
