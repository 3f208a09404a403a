import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { TransientMap, TransientSet } from '../../../../src/base/memory/transient-entries.ts';

const MODULE = new URL('../../../../src/base/memory/transient-entries.ts', import.meta.url).href;

/**
 * Lets 200,000 entries of 1 KB come and go, 20 at a time, through a map that is in the old generation. Prints how many full
 * collections that takes.
 */
const SCRIPT = `
  const { TransientMap } = await import('${MODULE}');
  const { PerformanceObserver, constants } = await import('node:perf_hooks');
  const map = process.argv[1] === 'plain' ? new Map() : new TransientMap();
  map.set(-1, 'first');
  gc();
  gc();
  let full = 0;
  new PerformanceObserver((list) => {
    for (const { detail } of list.getEntries())
      if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) full++;
  }).observe({ entryTypes: ['gc'] });
  for (let number = 0; number < 200_000; number++) {
    map.set(number, new Array(128).fill(number));
    map.delete(number - 20);
    if (number % 1_000 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  console.log(full);
`;

async function countFullCollections(kind: 'plain' | 'transient'): Promise<number> {
  const flags = ['--expose-gc', '--max-semi-space-size=1', '--input-type=module'];
  const { stdout } = await promisify(execFile)(process.execPath, [
    ...flags,
    '--eval',
    SCRIPT,
    kind,
  ]);
  return Number(stdout);
}

describe('a transient map', () => {
  it('keeps entries and their order while others come and go', () => {
    const map = new TransientMap<string, number>();
    map.set('first', -1);
    for (let number = 0; number < 1_000; number++) {
      map.set(`${number}`, number);
      if (number >= 3) expect(map.delete(`${number - 3}`)).toBe(true);
    }
    expect(map.delete('0')).toBe(false);
    expect([...map]).toEqual([
      ['first', -1],
      ['997', 997],
      ['998', 998],
      ['999', 999],
    ]);
    expect([...map.keys()]).toEqual(['first', '997', '998', '999']);
    expect([...map.values()]).toEqual([-1, 997, 998, 999]);
    expect([map.size, map.get('998'), map.has('998'), map.has('0')]).toEqual([4, 998, true, false]);
    map.clear();
    expect([map.size, map.has('998')]).toEqual([0, false]);
  });

  it('returns each entry that an iteration removes once', () => {
    const set = new TransientSet<number>();
    for (let number = 0; number < 500; number++) set.add(number);
    const seen: number[] = [];
    for (const number of set) {
      seen.push(number);
      set.delete(number);
    }
    expect([seen.length, set.size, set.has(499)]).toEqual([500, 0, false]);
  });

  it('leaves no work for full collections, unlike a Map', async () => {
    expect(await countFullCollections('plain')).toBeGreaterThan(0);
    expect(await countFullCollections('transient')).toBe(0);
  });
});
