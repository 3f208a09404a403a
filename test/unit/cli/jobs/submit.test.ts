// `millrace jobs submit --each` against a real server in this process.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { jobsCommands } from '../../../../src/cli/jobs/jobs.ts';
import { createClient } from '../../../../src/client.ts';
import { ENDPOINT, startPlatform } from '../../../support/api/platform.ts';
import { runVerb } from '../../../support/runs/verb-run.ts';

interface Printed {
  exitCode: number;
  lines: string[];
  notes: string;
}

async function start() {
  const platform = await startPlatform();
  const folder = mkdtempSync(join(tmpdir(), 'millrace-cli-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const submit = async (inputs: string[], ...args: string[]): Promise<Printed> => {
    const file = join(folder, 'inputs.jsonl');
    writeFileSync(file, inputs.join('\n'));
    const written = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
    const noted = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    const textOf = ({ mock }: typeof written) => mock.calls.map(([part]) => String(part)).join('');
    try {
      const access = ['--url', platform.url, '--key', platform.admin, '--endpoint', ENDPOINT];
      const all = ['submit', '--each', file, ...access, ...args];
      const exitCode = await runVerb(jobsCommands, all);
      const lines = textOf(written).trimEnd().split('\n');
      return { exitCode, lines, notes: textOf(noted) };
    } finally {
      written.mockRestore();
      noted.mockRestore();
    }
  };
  const client = createClient({ url: platform.url, key: platform.admin, endpoint: ENDPOINT });
  const inputOf = async (id: string) => (await client.details(id)).input;
  return { platform, submit, inputOf };
}

const numbered = (count: number) => Array.from({ length: count }, (_, n) => JSON.stringify({ n }));

describe('millrace jobs submit --each', () => {
  it('submits no line twice with the same --idempotency-key', async () => {
    const { submit } = await start();
    const first = await submit(numbered(3), '--idempotency-key', 'import-1');
    expect(first.lines).toHaveLength(3);
    const again = await submit(numbered(4), '--idempotency-key', 'import-1');
    expect(again.lines.slice(0, 3)).toEqual(first.lines);
    expect(new Set(again.lines).size).toBe(4);
  });

  it('submits one job for each line, and prints the IDs in the order of the lines', async () => {
    const { inputOf, platform, submit } = await start();
    const { exitCode, lines, notes } = await submit(numbered(250), '--ttl', '60000');
    expect(exitCode).toBe(0);
    expect(lines).toHaveLength(250);
    expect(notes).toContain('250 jobs submitted, 0 refused');
    for (const n of [0, 1, 124, 249]) {
      const [id = '', status] = (lines[n] ?? '').split('  ');
      expect([await inputOf(id), status]).toEqual([{ n }, 'IN_QUEUE']);
    }
    expect((await platform.queue.health(ENDPOINT)).jobs.inQueue).toBe(250);
  });

  it('skips empty lines, and reports those that are no JSON object', async () => {
    const { inputOf, submit } = await start();
    const { exitCode, lines, notes } = await submit(['{"n":1}', '', '{"n":', '[]', '{"n":5}', '']);
    expect(exitCode).toBe(1);
    expect(lines).toHaveLength(2);
    expect(await inputOf(lines[1]?.split('  ')[0] ?? '')).toEqual({ n: 5 });
    expect(notes).toContain('line 3 is not JSON');
    expect(notes).toContain('line 4 must be a JSON object');
    expect(notes).toContain('2 jobs submitted, 2 refused');
  });

  it('takes a byte order mark, and the line separators of Unicode within a text', async () => {
    const { inputOf, submit } = await start();
    const { exitCode, lines } = await submit(['\ufeff{"s":"a\u2028b\u2029c"}', '{"n":2}\r', '']);
    expect(exitCode).toBe(0);
    expect(lines).toHaveLength(2);
    expect(await inputOf(lines[0]?.split('  ')[0] ?? '')).toEqual({ s: 'a\u2028b\u2029c' });
  });

  it('prints with --json the number of each line', async () => {
    const { submit } = await start();
    const { lines } = await submit(['{"n":1}', '{', '{"n":3}'], '--json');
    const printed = lines.map((line) => JSON.parse(line));
    printed.sort((a, b) => a.line - b.line);
    expect(printed).toEqual([
      { line: 1, id: expect.any(String), status: 'IN_QUEUE' },
      { line: 2, error: { detail: expect.stringContaining('line 2 is not JSON') } },
      { line: 3, id: expect.any(String), status: 'IN_QUEUE' },
    ]);
  });

  it('reports a job that the platform refuses with the number of its line', async () => {
    const { submit } = await start();
    const deep = `{"a":${'['.repeat(2_000)}${']'.repeat(2_000)}}`;
    const { exitCode, lines, notes } = await submit(['{"n":1}', deep, '{"n":3}']);
    expect(exitCode).toBe(1);
    expect(lines).toHaveLength(2);
    expect(notes).toMatch(/line 2: .*\(422\)/);
  });

  it('stops before no line if the file has ended', async () => {
    const { submit } = await start();
    const { exitCode, notes } = await submit([...numbered(3), ''], '--key', 'mr_wrong');
    expect(exitCode).toBe(1);
    expect(notes).toMatch(/0 jobs submitted, 3 refused\n$/);
  });

  it('names a file that it cannot read', async () => {
    const run = (file: string) =>
      runVerb(jobsCommands, ['submit', '--endpoint', ENDPOINT, '--each', file]);
    await expect(run(tmpdir())).rejects.toThrow(`--each: ${tmpdir()} cannot be read: EISDIR`);
    await expect(run('/missing')).rejects.toThrow('--each: /missing cannot be read: ENOENT');
  });

  it('ends when the platform refuses all jobs', async () => {
    const { submit } = await start();
    const { exitCode, notes } = await submit(numbered(2_000), '--key', 'mr_wrong');
    expect(exitCode).toBe(1);
    expect(notes).toMatch(/line 1: .*\(401\)/);
    expect(notes).toContain('0 jobs submitted');
    expect(notes).toMatch(/stopped before line \d+/);
    expect(notes.split('\n').length).toBeLessThan(1_000);
  });
});
