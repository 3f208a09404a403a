// Reports whose bodies are not the JSON that they have to be, from workers that are not ours.
import { describe, expect, it, onTestFinished } from 'vitest';
import { createGrpcServer } from '../../../src/api/grpc/server.ts';
import { checkReports } from '../../../src/api/report-check.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { encodeFrames, FRAMES_MEDIA_TYPE } from '../../../src/wire/link/http-form.ts';
import type { Lease, Report } from '../../../src/wire/link/worker-link.ts';
import { METADATA } from '../../../src/wire/link/worker-stream.ts';
import { errorAt } from '../../support/answers.ts';
import {
  ENDPOINT,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
} from '../../support/api/platform.ts';
import { RawStream } from '../../support/network/raw-stream.ts';
import { fc } from '../../support/properties.ts';

const WORKER = { workerId: 'w9', incarnation: 3 };
const HELLO = { ...WORKER, protocol: 1, version: '1', slots: 4, devices: [], outbox: [] };
const COMPLETED = { kind: 'completed', executionMs: 1 } as const;

/** Of a job that is being run. */
async function takeJob({ link }: Pick<Platform, 'link'>): Promise<Lease> {
  await link.hello(HELLO);
  const take = { ...WORKER, takeId: crypto.randomUUID(), max: 1, waitMs: 2_000, held: [] };
  const [lease] = await link.take(take, new AbortController().signal);
  if (!lease) throw new Error('there was no job to take');
  return lease;
}

type LeaseNames = Pick<Lease, 'jobId' | 'attempt' | 'token'>;
type Draft = Pick<Report, 'jobId' | 'attempt' | 'token' | 'seq' | 'body'>;

function draft({ attempt, jobId, token }: LeaseNames, seq: number, body: string | Buffer): Draft {
  return { jobId, attempt, token, seq, body: Buffer.from(body) };
}

function describeValue(lease: LeaseNames, body: string | Buffer): Report {
  const outcome = { ...COMPLETED, output: 'value' } as const;
  return { ...draft(lease, 1, body), kind: 'outcome', outcome };
}

function describeChunks(
  lease: LeaseNames,
  chunks: readonly string[],
  { first, seq } = { first: 0, seq: 1 },
): Report {
  const sizes = chunks.map((chunk) => Buffer.byteLength(chunk));
  return { ...draft(lease, seq, chunks.join(',')), kind: 'chunks', first, sizes };
}

/** Over HTTP. */
function post(platform: Platform, ...reports: Report[]): Promise<Response> {
  const frames = encodeFrames(reports.map(({ body, ...header }) => ({ header, body })));
  return platform.call(`/v2/${ENDPOINT}/worker/report`, {
    ...{ method: 'POST', body: Buffer.concat(frames) },
    headers: {
      authorization: `Bearer ${platform.worker}`,
      'content-type': FRAMES_MEDIA_TYPE,
      'millrace-worker': WORKER.workerId,
      'millrace-incarnation': '3',
    },
  });
}

async function openStream(platform: Platform): Promise<RawStream> {
  const { keys, endpoints, queue, worker, workers } = platform;
  const server = createGrpcServer({
    ...{ ...workers, keys, endpoints, clock: systemClock, log: silentLog },
    ...{ host: '127.0.0.1', port: 0, isClosing: () => queue.isClosing },
  });
  const { url } = await server.start();
  const stream = new RawStream(url, {
    authorization: `Bearer ${worker}`,
    [METADATA.endpoint]: ENDPOINT,
  });
  onTestFinished(async () => {
    stream.close();
    await queue.close();
    await server.close();
  });
  await stream.ask({ call: 1, hello: HELLO });
  return stream;
}

async function sendStreamed(stream: RawStream, call: number, report: Report) {
  const { body, ...header } = report;
  const reports = [{ ...header, bodyBytes: body.length }];
  return stream.ask({ call, reports: { ...WORKER, reports, payload: body } });
}

/** What stands in answers as it came. */
const NOT_ONE_VALUE = ['{}[]', '1 2', '"cut', '{"a":1', '', 'NaN', "{'a':1}", '1,"id":"x"'];

describe('what an attempt waits for', () => {
  const waits = [{ endpoint: 'name', a: 1 }, { endpoint: 1 }, { kind: 'sleep' }, 'text', null];
  it.each([
    ['names of endpoints', waits, [{ endpoint: 'id of name', a: 1 }, ...waits.slice(1)]],
    ['no list', { endpoint: 'name' }, { endpoint: 'name' }],
  ])('is passed on with IDs of endpoints: %s', async (_name, given, passed) => {
    const bodies: unknown[] = [];
    const nobody = () => Promise.reject(new Error('nobody asks'));
    const report = async ({ reports }: { reports: readonly Report[] }) => {
      bodies.push(...reports.map(({ body }) => JSON.parse(Buffer.from(body).toString())));
      return [];
    };
    const link = { hello: nobody, take: nobody, renew: nobody, bye: nobody, report };
    const resolveChild = (name: string) => `id of ${name}`;
    const checked = checkReports(link, { owner: 'me', maxDepth: 10, resolveChild });
    const lease = { jobId: 'job', attempt: 1, token: 'token' };
    const outcome = { kind: 'waiting', executionMs: 1 } as const;
    const waiting: Report = { ...draft(lease, 1, JSON.stringify(given)), kind: 'outcome', outcome };
    await checked.report({ ...WORKER, reports: [waiting] });
    expect(bodies).toEqual([passed]);
  });
});

