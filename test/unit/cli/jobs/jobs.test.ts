// `millrace jobs` against a real server in this process.
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { failedCommands } from '../../../../src/cli/jobs/failed.ts';
import { jobsCommands } from '../../../../src/cli/jobs/jobs.ts';
import { ENDPOINT, startPlatform, submitJob, takeJob } from '../../../support/api/platform.ts';
import { printVerb, runVerb } from '../../../support/runs/verb-run.ts';

async function open() {
  const platform = await startPlatform();
  const access = ['--url', platform.url, '--key', platform.admin, '--endpoint', ENDPOINT];
  const print = async (...args: string[]): Promise<string[]> => {
    return (await printVerb(jobsCommands, [...args, ...access])).trimEnd().split('\n');
  };
  return { platform, print };
}

function writeInput(json: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-cli-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'input.json');
  writeFileSync(file, json);
  return file;
}

describe('millrace jobs submit', () => {
  it('sends the input of a file with a time limit, a time to live and a group', async () => {
    const { platform, print } = await open();
    const file = writeInput('{"n":7}');
    const times = ['--execution-timeout', '5000', '--ttl', '60000', '--group', 'g 1'];
    const submit = vi.spyOn(platform.queue.submissions, 'submit');
    const [line = ''] = await print('submit', '--input-file', file, ...times, '--json');
    expect(JSON.parse(line)).toMatchObject({ status: 'IN_QUEUE' });
    const [[submission] = []] = submit.mock.calls;
    expect(submission).toMatchObject({
      policy: { executionTimeout: 5_000, ttl: 60_000, group: 'g 1' },
    });
    expect(String(Buffer.from(submission?.input ?? []))).toBe('{"n":7}');
  });

  it('sends a priority, a delay and an idempotency key', async () => {
    const { platform, print } = await open();
    const times = ['--priority', '7', '--delay', '60000', '--idempotency-key', 'order-1'];
    const submit = vi.spyOn(platform.queue.submissions, 'submit');
    const [first] = await print('submit', '--input', '{}', ...times);
    expect(submit.mock.calls[0]?.[0]).toMatchObject({ policy: { priority: 7, delay: 60_000 } });
    expect(await print('submit', '--input', '{}', ...times)).toEqual([first]);
  });

  it.each([
    [['--input', '{}', '--input-file', 'a.json'], 'give one of --input JSON, --input-file FILE'],
    [[], 'give one of --input JSON, --input-file FILE and --each FILE'],
    [['--input', '{}', '--each', 'a.jsonl'], 'give one of --input JSON, --input-file FILE and'],
    [['--each', 'a.jsonl', '--wait'], '--each cannot be given with --wait'],
    [['--each', '/nowhere/a.jsonl'], '--each: /nowhere/a.jsonl cannot be read'],
    [['--input', '[]'], '--input must be a JSON object'],
    [['--input', '{'], '--input is not JSON'],
    [['--input-file', '/nowhere/a.json'], '--input-file: /nowhere/a.json cannot be read'],
    [['--input', '{}', '--priority', '10'], '--priority: must be a whole number from 0 to 9'],
    [['--input', '{}', '--ttl', '1'], '--ttl: must be a whole number from 10000 to'],
  ])('refuses %j', async (args, message) => {
    const submitted = runVerb(jobsCommands, ['submit', '--endpoint', ENDPOINT, ...args]);
    await expect(submitted).rejects.toThrow(message);
  });
});

describe('millrace jobs list', () => {
  it('lists the jobs that fit all filters, with their tags', async () => {
    const { print } = await open();
    await print('submit', '--input', '{}', '--tag', 'customer-7', '--tag', 'nightly');
    const of = ['list', '--tag', 'customer-7'];
    expect(await print(...of, '--since', '2026-01-15T09:00:00Z')).toEqual([
      expect.stringMatching(/TAGS$/),
      expect.stringMatching(/customer-7 nightly$/),
    ]);
    for (const other of [
      ['--tag', 'weekly'],
      ['--until', '2026-01-15T09:00:00Z'],
    ]) {
      expect(await print(...of, ...other)).toEqual(['no jobs']);
    }
    await expect(print(...of, '--since', 'noon')).rejects.toThrow(
      '--since: must be a time such as',
    );
  });
});

