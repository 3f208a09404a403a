import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

const MODULE = new URL('../../../../src/base/memory/start-garbage.ts', import.meta.url).href;

/**
 * Leaves garbage that has lived long enough for the old generation, which only a whole collection frees. Then waits until
 * it is gone or 3 s are over.
 */
const SCRIPT = `
  const { collectStartGarbage } = await import('${MODULE}');
  const isBusy = process.argv[1] === 'busy';
  const isLarge = process.argv[1] === 'large';
  const kept = isLarge ? Array.from({ length: 2_000_000 }, (_, index) => ({ index })) : [];
  let garbage = Array.from({ length: 200_000 }, (_, index) => ({ index, next: [index] }));
  const before = process.memoryUsage().heapUsed;
  garbage = undefined;
  let asked = 0;
  collectStartGarbage(() => (asked++, isBusy));
  const isSmaller = () => process.memoryUsage().heapUsed < before - 5_000_000;
  for (let turn = 0; turn < 60 && !isSmaller(); turn++)
    await new Promise((resolve) => setTimeout(resolve, 50));
  console.log(JSON.stringify({ isSmaller: isSmaller(), asked, gc: typeof gc, kept: kept.length > 0 }));
`;

async function runScript(how: string): Promise<unknown> {
  const args = ['--input-type=module', '--eval', SCRIPT, how];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  return JSON.parse(stdout);
}

describe('the garbage of a start', () => {
  it('is collected once the process is idle', async () => {
    expect(await runScript('idle')).toMatchObject({ isSmaller: true, asked: 1, gc: 'undefined' });
  });

  it.each(['busy', 'large'])('stays if the process is %s then', async (how) => {
    expect(await runScript(how)).toMatchObject({ isSmaller: false, asked: 1 });
  });

  it('does not keep the process running', async () => {
    const script = `(await import('${MODULE}')).collectStartGarbage(() => { throw new Error(); })`;
    const run = promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script]);
    await expect(run).resolves.toMatchObject({ stderr: '' });
  });
});
