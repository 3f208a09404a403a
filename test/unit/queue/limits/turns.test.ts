// The line of a shared limit: who may use what is free.
import { expect, it } from 'vitest';
import { OFFER_MS, Turns } from '../../../../src/queue/limits/shared/turns.ts';

function line(...demands: [who: string, demand: number, weight?: number][]): Turns {
  const turns = new Turns();
  for (const [who, demand, weight = 1] of demands) turns.wait(who, { demand, weight, now: 0 });
  return turns;
}

const CASES: [name: string, turns: Turns, free: number, offers: Record<string, number>][] = [
  ['nobody waits', line(), 5, {}],
  ['nothing is free', line(['a', 1]), 0, {}],
  ['the first of the line comes first', line(['a', 5], ['b', 5]), 1, { a: 1 }],
  ['each gets as much as the others', line(['a', 9], ['b', 9]), 6, { a: 3, b: 3 }],
  ['the rest goes to the first', line(['a', 9], ['b', 9]), 5, { a: 3, b: 2 }],
  ['who wants less leaves the rest to others', line(['a', 1], ['b', 9]), 6, { a: 1, b: 5 }],
  ['a shard counts for its endpoints', line(['a', 9], ['s', 9, 2]), 6, { a: 2, s: 4 }],
  ['all get what they want', line(['a', 1], ['b', 2]), 9, { a: 1, b: 2 }],
];

it.each(CASES)('offers what is free: %s', (_name, turns, free, offers) => {
  const made = turns.offer(free, 0).map(({ count, who }) => [who, count]);
  expect(Object.fromEntries(made)).toEqual(offers);
});

it('keeps an offer for its endpoint, and lets others use the rest', () => {
  const turns = line(['a', 2]);
  turns.offer(5, 0);
  expect([turns.shareOf('a', 5), turns.shareOf('b', 5)]).toEqual([5, 3]);
});

it('moves an endpoint that has started jobs to the end of the line', () => {
  const turns = line(['a', 5], ['b', 5]);
  turns.offer(1, 0);
  turns.took('a', 1, 0);
  expect(turns.offer(1, 0)).toEqual([{ who: 'b', count: 1 }]);
});

it('gives an offer that nobody uses to the next one', () => {
  const turns = line(['a', 1], ['b', 1]);
  turns.offer(1, 0);
  expect(turns.offer(1, OFFER_MS - 1)).toEqual([]);
  expect(turns.offer(1, OFFER_MS)).toEqual([{ who: 'b', count: 1 }]);
});

it('offers no more than is free once an offer has ended', () => {
  const turns = line(['a', 2], ['b', 1]);
  turns.offer(1, 0);
  expect(turns.offer(1, OFFER_MS)).toEqual([{ who: 'a', count: 1 }]);
  expect(turns.shareOf('b', 1)).toBe(0);
});

it('keeps the offer of an endpoint that other limits have held back for long', () => {
  const turns = line(['a', 1], ['b', 1]);
  turns.offer(1, 6_000);
  turns.noteHeldBack('a', 6_000);
  expect(turns.offer(1, 6_000 + OFFER_MS)).toEqual([]);
  expect(turns.shareOf('b', 1)).toBe(0);
});