describe('jobs that match filters', () => {
  it('are counted, cancelled, retried and deleted', async () => {
    const { platform, print } = await open();
    for (const tag of ['a', 'a', 'b']) await print('submit', '--input', '{}', '--tag', tag);
    await (await takeJob(platform)).fail('never');
    const ofA = ['--tag', 'a'];
    expect(await print('retry-many', ...ofA, '--count')).toEqual(['1 match']);
    expect(await print('retry-many', ...ofA)).toEqual(['1 queued again']);
    expect(await print('cancel-many', ...ofA)).toEqual(['2 cancelled']);
    expect(await print('cancel-many', ...ofA)).toEqual(['0 cancelled']);
    const [answer = ''] = await print('delete-many', ...ofA, '--json');
    expect(JSON.parse(answer)).toMatchObject({ matched: 2, changed: 2 });
    expect(await print('cancel-many', '--all', '--count')).toEqual(['1 match']);
    await expect(print('cancel-many')).rejects.toThrow('give a filter or --all');
  });

  it('are exported as lines of JSON, to standard output or a file', async () => {
    const { platform, print } = await open();
    for (const n of [1, 2]) await print('submit', '--input', `{"n":${n}}`, '--tag', 'a');
    await print('submit', '--input', '{}');
    await (await takeJob(platform)).complete();
    const lines = (await print('export', '--tag', 'a')).map((line) => JSON.parse(line));
    expect(lines).toMatchObject([
      { status: 'IN_QUEUE', input: { n: 2 }, tags: ['a'] },
      { status: 'COMPLETED', input: { n: 1 }, timeline: expect.anything() },
    ]);
    const file = writeInput('');
    expect(await print('export', '--status', 'COMPLETED', '--short', '--output', file)).toEqual([
      '',
    ]);
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ id: lines[1].id });
    await expect(print('export', '--output', '/nowhere/a')).rejects.toThrow('--output: /nowhere/a');
  });
});

describe('millrace jobs stream', () => {
  it('prints outputs, and with --json the chunks with their metrics', async () => {
    const { platform, print } = await open();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.yieldChunks('{"output":"a","metrics":{"n":1}}');
    await job.complete();
    expect(await print('stream', id)).toEqual(['"a"']);
    const [line = ''] = await print('stream', id, '--json');
    expect(JSON.parse(line)).toEqual({
      ...{ output: 'a', metrics: { n: 1 }, position: '1.0', attempt: 1 },
    });
  });
});

describe('millrace failed list', () => {
  it('prints no input for a job that has been removed meanwhile', async () => {
    const job = { id: 'job-1', status: 'FAILED', endpoint: { name: 'e' }, endedAt: null };
    const server = createServer((_, answer) => {
      answer.setHeader('content-type', 'application/json');
      answer.end(JSON.stringify({ jobs: [job], unreachable: [], cursor: null }));
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : undefined;
    const access = ['--url', `http://127.0.0.1:${port}`, '--key', 'mr_key'];
    const printed = await printVerb(failedCommands, ['list', ...access]);
    expect(printed).toContain('job-1');
    expect(printed).not.toContain('undefined');
  });
});

describe('millrace jobs purge', () => {
  it('prints how many jobs it cancelled', async () => {
    const { platform, print } = await open();
    await submitJob(platform);
    expect(await print('purge')).toEqual(['1 cancelled']);
  });
});

describe('millrace jobs show', () => {
  it('prints the times and the input of a job', async () => {
    const { platform, print } = await open();
    const id = await submitJob(platform, { input: { n: 7 } });
    const [line = ''] = await print('show', id, '--json');
    const iso = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/);
    expect(JSON.parse(line)).toMatchObject({
      ...{ id, status: 'IN_QUEUE', input: { n: 7 }, submittedAt: iso, expiresAt: iso },
      ...{ startedAt: null, endedAt: null },
    });
  });

  it('prints the run of a retried job and the attempts before', async () => {
    const { platform, print } = await open();
    const id = await submitJob(platform);
    await (await takeJob(platform)).fail('never');
    await print('retry', id);
    await takeJob(platform);
    const shown = JSON.parse((await print('show', id)).join('\n'));
    expect(shown).toMatchObject({ attempt: 2, run: 2, runAttempt: 1, maxAttempts: 3 });
    const events = shown.timeline.map(({ event }: { event: string }) => event);
    expect(events).toEqual(['submitted', 'started', 'failed', 'retried', 'started']);
  });

  it('describes a large input to a person by its size', async () => {
    const { platform, print } = await open();
    const id = await submitJob(platform, { input: { text: 'x'.repeat(20_000) } });
    const shown = JSON.parse((await print('show', id)).join('\n'));
    expect(shown).toMatchObject({ input: '(20011 bytes; --json prints them)' });
    const [line = ''] = await print('show', id, '--json');
    expect(JSON.parse(line).input.text).toHaveLength(20_000);
  });
});
