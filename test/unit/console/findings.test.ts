// What the palette of the console finds.
import { describe, expect, it } from 'vitest';
import { type Finding, findAmong, isJobId } from '../../../console/src/shell/findings.ts';

function of(name: string, kind: string): Finding {
  return { name, kind, target: '/' };
}

const ALL = [
  of('Failed jobs', 'Page'),
  of('echo', 'Endpoint'),
  of('echo', 'Jobs'),
  of('re-echo', 'Endpoint'),
  of('Theme: dark', 'Action'),
];

function namesOf(text: string): string[] {
  return findAmong(ALL, text).map(({ kind, name }) => `${name} ${kind}`);
}

describe('the palette', () => {
  it('finds every word in the name or the kind, in any order', () => {
    expect(namesOf('jobs echo')).toEqual(['echo Jobs']);
    expect(namesOf(' DARK ')).toEqual(['Theme: dark Action']);
    expect(namesOf('nothing')).toEqual([]);
  });

  it('has names that begin with the text first', () => {
    expect(namesOf('endpoint')).toEqual(['echo Endpoint', 're-echo Endpoint']);
    expect(findAmong(ALL.toReversed(), 'echo').map(({ name }) => name)).toEqual([
      ...['echo', 'echo', 're-echo'],
    ]);
  });

  it('shows a bounded number of findings', () => {
    const many = Array.from({ length: 1_000 }, (_, n) => of(`endpoint ${n}`, 'Endpoint'));
    expect(findAmong(many, '').length).toBeLessThan(20);
  });

  it.each([
    ['01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76', true],
    [' sync-01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76 ', true],
    ['01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76-u1', true],
    ['01912f4e', false],
    ['customer-7', false],
    ['', false],
  ])('takes %j for the ID of a job: %s', (text, isId) => {
    expect(isJobId(text)).toBe(isId);
  });
});
