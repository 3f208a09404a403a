// Several jobs submitted with one request: the jobs, and the scan of the body.
import { describe, expect, it } from 'vitest';
import { hashRequest, readSubmission } from '../../../src/api/body/body.ts';
import { JsonBoundError } from '../../../src/api/body/json-check.ts';
import { RateGate } from '../../../src/api/limits/rate-limit.ts';
import { findJobs, readJobs } from '../../../src/api/routes/job-batch.ts';
import { ProblemError } from '../../../src/wire/problem.ts';
import { errorAt } from '../../support/answers.ts';
import {
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../support/api/platform.ts';
import { fc } from '../../support/properties.ts';

type Answers = { id?: string; status?: string; error?: { code: string; detail: string } }[];

async function submitJobs({ post }: Platform, jobs: unknown, init?: RequestInit): Promise<Answers> {
  const response = await post('/v2/demo/jobs', { jobs }, init);
  expect(response.status).toBe(200);
  const body: { jobs: Answers } = JSON.parse(await response.text());
  return body.jobs;
}

async function countJobs({ call }: Platform): Promise<number> {
  const { jobs } = JSON.parse(await (await call('/v2/demo/jobs?limit=1000')).text());
  return jobs.length;
}

describe('POST /v2/:endpoint/jobs', () => {
  it('queues the jobs in order and passes on the unchanged bytes of each input', async () => {
    const platform = await startPlatform();
    const inputs = ['{"b":1.0,  "a":"\\u0041"}', '{}', `{"text":"${'x'.repeat(70_000)}"}`];
    const jobs = inputs.map((input) => `{"input":${input}}`);
    const response = await platform.post('/v2/demo/jobs', `{"jobs":[${jobs.join(',')}]}`);
    expect(response.headers.get('content-type')).toMatch(/^application\/json/);
    const { jobs: submitted }: { jobs: Answers } = JSON.parse(await response.text());
    expect(submitted.map(({ status }) => status)).toEqual(['IN_QUEUE', 'IN_QUEUE', 'IN_QUEUE']);
    for (const [index, input] of inputs.entries()) {
      const job = await takeJob(platform);
      expect(job.id).toBe(submitted[index]?.id);
      expect(job.id).toMatch(
        /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
      );
      expect(job.input.toString()).toBe(input);
      await job.complete('{}');
    }
  });

  it('applies the policy of each job', async () => {
    const platform = await startPlatform();
    const [last, first] = await submitJobs(platform, [
      { input: {} },
      { input: {}, policy: { priority: 9, executionTimeout: 5_000 } },
    ]);
    expect((await takeJob(platform)).id).toBe(first?.id);
    const details = await readJson(await platform.call(`/v2/demo/jobs/${first?.id}`));
    expect(details).toMatchObject({ priority: 9, executionTimeout: 5_000 });
    expect((await takeJob(platform)).id).toBe(last?.id);
  });

  it.each([
    ['{"jobs":[', 400, undefined],
    ['{"jobs":[]}', 422, 'jobs'],
    ['{"jobs":[{"input":{}},{"input":{},"policy":{"ttl":1}}]}', 422, 'jobs[1].policy.ttl'],
    ['{"jobs":[{"input":{}},{"input":[]}]}', 422, 'jobs[1].input'],
    [`{"jobs":[{"input":{},"a":"${'x'.repeat(70_000)}"}]}`, 413, undefined],
    [`{"jobs":[{"input":{"a":"${'x'.repeat(10_485_760)}"}}]}`, 413, undefined],
  ])('refuses the whole request if a part of it is invalid: %s', async (body, status, path) => {
    const platform = await startPlatform();
    const response = await platform.post('/v2/demo/jobs', body);
    expect(response.status).toBe(status);
    const { errors } = await readJson(response);
    expect(errors).toEqual(path && [errorAt(path)]);
    expect(await countJobs(platform)).toBe(0);
  });

  it('refuses a header Idempotency-Key, which would stand for all jobs', async () => {
    const { post } = await startPlatform();
    const headers = { 'idempotency-key': 'k' };
    const response = await post('/v2/demo/jobs', { jobs: [{ input: {} }] }, { headers });
    expect(response.status).toBe(422);
    expect((await readJson(response))['errors']).toEqual([errorAt('Idempotency-Key')]);
  });

  it('refuses the whole request for an unknown endpoint', async () => {
    const { post } = await startPlatform();
    expect((await post('/v2/none/jobs', { jobs: [{ input: {} }] })).status).toBe(404);
  });

  it('tells which jobs the full queue refuses, and queues the others', async () => {
    const platform = await startPlatform();
    await platform.post('/v1/endpoints/demo', { maxQueued: 3 }, { method: 'PATCH' });
    const first = await submitJob(platform, { input: { n: 1 }, idempotencyKey: 'k' });
    const job = { input: { n: 1 }, idempotencyKey: 'k' };
    const answers = await submitJobs(platform, [{ input: {} }, { input: {} }, { input: {} }, job]);
    expect(answers.map(({ error, status }) => error?.code ?? status)).toEqual([
      ...['IN_QUEUE', 'IN_QUEUE', 'queue_full', 'IN_QUEUE'],
    ]);
    expect(answers[2]?.error).toMatchObject({ status: 429, title: 'Queue is full' });
    expect(answers[3]?.id).toBe(first);
    expect(await countJobs(platform)).toBe(3);
  });

  it('makes one job of two with the same idempotency key, as two calls of run do', async () => {
    const platform = await startPlatform();
    const job = { input: { n: 1 }, idempotencyKey: 'k' };
    const [one, two, other] = await submitJobs(platform, [job, job, { ...job, input: { n: 2 } }]);
    expect(two).toEqual(one);
    expect(other?.error).toMatchObject({ code: 'conflict', status: 409 });
    expect(await submitJob(platform, job)).toBe(one?.id);
    expect((await submitJobs(platform, [job]))[0]).toEqual(one);
    expect(await countJobs(platform)).toBe(1);
  });

  it('puts all jobs into the trace of the request', async () => {
    const platform = await startPlatform();
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    await submitJobs(platform, [{ input: {} }, { input: {} }], { headers: { traceparent } });
    const identity = { workerId: 'w', incarnation: 1 };
    const hello = { ...identity, protocol: 1, version: '1', slots: 2, devices: [], outbox: [] };
    await platform.link.hello(hello);
    const take = { ...identity, takeId: 't', max: 2, waitMs: 5_000, held: [] };
    const leases = await platform.link.take(take, new AbortController().signal);
    expect(leases.map((lease) => lease.traceparent)).toEqual([traceparent, traceparent]);
  });

  it('accepts jobs with large inputs beside small ones', async () => {
    const platform = await startPlatform();
    const inputs = [300_000, 10, 900_000, 400_000, 200_000].map((length, n) => ({
      n,
      text: 'x'.repeat(length),
    }));
    const submitted = await submitJobs(
      platform,
      inputs.map((input) => ({ input })),
    );
    for (const [index, input] of inputs.entries()) {
      const job = await takeJob(platform);
      expect(job.id).toBe(submitted[index]?.id);
      expect(JSON.parse(job.input.toString())).toEqual(input);
      await job.complete('{}');
    }
  });

  it('counts as one call for each job', async () => {
    const rateGate = new RateGate({ minute: 10 });
    const platform = await startPlatform({ server: { rateGate } });
    const send = (count: number) =>
      platform.post('/v2/demo/jobs', {
        jobs: Array.from({ length: count }, () => ({ input: {} })),
      });
    const first = await send(7);
    expect([first.status, first.headers.get('ratelimit')]).toEqual([200, '"minute";r=3;t=60']);
    const refused = await send(4);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('ratelimit')).toMatch(/^"minute";r=2;/);
    expect(await readJson(refused)).toMatchObject({ code: 'rate_limited' });
    expect((await send(2)).status).toBe(200);
    expect((await send(1)).status).toBe(429);
    expect(await platform.queue.health('demo')).toMatchObject({ jobs: { inQueue: 9 } });
  });

  it('reads no more bodies once refused requests have used up the rate limit', async () => {
    const platform = await startPlatform({ server: { rateGate: new RateGate({ minute: 4 }) } });
    const jobs = Array.from({ length: 3 }, () => ({ input: {} }));
    const statuses: number[] = [];
    for (let n = 0; n < 4; n++) {
      statuses.push((await platform.post('/v2/demo/jobs', { jobs })).status);
    }
    expect(statuses).toEqual([200, 429, 429, 429]);
    expect((await platform.post('/v2/demo/jobs', '{')).status).toBe(429);
  });

  it('refuses more jobs than the rate limit allows at any time', async () => {
    const rateGate = new RateGate({ minute: 10, hour: 5 });
    const platform = await startPlatform({ server: { rateGate } });
    const jobs = Array.from({ length: 6 }, () => ({ input: {} }));
    const refused = await platform.post('/v2/demo/jobs', { jobs });
    expect(refused.status).toBe(422);
    expect((await readJson(refused))['errors']).toEqual([errorAt('jobs')]);
  });
});

