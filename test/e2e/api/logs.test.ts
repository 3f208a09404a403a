// GET /logs: what a handler said, by whatever way, and how much of it is kept.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import { PlatformProcess } from '../../support/processes.ts';

const LOG_LIMIT = 1_048_576;

const line = z.looseObject({ level: z.int(), msg: z.string() });
type Line = z.infer<typeof line>;

let platform: PlatformProcess;
let speak: EndpointCaller;
let script: EndpointCaller;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ['speak', 'script'] });
  speak = new EndpointCaller(platform, 'speak');
  script = new EndpointCaller(platform, 'script');
  platform.startWorker('speak', 'api-speak.ts', '--unsupervised');
  platform.startWorker('script', 'api-script.ts', '--unsupervised');
});
afterAll(() => platform.close());

interface LogAnswer {
  body: string;
  lines: Line[];
  next: number;
  status: string | null;
}

async function readLog(endpoint: EndpointCaller, id: string, query = ''): Promise<LogAnswer> {
  const answer = await endpoint.get(`logs/${id}${query}`);
  const body = await answer.text();
  expect(answer.status, body).toBe(200);
  expect(answer.headers.get('content-type')).toBe('application/x-ndjson');
  const texts = body.split('\n');
  expect(texts.pop()).toBe('');
  return {
    body,
    lines: texts.map((text) => line.parse(JSON.parse(text))),
    next: Number(answer.headers.get('millrace-next')),
    status: answer.headers.get('millrace-status'),
  };
}

describe('the log of a job', () => {
  it('contains console and ctx.log lines with the job ID and the attempt', async () => {
    const { id } = await speak.runsync({ text: 'é 😀' });
    const { lines, status } = await readLog(speak, id);
    expect(status).toBe('COMPLETED');
    const own = { job: id, attempt: 1, time: expect.any(Number) };
    expect(lines).toEqual([
      expect.objectContaining({ ...own, level: 30, msg: 'console says é 😀' }),
      expect.objectContaining({ ...own, level: 50, msg: 'console warns of é 😀' }),
      expect.objectContaining({ ...own, level: 30, msg: 'ctx.log says é 😀', tokens: 3 }),
    ]);
  });

  it('contains no line of a parallel job in the same thread', async () => {
    const [a, b] = await Promise.all([speak.runsync({ text: 'A' }), speak.runsync({ text: 'B' })]);
    for (const [record, text] of [
      [a, 'A'],
      [b, 'B'],
    ] as const) {
      const { lines } = await readLog(speak, record.id);
      expect(lines.map(({ msg }) => msg.at(-1))).toEqual([text, text, text]);
    }
  });

  it('can be read on from the end of an answer', async () => {
    const { id } = await speak.runsync({ text: 'é' });
    const { body, next } = await readLog(speak, id);
    expect(next).toBe(Buffer.byteLength(body));
    const firstLineBytes = Buffer.byteLength(body.split('\n', 1)[0] ?? '') + 1;
    const rest = await readLog(speak, id, `?after=${firstLineBytes}`);
    expect(rest.lines).toHaveLength(2);
    expect(await readLog(speak, id, `?after=${next}`)).toMatchObject({ body: '', next });
  });

  it('is empty for a job that logged nothing or has not started', async () => {
    const { id } = await script.runsync({ steps: [] });
    expect(await readLog(script, id)).toMatchObject({ body: '', next: 0, status: 'COMPLETED' });
    const waiting = await script.run({ steps: [] }, { policy: { delay: 600_000 } });
    expect(await readLog(script, waiting)).toMatchObject({ body: '', status: 'IN_QUEUE' });
  });

  it.each(['-1', '1.5', 'abc'])('returns 422 for after=%s', async (after) => {
    const { id } = await script.runsync({ steps: [] });
    const { errors } = await readProblem(await script.get(`logs/${id}?after=${after}`), 422);
    expect(errors).toEqual([expect.stringMatching(/^after: /)]);
  });

  it('is limited to 1 MB, with a last line that counts dropped lines', async () => {
    const { id, status } = await speak.runsync({ text: 'much', fillBytes: 1_000_000 });
    expect(status).toBe('COMPLETED');
    const { body, lines, next } = await readLog(speak, id);
    expect(next).toBeLessThanOrEqual(LOG_LIMIT);
    expect(next).toBeGreaterThan(LOG_LIMIT * 0.9);
    const note = lines.pop();
    expect(note?.level).toBe(40);
    const said = 1_003;
    expect(note?.['dropped']).toBe(said - lines.length);
    expect(note?.msg).toContain(String(said - lines.length));
    expect(Buffer.byteLength(body.slice(0, body.lastIndexOf('\n', body.length - 2) + 1))).toBe(
      next,
    );
  });
});
