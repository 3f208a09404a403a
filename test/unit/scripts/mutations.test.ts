import { describe, expect, it } from 'vitest';
import { listMutations } from '../../../scripts/mutants/mutations.ts';

function mutate(source: string): string[] {
  return listMutations('a.ts', source).map(
    ({ start, end, replacement }) => source.slice(0, start) + replacement + source.slice(end),
  );
}

describe('the mutants', () => {
  it.each([
    ['a < b', ['a <= b', 'a >= b']],
    ['a === b', ['a !== b']],
    ['a && b', ['(a || b)']],
    ['a ?? b ?? c', ['((a ?? b) && c)', '(a && b) ?? c']],
    ['!a', ['a']],
    ['Math.min(a, b)', ['Math.max(a, b)']],
    ['[a]', ['[]']],
    ['4', ['(5)', '(3)']],
    ["'code'", ["''"]],
    ['true', ['false']],
  ])('replace parts of %s', (expression, expected) => {
    expect(mutate(`f = (${expression})`)).toEqual([
      ';',
      ...expected.map((text) => `f = (${text})`),
    ]);
  });

  it('remove statements and change conditions', () => {
    expect(mutate('await run();')).toEqual([';']);
    expect(mutate('if (a) b += c;')).toEqual([
      'if (true) b += c;',
      'if (false) b += c;',
      'if (a) ;',
      'if (a) b -= c;',
    ]);
    expect(mutate('const f = () => { return a; }')).toEqual([
      'const f = () => { return undefined; }',
    ]);
  });

  it.each([
    ['types', "type A = 'a' | 1; const f = (x: A): x is 1 => x as 1;"],
    ['imports', "import { a } from './a.ts'; export * from './b.ts';"],
    ['log lines', "log.warn({ n: 1 }, 'late'); this.#log.info('x');"],
    ['text and tuned numbers', "const [a, b] = f('the disk is full', 30_000, 6 * 1_000)"],
  ])('skip %s', (_title, source) => {
    expect(mutate(source)).toEqual([]);
  });
});
