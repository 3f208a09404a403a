// The body of a request that submits several jobs.
import { describe, expect, it } from 'vitest';
import { hashRequest, readSubmission } from '../../../../src/api/body/body.ts';
import { findJobs, readJobs } from '../../../../src/api/body/jobs-body.ts';
import { JsonBoundError } from '../../../../src/api/body/json-check.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { fc } from '../../../support/properties.ts';

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
