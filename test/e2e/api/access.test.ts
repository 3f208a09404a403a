// Who may call what, and what is answered where there is nothing: keys, paths and methods.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readProblem } from '../../support/answers.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { PlatformProcess } from '../../support/processes.ts';

const UNKNOWN_JOB = '019a9999-9999-7999-8999-999999999999';
const UNKNOWN_KEY = `mr_${'A'.repeat(43)}`;

let platform: PlatformProcess;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ['echo'] });
});
afterAll(() => platform.close());

/** Operation, method, path below the endpoint's, and the scope that it wants. */
const onEndpoint = [
  ['run', 'POST', 'run', 'jobs:write'],
  ['runsync', 'POST', 'runsync', 'jobs:write'],
  ['purge-queue', 'POST', 'purge-queue', 'jobs:write'],
  ['health', 'GET', 'health', 'jobs:read'],
  ['the list of jobs', 'GET', 'jobs', 'jobs:read'],
  ['several jobs in one request', 'POST', 'jobs', 'jobs:write'],
] as const;
const onJob = [
  ['status', 'GET', `status/${UNKNOWN_JOB}`, 'jobs:read'],
  ['stream', 'GET', `stream/${UNKNOWN_JOB}`, 'jobs:read'],
  ['cancel', 'POST', `cancel/${UNKNOWN_JOB}`, 'jobs:write'],
  ['retry', 'POST', `retry/${UNKNOWN_JOB}`, 'jobs:write'],
  ['the log', 'GET', `logs/${UNKNOWN_JOB}`, 'jobs:read'],
] as const;
const onClientRoutes = [...onEndpoint, ...onJob];

const BODIES: Readonly<Record<string, string>> = {
  run: '{"input":{}}',
  runsync: '{"input":{}}',
  jobs: '{"jobs":[{"input":{}}]}',
};

function call(method: string, path: string, headers: Record<string, string>): Promise<Response> {
  const content = method === 'POST' ? BODIES[path.split('/').at(-1) ?? ''] : undefined;
  const body = content === undefined ? {} : { body: content };
  const type = { 'content-type': 'application/json' };
  return fetchChecked(`${platform.url}${path}`, {
    method,
    headers: { ...type, ...headers },
    ...body,
  });
}

describe.each(onClientRoutes)('%s', (_name, method, path, scope) => {
  it('answers 401 without a key and explains how to send one', async () => {
    const answer = await call(method, `/v2/echo/${path}`, {});
    expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer/);
    expect((await readProblem(answer, 401)).detail).toContain('Authorization: Bearer');
  });

  it('answers 401 to an unknown key', async () => {
    const answer = await call(method, `/v2/echo/${path}`, {
      authorization: `Bearer ${UNKNOWN_KEY}`,
    });
    await readProblem(answer, 401);
  });

  it('answers 403 to a worker key and names the missing scope', async () => {
    const authorization = `Bearer ${platform.workerKey}`;
    const answer = await call(method, `/v2/echo/${path}`, { authorization });
    expect((await readProblem(answer, 403)).detail).toContain(scope);
  });

  it('answers 404 for an unknown endpoint', async () => {
    const authorization = `Bearer ${platform.adminKey}`;
    await readProblem(await call(method, `/v2/nowhere/${path}`, { authorization }), 404);
  });

  it('answers 405 to another method, with the allowed methods in Allow', async () => {
    const authorization = `Bearer ${platform.adminKey}`;
    const hasBoth = path === 'jobs';
    const other = method === 'GET' || hasBoth ? 'DELETE' : 'GET';
    const answer = await call(other, `/v2/echo/${path}`, { authorization });
    const hasHead = method === 'GET' && !path.startsWith('stream');
    const own = hasHead ? 'GET, HEAD' : method;
    expect(answer.headers.get('allow')).toBe(hasBoth ? 'POST, GET, HEAD' : own);
    await readProblem(answer, 405);
  });
});

describe.each(onJob)('%s of an unknown job', (_name, method, path) => {
  it('answers 404 and names the job', async () => {
    const authorization = `Bearer ${platform.adminKey}`;
    const answer = await call(method, `/v2/echo/${path}`, { authorization });
    expect((await readProblem(answer, 404)).detail).toContain(UNKNOWN_JOB);
  });
});

describe('a key', () => {
  const ways: [name: string, write: (key: string) => string][] = [
    ['after the word Bearer', (key) => `Bearer ${key}`],
    ['after the word bearer in other letters', (key) => `bEaReR ${key}`],
    ['bare', (key) => key],
  ];

  it.each(ways)('is accepted %s', async (_name, write) => {
    const authorization = write(platform.adminKey);
    expect((await call('GET', '/v2/echo/health', { authorization })).status).toBe(200);
  });

  const malformed: [name: string, authorization: () => string][] = [
    ['nothing but the word Bearer', () => 'Bearer'],
    ['another scheme', () => `Basic ${platform.adminKey}`],
    ['one character less', () => `Bearer ${platform.adminKey.slice(0, -1)}`],
    ['one character more', () => `Bearer ${platform.adminKey}A`],
    ['two keys', () => `Bearer ${platform.adminKey} ${platform.adminKey}`],
  ];

  it.each(malformed)('is refused with 401 as %s', async (_name, write) => {
    await readProblem(await call('GET', '/v2/echo/health', { authorization: write() }), 401);
  });

  it('is checked before the endpoint, so that callers without a key cannot learn which endpoints exist', async () => {
    await readProblem(await call('GET', '/v2/nowhere/health', {}), 401);
  });

  it('is never printed by the platform', () => {
    expect(platform.adminKey).toMatch(/^mr_[A-Za-z0-9_-]{43}$/);
    expect(platform.process.output).not.toContain(platform.adminKey);
    expect(platform.process.output).not.toContain(platform.workerKey);
  });
});

describe.each(['hello', 'take', 'renew', 'report', 'bye'])('the worker verb %s', (verb) => {
  it('answers 401 without a key', async () => {
    await readProblem(await call('POST', `/v2/echo/worker/${verb}`, {}), 401);
  });
});

describe('an unknown path', () => {
  it.each(['/v2', '/v2/echo', '/v2/echo/runs', '/v2/echo/status', '/v2/echo/status/a/b'])(
    'returns 404: %s',
    async (path) => {
      await readProblem(await platform.fetch(path), 404);
    },
  );

  it('returns 400 if it is not a valid URL path', async () => {
    await readProblem(await platform.fetch('/v2/%zz/health'), 400);
  });
});

describe('a request without a route', () => {
  it.each(['', '{x', '{}'])('gets the same answer with the body %j', async (body) => {
    const authorization = `Bearer ${platform.adminKey}`;
    const headers = { authorization, 'content-type': 'application/json' };
    const send = (path: string) =>
      fetchChecked(`${platform.url}${path}`, { method: 'PUT', headers, body });
    await readProblem(await send('/v2/echo/health'), 405);
    await readProblem(await send('/v2/echo/healths'), 404);
  });
});

describe('the platform routes', () => {
  it.each(['/healthz', '/readyz'])('answer without a key on %s', async (path) => {
    expect((await call('GET', path, {})).status).toBe(200);
  });

  it('require a key for /metrics, which contain endpoint names', async () => {
    await readProblem(await call('GET', '/metrics', {}), 401);
    const authorization = `Bearer ${platform.adminKey}`;
    expect(await (await call('GET', '/metrics', { authorization })).text()).toContain(
      'millrace_queue_depth{endpoint="echo"} ',
    );
  });
});
