import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

const MODULE = new URL('../../../../src/base/memory/optimization.ts', import.meta.url).href;

/** Calls a function as often as V8 needs to optimize it, far below its default of 3,000 calls. */
const CALLS = `
  const add = (left, right) => {
    let sum = left;
    for (const value of right) sum += value.weight * 2 + 1;
    return sum;
  };
  const values = Array.from({ length: 20 }, (_, weight) => ({ weight }));
  let sum = 0;
  for (let round = 0; round < 2_000; round++) {
    sum = add(sum, values);
    if (round % 100 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
`;

/** Returns the compilers that V8 used for the function. */
async function readCompilers(prepare: string): Promise<Set<string>> {
  const script = ['--trace-opt', '--input-type=module', '--eval', prepare + CALLS];
  const { stdout } = await promisify(execFile)(process.execPath, script);
  const found = stdout.matchAll(/compiling method .*<JSFunction add .*\(target (\w+)\)/g);
  return new Set([...found].map(([, compiler = '']) => compiler));
}

describe('a process that optimizes early', () => {
  it('compiles a hot function with TurboFan at once, and not with Maglev before', async () => {
    expect(await readCompilers('')).toContain('MAGLEV');
    const early = `(await import('${MODULE}')).optimizeEarly();`;
    expect([...(await readCompilers(early))]).toEqual(['TURBOFAN_JS']);
  });
});
