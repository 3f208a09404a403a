// The fuzzer leaves no operation out, and its oracle sees wrong answers.
import { expect, it } from 'vitest';
import { startPlatform } from '../../support/api/platform.ts';
import { FUZZED_OPERATIONS } from '../../support/fuzz/operations.ts';
import { judgeAcceptance } from '../../support/fuzz/oracle.ts';

it('knows every route that is served', async () => {
  const { routes } = await startPlatform({ engine: 'process' });
  const fuzzed = FUZZED_OPERATIONS.map(({ method, path }) => `${method} ${path}`);
  // HEAD goes without saying where GET is: it is among the methods that requests are bent to.
  const served = routes
    .map(({ method, url }) => `${method} ${url}`)
    .filter((route) => fuzzed.includes(route) || !route.startsWith('HEAD '));
  const isOfWorkers = (route: string) => route.includes(' /lb/');
  expect(fuzzed.filter((route) => !isOfWorkers(route)).toSorted()).toEqual(
    served.filter((route) => !isOfWorkers(route)).toSorted(),
  );
  expect(fuzzed.filter(isOfWorkers)).toContain('POST /lb/:endpoint/*');
});

const CREATE_KEY = 'POST /v1/keys';
const LIST_JOBS = 'GET /v2/:endpoint/jobs';
const key = { name: 'a', scopes: ['jobs:read'] };

interface Sent {
  route: string;
  query?: [string, string][];
  json?: unknown;
}

function judge({ json, query = [], route }: Sent, status: number, errors: string[] = []) {
  const asked = { query, body: json === undefined ? undefined : Buffer.from(JSON.stringify(json)) };
  const body = JSON.stringify({ detail: errors.join(), errors });
  return judgeAcceptance({ route, asked, status, body });
}

const fitting: [string, Sent][] = [
  ['a body', { route: CREATE_KEY, json: key }],
  ['a body that may be left out', { route: 'POST /v1/keys/:key/rotate' }],
  ['an empty object where there is no body', { route: 'POST /v2/:endpoint/purge-queue', json: {} }],
  [
    'parameters',
    {
      route: LIST_JOBS,
      query: [
        ['limit', '5'],
        ['status', 'FAILED'],
      ],
    },
  ],
  ['an unknown parameter outside of /v1 and /v2', { route: 'GET /healthz', query: [['x', '']] }],
];

const violating: [string, Sent][] = [
  ['a body without a member', { route: CREATE_KEY, json: { name: 'a' } }],
  ['a body with a member too many', { route: CREATE_KEY, json: { ...key, admin: true } }],
  ['a body that is missing', { route: CREATE_KEY }],
  [
    'a date that is none',
    { route: CREATE_KEY, json: { ...key, expiresAt: '2026-13-45T99:99:99Z' } },
  ],
  ['a body where there is none', { route: 'POST /v2/:endpoint/purge-queue', json: { all: true } }],
  ['a number that is too large', { route: LIST_JOBS, query: [['limit', '100000']] }],
  ['text in the place of a number', { route: LIST_JOBS, query: [['limit', 'many']] }],
  [
    'a parameter twice',
    {
      route: LIST_JOBS,
      query: [
        ['limit', '5'],
        ['limit', '5'],
      ],
    },
  ],
  ['an unknown parameter', { route: LIST_JOBS, query: [['lmit', '5']] }],
];

it.each(fitting)('accepts %s, and reports a 422', (_name, sent) => {
  expect(judge(sent, 200)).toEqual([]);
  expect(judge(sent, 422, ['limit: no'])).toEqual([expect.stringContaining('422 for what fits')]);
});

it.each(violating)('refuses %s, and expects a 422', (_name, sent) => {
  expect(judge(sent, 201)).toEqual([expect.stringContaining('201 against the document')]);
  expect(judge(sent, 422, ['limit: no'])).toEqual([]);
});

it('knows the rules that the document describes in prose', () => {
  const pod = { name: 'a', image: 'a', cpu: { id: 'none', vcpuCount: 3, memory: 1 } };
  const sent = { route: 'POST /v2/pods', json: pod };
  expect(judge(sent, 422, ['cpu.vcpuCount: must be a power of two'])).toEqual([]);
  expect(judge(sent, 422, ['cpu.id: CPU flavor "none" is not in the catalog'])).toEqual([]);
  expect(judge(sent, 422, ['cpu.id: is not to our taste'])).toHaveLength(1);
});

it('ignores other refusals and undocumented parts', () => {
  expect(judge({ route: CREATE_KEY, json: {} }, 403)).toEqual([]);
  expect(judge({ route: 'POST /lb/:endpoint/*', json: 1 }, 200)).toEqual([]);
  expect(judge({ route: 'POST /runpod/v2/:endpoint/run', json: 1 }, 200)).toEqual([]);
});