const BOUNDS = { owner: 'me', maxEnvelopeBytes: 65_536, maxJsonDepth: 1_000 };

/** Runs the scan at once. Values as texts. */
function find(json: string, bounds: Partial<typeof BOUNDS> = {}) {
  const body = Buffer.from(json);
  const search = findJobs(body, { ...BOUNDS, ...bounds });
  for (;;) {
    const { done, value } = search.next();
    if (!done) continue;
    if (!value) return undefined;
    const cut = (span?: { at: number; end: number }) =>
      span && body.toString('utf8', span.at, span.end);
    return {
      value: cut(value.value),
      jobs: value.jobs.map((job) => ({ text: cut(job), input: cut(job.input) })),
    };
  }
}

const space = fc.constantFrom('', ' ', '\n\t ');
const spaced = (json: fc.Arbitrary<string>) =>
  fc.tuple(space, json, space).map((parts) => parts.join(''));
const quoted = (text: fc.Arbitrary<string>) => text.map((each) => JSON.stringify(each));
const objectOf = (key: fc.Arbitrary<string>, value: fc.Arbitrary<string>) =>
  fc
    .array(fc.tuple(spaced(key), spaced(value)), { maxLength: 4 })
    .map((members) => `{${members.map((member) => member.join(':')).join(',')}}`);
