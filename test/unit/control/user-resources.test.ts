import { describe, expect, it } from 'vitest';
import { NameIndex, Positions } from '../../../src/control/user-resources.ts';
import { ProblemError } from '../../../src/wire/problem.ts';
import { isDnsLabel } from '../../../src/wire/routes/route.ts';

const LONGEST = 'a'.repeat(63);

describe('a name that may stand in for an ID', () => {
  it.each(['a', '7', 'chat', 'chat-2', 'a--b', LONGEST])('is %s', (name) => {
    expect(isDnsLabel(name)).toBe(true);
  });

  it.each(['', '-a', 'a-', 'Chat', 'my chat', 'a.b', 'a_b', 'ep_01912f4e', 'é', `${LONGEST}a`])(
    'is not %j',
    (name) => {
      expect(isDnsLabel(name)).toBe(false);
    },
  );
});

describe('a name', () => {
  const open = () => {
    const names = new NameIndex('endpoints');
    const put = (id: string, name: string, userId = 'ann') => names.put(id, { userId, name });
    return { names, put };
  };

  it("finds the user's record, and no other user's", () => {
    const { names, put } = open();
    put('ep_1', 'chat');
    put('ep_2', 'chat', 'bob');
    expect(names.resolve('ann', 'chat')).toBe('ep_1');
    expect(names.resolve('bob', 'chat')).toBe('ep_2');
    expect(names.resolve('eve', 'chat')).toBe('chat');
  });

  it('finds nothing if it is not a DNS label', () => {
    const { names, put } = open();
    put('ep_1', 'My chat');
    expect(names.resolve('ann', 'My chat')).toBe('My chat');
  });

  it('follows a change', () => {
    const { names, put } = open();
    put('ep_1', 'chat');
    put('ep_1', 'talk');
    expect(names.resolve('ann', 'chat')).toBe('chat');
    expect(names.resolve('ann', 'talk')).toBe('ep_1');
    put('ep_1', 'Not a label');
    expect(names.resolve('ann', 'talk')).toBe('talk');
    put('ep_1', 'talk');
    put('ep_1', 'talk', 'bob');
    expect(names.resolve('ann', 'talk')).toBe('talk');
    expect(names.resolve('bob', 'talk')).toBe('ep_1');
  });

  it('is refused with their IDs for several records, until one is left', () => {
    const { names, put } = open();
    put('ep_1', 'chat');
    put('ep_2', 'chat');
    const message = '2 endpoints have the name chat; use the ID of one: ep_1, ep_2';
    expect(() => names.resolve('ann', 'chat')).toThrow(new ProblemError('conflict', message));
    names.remove('ep_1');
    expect(names.resolve('ann', 'chat')).toBe('ep_2');
    names.remove('ep_2');
    expect(names.resolve('ann', 'chat')).toBe('chat');
  });

  it('is refused for very many records with ten of their IDs', () => {
    const { names, put } = open();
    for (let n = 1; n <= 12; n++) put(`ep_${n}`, 'chat');
    const refusal = /^12 endpoints .*: ep_1, .*, ep_10 and 2 more$/;
    expect(() => names.resolve('ann', 'chat')).toThrow(refusal);
  });
});

it('gives a later record a greater position, even if the clock was set back', () => {
  const positions = new Positions(0);
  const made = [2_000, 2_000, 1_000, 2_001].map((now) => positions.next(now));
  expect(made).toEqual(made.toSorted((a, b) => a - b));
  expect(new Set(made).size).toBe(4);
});

it('uses no position again after a restart, even if its record was removed', () => {
  const before = new Positions(0);
  const made = Array.from({ length: 900 }, () => before.next(1_000));
  expect(new Positions(0).next(1_001)).toBeGreaterThan(Math.max(...made));
});
