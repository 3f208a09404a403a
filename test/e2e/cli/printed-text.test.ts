// Text of handlers on its way to a terminal: what they return, log and throw has control characters.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Workplace } from './command-run.ts';

const handler = `const bad = '\\u001b[2J\\u009b31m\\u202e\\u0007';
export default async function* (job, ctx) {
  console.log('said ' + bad);
  ctx.progress('progress ' + bad);
  if (job.input.fail) throw new Error('thrown ' + bad);
  yield 'yielded ' + bad;
}`;

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
const CONTROLS = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]/;

let place: Workplace;
beforeEach(() => {
  place = new Workplace();
  place.write('bad.mjs', handler);
});
afterEach(() => place.close());

describe('millrace run', () => {
  it.each([
    ['output', '{}', []],
    ['an error', '{"fail":true}', []],
    ['events', '{}', ['--json']],
  ])('prints %s without control characters', async (_, input, args) => {
    const { stdout, stderr } = await place.run(['run', 'bad.mjs', '--input', input, ...args]);
    expect(stdout + stderr).toMatch(/said .*u001b/);
    expect(stdout + stderr).toMatch(/(yielded|thrown) .*u009b/);
    expect(stdout).not.toMatch(CONTROLS);
    expect(stderr).not.toMatch(CONTROLS);
  });
});
