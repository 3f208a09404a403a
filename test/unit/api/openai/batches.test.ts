// OpenAI's files and batches with OpenAI's own client.
import OpenAI, { BadRequestError, NotFoundError, toFile } from 'openai';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Platform, startPlatform } from '../../../support/api/platform.ts';
import { until } from '../../../support/until.ts';

const URL_PATH = '/v1/chat/completions';

function open({ admin, url }: Platform): OpenAI {
  return new OpenAI({ baseURL: `${url}/v2/demo/openai/v1`, apiKey: admin, maxRetries: 0 });
}

const lineOf = (n: number, changed: object = {}) =>
  JSON.stringify({
    custom_id: `line-${n}`,
    method: 'POST',
    url: URL_PATH,
    body: { model: 'm', n },
    ...changed,
  });

const linesOf = (count: number) => Array.from({ length: count }, (_, n) => lineOf(n));

async function upload(client: OpenAI, lines: readonly string[]) {
  const file = await toFile(Buffer.from(lines.join('\n')), 'input.jsonl');
  return client.files.create({ file, purpose: 'batch' });
}

async function create(client: OpenAI, lines: readonly string[]) {
  const file = await upload(client, lines);
  return client.batches.create({
    input_file_id: file.id,
    endpoint: URL_PATH,
    completion_window: '24h',
    metadata: { team: 'mill' },
  });
}

/** Runs all jobs that come, until the test has finished. */
function runJobs({ link }: Platform, run: (input: { n: number }) => unknown): void {
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  const worker = { workerId: 'w', incarnation: 1 };
  const work = async () => {
    const rest = { protocol: 1, version: 'test', slots: 32, outbox: [], devices: [] };
    await link.hello({ ...worker, ...rest });
    for (let takes = 0; !stop.signal.aborted; takes++) {
      const take = { takeId: `t${takes}`, max: 32, waitMs: 1_000, held: [] };
      const leases = await link.take({ ...worker, ...take }, stop.signal);
      const reports = leases.map(({ attempt, input, jobId, token }) => {
        const { openai_input: body } = JSON.parse(Buffer.from(input).toString());
        const output = Buffer.from(JSON.stringify(run(body)));
        const outcome = { kind: 'completed', output: 'value', executionMs: 1 } as const;
        const head = { jobId, attempt, token, seq: 1 } as const;
        return { ...head, kind: 'outcome' as const, outcome, body: output };
      });
      if (reports.length > 0) await link.report({ ...worker, reports });
    }
  };
  void work().catch((error: unknown) => {
    if (!stop.signal.aborted) throw error;
  });
}

async function untilEnded(client: OpenAI, id: string) {
  return until(async () => {
    const batch = await client.batches.retrieve(id);
    return ['completed', 'cancelled', 'expired'].includes(batch.status) ? batch : undefined;
  });
}

async function readLines(client: OpenAI, id: string | undefined) {
  const text = await (await client.files.content(id ?? '')).text();
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

describe('a batch', () => {
  it('runs each line once and keeps the answers in files', async () => {
    const platform = await startPlatform();
    const client = open(platform);
    const bad = (n: number) => n % 10 === 3;
    runJobs(platform, ({ n }) =>
      bad(n) ? { error: { message: `no ${n}`, code: 400 } } : { object: 'chat.completion', n },
    );
    const created = await create(client, linesOf(700));
    expect(created).toMatchObject({ object: 'batch', status: 'in_progress', endpoint: URL_PATH });
    const batch = await untilEnded(client, created.id);
    expect(batch.request_counts).toEqual({ total: 700, completed: 630, failed: 70 });
    expect(batch.status).toBe('completed');
    expect(batch.metadata).toEqual({ team: 'mill' });
    const answers = await readLines(client, batch.output_file_id);
    const failures = await readLines(client, batch.error_file_id);
    const names = [...answers, ...failures].map(({ custom_id }) => custom_id);
    expect(names.toSorted()).toEqual(Array.from({ length: 700 }, (_, n) => `line-${n}`).toSorted());
    for (const { custom_id, error, response } of answers) {
      expect(error).toBeNull();
      expect(response.status_code).toBe(200);
      expect(response.body).toEqual({ object: 'chat.completion', n: Number(custom_id.slice(5)) });
    }
    expect(failures[0]?.response).toMatchObject({ status_code: 400 });
  });
});

describe('a file', () => {
  it('is kept as it was sent, listed and deleted', async () => {
    const client = open(await startPlatform());
    const lines = linesOf(3);
    const file = await upload(client, lines);
    expect(file).toMatchObject({ filename: 'input.jsonl', purpose: 'batch', object: 'file' });
    expect(await (await client.files.content(file.id)).text()).toBe(lines.join('\n'));
    expect((await client.files.list()).data.map(({ id }) => id)).toEqual([file.id]);
    expect(await client.files.delete(file.id)).toMatchObject({ deleted: true });
    await expect(client.files.retrieve(file.id)).rejects.toThrow(NotFoundError);
  });

  it.each([
    ['no JSON', '{"custom_id":', /line 2: .*JSON/],
    ['no custom_id', lineOf(1, { custom_id: undefined }), /line 2: custom_id/],
    ['the custom_id of another line', lineOf(0), /line 2: custom_id: "line-0" names another line/],
    ['another url', lineOf(1, { url: '/v1/embeddings' }), /line 2: url: is \/v1\/embeddings/],
    ['no body', lineOf(1, { body: 'text' }), /line 2: body/],
    ['a stream', lineOf(1, { body: { stream: true } }), /line 2: body\.stream/],
  ])('is refused with %s, by the number and path of the line', async (_name, line, problem) => {
    const client = open(await startPlatform());
    const file = upload(client, [lineOf(0), line, lineOf(2)]);
    await expect(file).rejects.toThrow(BadRequestError);
    await expect(file).rejects.toThrow(problem);
    expect((await client.files.list()).data).toEqual([]);
  });

  it('is not deleted while a batch reads it', async () => {
    const client = open(await startPlatform());
    const { input_file_id } = await create(client, linesOf(2));
    await expect(client.files.delete(input_file_id)).rejects.toThrow(/has not ended/);
  });
});
