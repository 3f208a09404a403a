import { expect, it } from 'vitest';
import { dropCutLine, findGrowth } from '../../../../src/cli/resources/pods.ts';

it.each([
  ['nothing new', 'a\nb\n', 'a\nb\n', ''],
  ['a whole log that grew', 'a\n', 'a\nb\n', 'b\n'],
  ['the rest of a line', 'a', 'ab\n', 'b\n'],
  ['a moved window', 'a\nb\nc\n', 'b\nc\nd\n', 'd\n'],
  ['a window of equal lines, moved as little as possible', 'x\nx\ny\n', 'x\ny\nx\ny\n', 'x\ny\n'],
  ['the first output', '', 'a\n', 'a\n'],
  ['an end of a start that repeats', 'aab', 'aabaabaac', 'aabaac'],
])('finds %s', (_what, before, after, added) => {
  expect(findGrowth(before, after)).toEqual({ added, isBroken: false });
});

it('prints everything and says so if nothing connects the ends', () => {
  expect(findGrowth('a\n', 'z\n')).toEqual({ added: 'z\n', isBroken: true });
});

it('leaves the cut line at the start of a window out', () => {
  expect(dropCutLine('ut\nb\n', 5)).toBe('b\n');
  expect(dropCutLine('cut\nb\n', 7)).toBe('cut\nb\n');
});

it('takes long equal windows in linear time', () => {
  const before = 'a'.repeat(200_000);
  expect(findGrowth(`b${before}`, `${before}c`).added).toBe('c');
});
