import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

const MODULE = new URL('../../../src/base/v8-flags.ts', import.meta.url).href;

/** So many objects, of about 90 bytes each, most of them there already before the first of some collections. */
const writeScript = (objects: number) => `
  (await import('${MODULE}')).letHeapGrow();
  const heap = Array.from({ length: ${objects} }, (_, index) => ({ index, next: [index] }));
  for (let round = 0; round < 3; round++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
`;

/** Returns the size of the heap after a full collection and its size at the next one, as V8 traces them, MB. */
async function readLimits(objects: number): Promise<{ size: number; limit: number }> {
  const trace = ['--expose-gc', '--trace-gc-verbose', '--max-semi-space-size=1'];
  const script = ['--input-type=module', '--eval', writeScript(objects)];
  const options = { maxBuffer: 64 * 1_048_576 };
  const child = await promisify(execFile)(process.execPath, [...trace, ...script], options);
  const found = [
    ...child.stdout.matchAll(/\[HeapController\] Limit: old size: (\d+) KB, new limit: (\d+) KB/g),
  ];
  const [, size, limit] = found.at(-1) ?? [];
  return { size: Number(size) / 1_024, limit: Number(limit) / 1_024 };
}

describe('a heap that may grow', () => {
  it('doubles until its next full collection, however fast it grew before', async () => {
    const { limit, size } = await readLimits(1_500_000);
    expect(size).toBeGreaterThan(100);
    expect(limit / size).toBeGreaterThanOrEqual(2);
    expect(limit / size).toBeLessThan(2.3);
  });

  it('grows by 64 MB if it is small', async () => {
    const { limit, size } = await readLimits(1_000);
    expect(size).toBeLessThan(20);
    expect(limit - size).toBeGreaterThan(60);
    expect(limit - size).toBeLessThan(80);
  });
});

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