const arrayOf = (value: fc.Arbitrary<string>) =>
  fc.array(spaced(value), { maxLength: 4 }).map((items) => `[${items.join(',')}]`);

const keys = fc.oneof(
  quoted(fc.constantFrom('input', 'jobs', 'policy', 'x"y')),
  fc.constantFrom('"\\u0069nput"', '"job\\u0073"'),
);
const { value: jsonText } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom('0', '-1.5e+3', 'true', '""', '{}', '[ ]', '"\\"]}"'),
    quoted(fc.string({ unit: 'grapheme', maxLength: 40 })),
    arrayOf(tie('value')),
    objectOf(keys, tie('value')),
  ),
}));
/** Bodies that are nearly right. */
const bodies = fc.oneof(
  spaced(objectOf(keys, jsonText)),
  spaced(objectOf(keys, arrayOf(objectOf(keys, jsonText)))),
  spaced(jsonText),
);

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

describe('the scan of jobs', () => {
  it('finds what JSON.parse finds', () => {
    let inputs = 0;
    fc.assert(
      fc.property(bodies, (json) => {
        const parsed: unknown = JSON.parse(json);
        const found = find(json);
        const jobs = isObject(parsed) && Object.hasOwn(parsed, 'jobs') ? parsed['jobs'] : undefined;
        expect(found?.value && JSON.parse(found.value)).toEqual(jobs);
        expect(found?.jobs.map(({ text = '' }) => JSON.parse(text))).toEqual(
          Array.isArray(jobs) ? jobs : [],
        );
        for (const { input, text = '' } of found?.jobs ?? []) {
          const job: unknown = JSON.parse(text);
          const hasInput = isObject(job) && Object.hasOwn(job, 'input');
          expect(input !== undefined).toBe(hasInput);
          if (!isObject(job) || input === undefined) continue;
          inputs++;
          expect(JSON.parse(input)).toEqual(job['input']);
          expect([input, text]).toEqual([input.trim(), text.trim()]);
        }
      }),
      { numRuns: 2_000 },
    );
    expect(inputs).toBeGreaterThan(200);
  });

  it('accepts the same documents as JSON.parse', () => {
    const text = '{"a":[1],"jobs":[{"input":{"b":"\\u00e9"},"c":"x\\""},[2],3]}';
    for (let at = 0; at < text.length; at++) {
      for (const char of ['', ...'{}[],:"\\0x']) {
        const changed = text.slice(0, at) + char + text.slice(at + 1);
        let isParsed = true;
        try {
          JSON.parse(changed);
        } catch {
          isParsed = false;
        }
        expect([changed, find(changed) !== undefined]).toEqual([changed, isParsed]);
      }
    }
  });

  it('bounds what a job has beside its input, and the body beside the jobs, wherever it is', () => {
    const large = JSON.stringify('x'.repeat(200_000));
    const bounds = { maxEnvelopeBytes: 100 };
    const whole = find(`{"jobs":[{"input":${large}},{"a":1,"input":${large}}]}`, bounds);
    expect(whole?.jobs[1]?.input).toBe(large);
    for (const [json, place] of [
      [`{"jobs":[{"input":1,"a":${large}}]}`, 'jobs[0]'],
      [`{"jobs":[{},{"a":${large},"input":1}]}`, 'jobs[1]'],
      [`{"jobs":[{"input":${large},"input":1}]}`, 'jobs[0]'],
      [`{"jobs":[{"input":1}],"a":${large}}`, 'except jobs'],
      [`{"jobs":[${large}],"jobs":[]}`, 'jobs[0]'],
      [`{"jobs":[{"input":${large}}],"jobs":[]}`, 'except jobs'],
      [large, 'except jobs'],
    ] as const) {
      expect(() => find(json, bounds)).toThrow(JsonBoundError);
      expect(() => find(json, bounds)).toThrow(place);
    }
  });

  it('names the place that is nested too deeply', () => {
    const nest = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);
    const bounds = { maxJsonDepth: 5 };
    expect(find(`{"jobs":[{"input":${nest(5)}}]}`, bounds)?.jobs).toHaveLength(1);
    expect(() => find(`{"jobs":[1,{"input":${nest(6)}}]}`, bounds)).toThrow(
      'jobs[1].input: must be nested at most 5 levels deep',
    );
    expect(() => find(`{"jobs":[{"a":${nest(6)}}]}`, bounds)).toThrow('jobs[0]: must be nested');
    expect(() => find(`{"a":${nest(9)}}`, bounds)).toThrow('body: must be nested');
  });
});

