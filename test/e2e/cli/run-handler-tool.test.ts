// The tool `run_handler`: it runs the built program on a handler file.
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { createRunHandlerTool } from '../../../src/cli/commands/run-handler-tool.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-tool-'));
const handler = `export default async ({ input }) => {
  if (input.fail) throw new Error('no such model');
  if (input.wait) await new Promise((resolve) => setTimeout(resolve, 3_600_000));
  return 'x'.repeat(input.count ?? 1);
};`;
writeFileSync(join(folder, 'handler.js'), handler);
writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
symlinkSync('/etc/passwd', join(folder, 'out.js'));
afterAll(() => rmSync(folder, { recursive: true }));

const ending = new AbortController();
const tool = createRunHandlerTool(folder, ending.signal);

function run(given: object) {
  const call = () => Promise.reject(new Error('the tool calls no platform'));
  return tool.run({ ...given }, call);
}

it.each([
  [{}, '"status":"COMPLETED"'],
  [{ fail: true }, 'no such model'],
])('shows the result of a job: %j', async (input, fact) => {
  const { status, text } = await run({ handler: 'handler.js', input });
  expect(text).toContain(fact);
  expect(status).toBe(200);
});

it('ends a job at its time limit', async () => {
  const { text } = await run({ handler: 'handler.js', input: { wait: true }, timeoutMs: 200 });
  expect(text).toContain('"status":"TIMED_OUT"');
});

it('bounds what it keeps of the output', async () => {
  const { isCut, text } = await run({ handler: 'handler.js', input: { count: 1_000_000 } });
  expect(isCut).toBe(true);
  expect(text.length).toBeLessThanOrEqual(65_536);
});

it.each(['../other.js', '/etc/passwd', 'out.js', 'none.js'])(
  'runs no file elsewhere: %s',
  async (path) => {
    expect(await run({ handler: path })).toMatchObject({
      status: 422,
      text: expect.stringContaining('is no file in'),
    });
  },
);

it('ends the process with the server', async () => {
  const running = run({ handler: 'handler.js', input: { wait: true } });
  ending.abort();
  expect((await running).status).toBe(422);
});