describe('an output that is not one JSON value', () => {
  it('is refused over HTTP, and the job can still complete', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const lease = await takeJob(platform);
    for (const output of NOT_ONE_VALUE.filter((text) => text !== '')) {
      const refused = await post(platform, describeValue(lease, output));
      expect([output, refused.status]).toEqual([output, 422]);
      expect(await readJson(refused)).toMatchObject({ errors: [errorAt('reports[0].body')] });
    }
    const applied = await post(platform, describeValue(lease, ' {"a": 1}\n'));
    expect(await applied.json()).toEqual([{ answer: 'applied' }]);
    const record = await (await platform.call(`/v2/${ENDPOINT}/status/${id}`)).text();
    expect(record).toContain('"output":{"a": 1}');
  });

  it('is refused over gRPC, and the job can still complete', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const stream = await openStream(platform);
    const lease = await takeJob(platform);
    const refused = await sendStreamed(stream, 2, describeValue(lease, '{}[]'));
    expect(refused).toMatchObject({
      refusal: { code: 'invalid', detail: expect.stringContaining('reports[0]') },
    });
    const chunks = describeChunks(lease, ['{}', '[]']);
    expect(await sendStreamed(stream, 3, chunks)).toMatchObject({ refusal: { code: 'invalid' } });
    await sendStreamed(stream, 4, describeValue(lease, '"right"'));
    const record = await readJson(await platform.call(`/v2/${ENDPOINT}/status/${id}`));
    expect(record).toMatchObject({ status: 'COMPLETED', output: 'right' });
  });
});

describe('bodies that are checked', () => {
  /** Whether the reports pass. */
  const passes = async (...reports: Report[]): Promise<boolean> => {
    const platform = { isReached: false };
    const nobody = () => Promise.reject(new Error('nobody asks'));
    const link = { hello: nobody, take: nobody, renew: nobody, bye: nobody };
    const report = async () => {
      platform.isReached = true;
      return [];
    };
    const checked = checkReports(
      { ...link, report },
      {
        ...{ owner: 'me', maxDepth: 10, resolveChild: (given: string) => given },
      },
    );
    await checked.report({ ...WORKER, reports }).catch((error: unknown) => {
      expect(error).toMatchObject({ code: 'invalid', errors: [expect.stringMatching(/^reports/)] });
    });
    return platform.isReached;
  };
  const lease = { jobId: 'job', attempt: 1, token: 'token' };

  const bytes = (text: fc.Arbitrary<string>) => text.map((each) => Buffer.from(each));
  const scraps = fc.constantFrom(...'{}[],:"\\ 1e-', '"a"', '"a":', 'null', 'é', '\n', '😀');
  const nearlyJson = fc.array(scraps, { minLength: 1, maxLength: 6 }).map((list) => list.join(''));
  const anyBytes = fc.oneof(
    bytes(fc.json({ maxDepth: 4 })),
    bytes(nearlyJson),
    fc.uint8Array({ minLength: 1, maxLength: 5 }).map((each) => Buffer.from(each)),
  );

  it('pass as an output exactly when JSON.parse accepts them, alone and after others', async () => {
    const right = { ...draft(lease, 2, 'null'), kind: 'progress' } as const;
    await fc.assert(
      fc.asyncProperty(anyBytes, async (body) => {
        const report = describeValue(lease, body);
        const isRight = isParsed(body);
        expect([body.toString(), await passes(report)]).toEqual([body.toString(), isRight]);
        expect(await passes(right, report)).toBe(isRight);
        expect(await passes({ ...right, body })).toBe(isRight);
      }),
      { numRuns: 1_500 },
    );
  });

  it('pass as chunks exactly when each of them is a JSON output with flat metrics', async () => {
    const metrics = fc.constantFrom(...METRICS, ...WRONG_METRICS);
    const chunk = fc.tuple(fc.oneof(fc.json({ maxDepth: 2 }), nearlyJson), metrics);
    await fc.assert(
      fc.asyncProperty(fc.array(chunk, { minLength: 1, maxLength: 3 }), async (chunks) => {
        const texts = chunks.map(([output, each]) => `{"output":${output},"metrics":${each}}`);
        const areRight = chunks.every(
          ([output, each]) => isParsed(Buffer.from(output)) && METRICS.includes(each),
        );
        const report = describeChunks(lease, texts);
        expect([texts, await passes(report)]).toEqual([texts, areRight]);
      }),
      { numRuns: 1_500 },
    );
  });

  it.each([
    ['an array', '["a"]', 1, true],
    ['an empty array', '[ ]', 1, false],
    ['no array', '"a"', 1, false],
    ['a string', '"a"', 0, true],
    ['a string with space around it', ' "a"', 0, false],
    ['no string', '[1]', 2, false],
    ['a string of an unknown encoding', '"a"', 3, false],
  ])(
    'must be one body with the metrics of a piece: %s',
    async (_what, output, encoding, isRight) => {
      const metrics = `{"part":0,"parts":2,"encoding":${encoding}}`;
      const chunk = `{"output":${output},"metrics":${metrics}}`;
      expect(await passes(describeChunks(lease, [chunk]))).toBe(isRight);
    },
  );

  it('pass up to the depth limit', async () => {
    const nest = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
    const ofDepth = (depth: number) =>
      Promise.all([
        passes(describeValue(lease, nest(depth))),
        passes(describeChunks(lease, [`{"output":${nest(depth)},"metrics":{}}`])),
      ]);
    expect(await ofDepth(10)).toEqual([true, true]);
    expect(await ofDepth(11)).toEqual([false, false]);
    expect(await ofDepth(400_000)).toEqual([false, false]);
  });

  it('let other work run while they are checked, one large or many small', async () => {
    const chunks = Array.from({ length: 50_000 }, () => '{"output":[1],"metrics":{}}');
    const large = JSON.stringify(Array.from({ length: 500_000 }, (_, n) => n));
    for (const report of [describeChunks(lease, chunks), describeValue(lease, large)]) {
      let turns = 0;
      let isChecked = false;
      const countIterations = () => {
        turns += 1;
        if (!isChecked) setImmediate(countIterations);
      };
      setImmediate(countIterations);
      expect(await passes(report)).toBe(true);
      isChecked = true;
      expect(turns).toBeGreaterThan(10);
    }
  });
});

