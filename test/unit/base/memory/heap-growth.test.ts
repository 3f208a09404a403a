import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

const MODULE = new URL('../../../../src/base/memory/heap-growth.ts', import.meta.url).href;

/** 50 MB of heap, most of them there already before the first of some collections. */
const SCRIPT = `
  (await import('${MODULE}')).letHeapGrow();
  const heap = Array.from({ length: 500_000 }, (_, index) => ({ index, next: [index] }));
  for (let round = 0; round < 3; round++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
`;

/** Returns how far the heap may grow until the next full collection, as V8 traces it: new limit / size. */
async function readGrowth(): Promise<number> {
  const trace = ['--expose-gc', '--trace-gc-verbose', '--max-semi-space-size=1'];
  const script = ['--input-type=module', '--eval', SCRIPT];
  const options = { maxBuffer: 64 * 1_048_576 };
  const child = await promisify(execFile)(process.execPath, [...trace, ...script], options);
  const found = [
    ...child.stdout.matchAll(/\[HeapController\] Limit: old size: (\d+) KB, new limit: (\d+) KB/g),
  ];
  const [, size, limit] = found.at(-1) ?? [];
  return Number(limit) / Number(size);
}

describe('a heap that may grow', () => {
  it('doubles until its next full collection, however fast it grew before', async () => {
    const growth = await readGrowth();
    expect(growth).toBeGreaterThanOrEqual(2);
    expect(growth).toBeLessThan(2.3);
  });
});
