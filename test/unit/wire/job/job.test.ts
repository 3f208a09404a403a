// What a request for a job may be.
import { describe, expect, it } from 'vitest';
import { isTerminal, JOB_STATUSES, JobFailedError } from '../../../../src/wire/job/job.ts';
import { runRequest } from '../../../../src/wire/job/job-schemas.ts';
import { endpointId, endpointSettings } from '../../../../src/wire/resources/endpoint.ts';

function issuesOf(body: unknown): string[] {
  const result = runRequest.safeParse(body);
  return result.success ? [] : result.error.issues.map((issue) => issue.path.join('.'));
}

describe('a run request', () => {
  it('may have all members at once', () => {
    const body = {
      input: { prompt: 'x' },
      policy: { executionTimeout: 1_000, ttl: 604_800_000, priority: 9, delay: 0 },
      idempotencyKey: 'k',
    };
    expect(runRequest.parse(body)).toEqual(body);
  });

  it.each([undefined, null, 'text', 1, true, [], [{}]])('is refused with the input %j', (input) => {
    expect(issuesOf({ input })).toEqual(['input']);
  });

  it('accepts an empty object as input', () => {
    expect(issuesOf({ input: {} })).toEqual([]);
  });

  it.each([
    ['executionTimeout', 999],
    ['executionTimeout', 604_800_001],
    ['executionTimeout', 1_000.5],
    ['ttl', 9_999],
    ['ttl', 604_800_001],
    ['ttl', '10000'],
    ['priority', -1],
    ['priority', 10],
    ['delay', -1],
    ['delay', 604_800_001],
  ])('is refused with policy.%s = %j, by name', (name, value) => {
    expect(issuesOf({ input: {}, policy: { [name]: value } })).toEqual([`policy.${name}`]);
  });

  it.each(['', 'x'.repeat(256), 7])('is refused with the idempotency key %j', (idempotencyKey) => {
    expect(issuesOf({ input: {}, idempotencyKey })).toEqual(['idempotencyKey']);
  });

  it.each([
    'https://example.com',
    'http://example.com:8080/done?job=1#part',
    'http://[::1]/',
    `https://example.com/${'x'.repeat(2_028)}`,
  ])('accepts the webhook %s', (webhook) => {
    expect(issuesOf({ input: {}, webhook })).toEqual([]);
  });

  it.each([
    '',
    'example.com/done',
    '/done',
    'ftp://example.com/',
    'file:///etc/passwd',
    'http://',
    'https://me:secret@example.com/',
    'https://me@example.com/',
    `https://example.com/${'x'.repeat(2_029)}`,
    7,
    null,
  ])('is refused with the webhook %j', (webhook) => {
    expect(issuesOf({ input: {}, webhook })).toEqual(['webhook']);
  });

  it.each([{ callback: 'https://example.com' }, { inputs: {} }])('is refused with %j', (extra) => {
    const result = runRequest.safeParse({ input: {}, ...extra });
    expect(result.error?.issues[0]).toMatchObject({
      code: 'unrecognized_keys',
      keys: Object.keys(extra),
    });
  });

  it('is refused with an unknown policy', () => {
    expect(issuesOf({ input: {}, policy: { retries: 3 } })).toEqual(['policy']);
  });
});

describe('a status', () => {
  it('is terminal unless the job waits or runs', () => {
    const terminal = JOB_STATUSES.filter(isTerminal);
    expect(terminal).toEqual(['COMPLETED', 'FAILED', 'CANCELLED', 'TIMED_OUT']);
  });
});

describe('an endpoint', () => {
  it.each(['e', 'ep_1', 'A-b_9', 'x'.repeat(64)])('may be called %s', (id) => {
    expect(endpointId.safeParse(id).success).toBe(true);
  });

  it.each(['', '-a', '_a', 'a.b', 'a/b', 'pods', 'catalog', 'x'.repeat(65)])(
    'may not be called %j',
    (id) => {
      expect(endpointId.safeParse(id).success).toBe(false);
    },
  );

  it('has default settings', () => {
    expect(endpointSettings.parse({})).toEqual({
      executionTimeoutMs: 600_000,
      failedRetention: 604_800_000,
      history: null,
      groupConcurrency: null,
      groupRateLimit: null,
      groupWeights: null,
      limits: [],
      rateLimit: null,
      maxAttempts: 3,
      maxQueued: 100_000,
      retry: null,
      webhook: null,
    });
  });
});

describe('the error of a job', () => {
  it('is an instance of each copy of the class: millrace/client has one of its own', async () => {
    const path = new URL('../../../../src/wire/job/job.ts?copy', import.meta.url).href;
    const copy = await import(path);
    expect(copy.JobFailedError).not.toBe(JobFailedError);
    const error = new copy.JobFailedError({ id: 'job-1', status: 'FAILED' });
    expect(error).toBeInstanceOf(JobFailedError);
    expect(new Error('other')).not.toBeInstanceOf(JobFailedError);
  });
});