const METRICS = ['{}', '{"a":1}', '{"a":1.5e3, "é":-0}'];
const WRONG_METRICS = [
  ...['{"a":"1"}', '{"a":null}', '{"a":{}}', '{"a":1e999}', '{"a":1', '[]', '{}}', '{},"x":{}'],
  ...['{"part":0}', '{"a":1,"part":0,"parts":1,"encoding":0}', '{"parts":1}', ''],
  ...['{"part":1,"parts":1,"encoding":0}', '{"part":-1,"parts":1,"encoding":0}'],
];

function isParsed(json: Buffer): boolean {
  try {
    JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(json));
    return true;
  } catch {
    return false;
  }
}

const piece = (part: number, parts: number, text = 'x', encoding = 0) =>
  JSON.stringify({ output: text, metrics: { part, parts, encoding } });
const WHOLE = JSON.stringify({ output: 1, metrics: {} });

describe('the pieces of a split output', () => {
  it.each([
    ['a missing piece', [piece(0, 3), piece(2, 3)]],
    ['a repeated piece', [piece(0, 3), piece(0, 3)]],
    ['a value between them', [piece(0, 2), WHOLE, piece(1, 2)]],
    ['another number of parts', [piece(0, 3), piece(1, 4)]],
    ['another encoding', [piece(0, 2), piece(1, 2, 'x', 2)]],
    ['no beginning', [WHOLE, piece(1, 2)]],
  ])('are refused with %s', async (_name, chunks) => {
    const platform = await startPlatform();
    await submitJob(platform);
    const lease = await takeJob(platform);
    const response = await post(platform, describeChunks(lease, chunks));
    expect(response.status).toBe(422);
    expect((await readJson(response))['errors']).toEqual([
      expect.stringContaining('is not the next piece of a split output'),
    ]);
  });

  it('are accepted over several reports, with values around them', async () => {
    const platform = await startPlatform();
    await submitJob(platform);
    const lease = await takeJob(platform);
    const first = describeChunks(lease, [WHOLE, piece(0, 3), piece(1, 3)]);
    const place = { seq: 2, first: 3 };
    const rest = describeChunks(lease, [piece(2, 3), piece(0, 1), WHOLE], place);
    expect((await post(platform, first)).status).toBe(200);
    expect((await post(platform, rest)).status).toBe(200);
  });

  it('leave the job readable, without an output, if they are incomplete over several reports', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const lease = await takeJob(platform);
    const outcome = { ...COMPLETED, output: 'chunks' } as const;
    await post(platform, describeChunks(lease, [piece(0, 3)]));
    await post(platform, describeChunks(lease, [piece(2, 3)], { seq: 2, first: 1 }));
    const ended = await post(platform, { ...draft(lease, 3, ''), kind: 'outcome', outcome });
    expect(ended.status).toBe(200);
    const status = await platform.call(`/v2/${ENDPOINT}/status/${id}`);
    expect(status.status).toBe(200);
    const record = await readJson(status);
    expect(record).toMatchObject({ status: 'COMPLETED' });
    expect(record).not.toHaveProperty('output');
    const stream = await platform.call(`/v2/${ENDPOINT}/stream/${id}`);
    expect(await stream.json()).toHaveLength(2);
  });
});