const read = (body: unknown) =>
  readJobs(Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)), BOUNDS);

async function refusal(body: unknown): Promise<ProblemError> {
  const error: unknown = await read(body).catch((thrown: unknown) => thrown);
  if (error instanceof ProblemError) return error;
  throw new Error(`not refused: ${JSON.stringify(error)}`);
}

describe('the jobs of a body', () => {
  it('are read as the bodies of run are', async () => {
    const jobs = [
      '{"input":{"a":1.0}}',
      '{ "input" : {"b" : "\\u0041"} , "policy":{"priority":3}}',
      '{"webhook":"https://example.com/x","input":{},"idempotencyKey":"k"}',
    ];
    const together = await read(`{ "jobs" : [${jobs.join(' ,\n')}] }`);
    for (const [index, job] of jobs.entries()) {
      const body = Buffer.from(job);
      const { input, request } = await readSubmission(body, BOUNDS);
      expect(Buffer.from(together[index]?.input ?? '').toString()).toBe(input.toString());
      expect(together[index]?.request).toEqual(request);
      const requestHash = await hashRequest(body, input);
      const isHashed = request.idempotencyKey !== undefined;
      expect(together[index]?.requestHash).toBe(isHashed ? requestHash : undefined);
    }
  });

  it.each([
    ['', 'malformed', undefined],
    ['{"jobs":[{"input":{}}', 'malformed', undefined],
    ['[]', 'invalid', 'body'],
    ['{}', 'invalid', 'jobs'],
    ['{"jobs":{"input":{}}}', 'invalid', 'jobs'],
    ['{"jobs":[]}', 'invalid', 'jobs'],
    ['{"jobs":[{"input":{}}],"input":{}}', 'invalid', 'input'],
    ['{"jobs":[{"input":{}}],"__proto__":{}}', 'invalid', '__proto__'],
    ['{"jobs":[{"input":{}},null]}', 'invalid', 'jobs[1]'],
    ['{"jobs":[{"input":{}},[]]}', 'invalid', 'jobs[1]'],
    ['{"jobs":[{"input":{}},{}]}', 'invalid', 'jobs[1].input'],
    ['{"jobs":[{"input":[]}]}', 'invalid', 'jobs[0].input'],
    ['{"jobs":[{"input":"x"}]}', 'invalid', 'jobs[0].input'],
    ['{"jobs":[{"input":{},"policy":{"ttl":1}}]}', 'invalid', 'jobs[0].policy.ttl'],
    ['{"jobs":[{"input":{},"policy":{"__proto__":1}}]}', 'invalid', 'jobs[0].policy.__proto__'],
    ['{"jobs":[{"input":{},"more":1}]}', 'invalid', 'jobs[0].more'],
  ])('are refused together: %s', async (body, code, path) => {
    const { code: actual, errors } = await refusal(body);
    expect(actual).toBe(code);
    expect(errors?.map((each) => each.slice(0, each.indexOf(':')))).toEqual(path && [path]);
  });

  it('are refused if the body is not UTF-8', async () => {
    await expect(readJobs(Buffer.from([0x7b, 0xff, 0x7d]), BOUNDS)).rejects.toThrow('not UTF-8');
  });

  it('may be 100', async () => {
    const jobs = Array.from({ length: 100 }, () => ({ input: {} }));
    expect(await read({ jobs })).toHaveLength(100);
    const { code, errors } = await refusal({ jobs: [...jobs, { input: {} }] });
    expect([code, errors]).toEqual(['invalid', ['jobs: must have at most 100 jobs']]);
  });

  it('let other work run while they are read', async () => {
    const policy = { ttl: 10_000 };
    const job = { input: { text: 'x'.repeat(60_000) }, policy, idempotencyKey: 'k' };
    let turns = 0;
    const count = () => {
      turns++;
      again = setImmediate(count);
    };
    let again = setImmediate(count);
    await read({ jobs: Array.from({ length: 100 }, () => job) });
    clearImmediate(again);
    // 92 slices of the scan, and one for each job that is hashed.
    expect(turns).toBeGreaterThan(150);
  });
});
