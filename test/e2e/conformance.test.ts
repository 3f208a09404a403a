// Runs `millrace conformance` on the Millrace platform, on a third-party worker, and on workers and
// platforms with one fault each. The complete run on the Millrace worker takes longer: see test/soak.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { PlatformProcess, Process } from '../support/processes.ts';
import {
  judgeConformance,
  LIMIT_MS,
  ODD_RUNPOD_WORKER,
  ODD_WORKER,
  OWN_WORKER,
} from '../support/runs/conformance-run.ts';
import { startOddPlatform } from '../support/runs/odd-platform.ts';

/** The input of the first check. */
const INPUT = { text: 'ä "\\ 😀', list: [1, null] };
const SLEEPING_WORKER = [
  process.execPath,
  '-e',
  "console.log('worker', process.pid); setInterval(() => {}, 1000)",
];

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

describe('the Millrace worker', () => {
  it('passes the areas without long waits', async () => {
    const areas = ['hello', 'take', 'outcome', 'drain'].flatMap((area) => ['--only', area]);
    const verdict = await judgeConformance('worker', ...areas, '--', ...OWN_WORKER);
    expect(verdict).toMatchObject({ code: 0, holds: true, failing: [] });
  });
});

// These tests mostly wait: for leases to expire, and for calls that must not arrive.
describe('the Millrace platform', { concurrent: true, timeout: LIMIT_MS }, () => {
  let platform: PlatformProcess;

  beforeAll(async () => {
    const terms = ['--lease-ms', '3000', '--renew-every-ms', '1000', '--take-wait-ms', '3000'];
    const args = [...terms, '--grpc-port', '0'];
    platform = await PlatformProcess.start({ endpoints: ['http', 'grpc', 'runpod'], args });
  });

  afterAll(() => platform.close());

  it.each([
    { speaks: 'HTTP', endpoint: 'http', protocol: 'millrace', atLeast: 28 },
    { speaks: 'gRPC', endpoint: 'grpc', protocol: 'millrace', atLeast: 28 },
    { speaks: "RunPod's protocol", endpoint: 'runpod', protocol: 'runpod', atLeast: 15 },
  ])('passes over $speaks', async ({ atLeast, endpoint, protocol, speaks }) => {
    const grpcUrl = await platform.process.find(/(grpc:\/\/127\.0\.0\.1:\d+)/);
    const jobsUrl = protocol === 'runpod' ? `${platform.url}/runpod/v2` : platform.url;
    const { count, ...verdict } = await judgeConformance(
      ...['platform', '--protocol', protocol, '--endpoint', endpoint],
      ...['--url', speaks === 'gRPC' ? grpcUrl : jobsUrl, '--jobs-url', jobsUrl],
      ...['--key', platform.workerKey, '--jobs-key', platform.adminKey],
    );
    expect(verdict).toEqual({ code: 0, holds: true, failing: [] });
    expect(count).toBeGreaterThanOrEqual(atLeast);
  });
});

describe('a third-party worker', { concurrent: true, timeout: LIMIT_MS }, () => {
  const areas = [
    'hello',
    'take',
    'outcome',
    'report',
    'cancel',
    'timeout',
    'lost',
    'drain',
    'held',
  ];
  const only = areas.flatMap((area) => ['--only', area]);

  it('passes the areas that it supports', async () => {
    const verdict = await judgeConformance('worker', ...only, '--', ...ODD_WORKER);
    expect(verdict).toMatchObject({ code: 0, failing: [] });
  });

  it.each([
    [
      'reuses one takeId',
      'take',
      'takes again after an empty answer, with a new takeId, one call at a time',
    ],
    [
      'exits without bye',
      'drain',
      'completes the running job after SIGTERM, takes no other, and says bye',
    ],
  ])('fails if it %s', async (oddity, area, rule) => {
    const worker = [...ODD_WORKER, oddity];
    const verdict = await judgeConformance('worker', '--only', area, '--', ...worker);
    expect(verdict).toMatchObject({ code: 1, holds: false });
    expect(verdict.failing).toContain(rule);
  });

  it('fails all later checks if it requests too many jobs', async () => {
    const worker = [...ODD_WORKER, 'requests too many jobs'];
    const { code, count, failing } = await judgeConformance(
      'worker',
      '--only',
      'drain',
      '--',
      ...worker,
    );
    expect(code).toBe(1);
    expect(failing[0]).toBe('requests at most as many jobs as it has slots');
    expect(failing).toHaveLength(count - 1);
  });

  it('fails if it does not connect in time', async () => {
    const command = new Process(['conformance', 'worker', '--wait-ms', '300']);
    expect(await command.exited).toBe(1);
    expect(command.output).toContain('no worker connected within 0.3 s');
  });
});

describe('a third-party RunPod worker', { concurrent: true, timeout: LIMIT_MS }, () => {
  const judge = (area: string, ...worker: string[]) =>
    judgeConformance(
      ...['worker', '--protocol', 'runpod', '--only', area],
      ...['--', ...ODD_RUNPOD_WORKER, ...worker],
    );

  it.each(['stream', 'drain'])('passes the area %s', async (area) => {
    expect(await judge(area)).toMatchObject({ code: 0, failing: [] });
  });

  it('passes if its handler only yields', async () => {
    expect(await judge('done', 'yields all')).toMatchObject({ code: 0, failing: [] });
  });

  it('fails if its handler yields another value', async () => {
    const rule = 'posts once what the handler returned or yielded';
    const failing = expect.arrayContaining([rule]);
    expect(await judge('done', 'yields another value')).toMatchObject({ code: 1, failing });
  });

  it.each([
    [
      'posts chunks of any size',
      'stream',
      'posts at most 1,000,000 bytes at a time; a larger value is split',
    ],
    [
      'loses the rest of large chunks',
      'stream',
      'posts at most 1,000,000 bytes at a time; a larger value is split',
    ],
    [
      'drops late jobs',
      'drain',
      'runs a job that arrives after SIGTERM, or returns it with an error',
    ],
  ])('fails only one rule if it %s', async (oddity, area, rule) => {
    expect(await judge(area, oddity)).toMatchObject({ code: 1, holds: false, failing: [rule] });
  });
});

describe('the command', () => {
  it('refuses an unknown area, and lists the areas', async () => {
    const command = new Process(['conformance', 'worker', '--only', 'sleep', '--', 'true']);
    expect(await command.exited).toBe(2);
    expect(command.output).toContain('--only sleep: unknown area; give one of hello, take,');
  });

  it('exits at once if the worker cannot be started', { timeout: 60_000 }, async () => {
    const command = new Process(['conformance', 'worker', '--', '/nowhere/worker']);
    expect(await command.exited).toBe(1);
    expect(command.output).toContain('/nowhere/worker');
  });

  it('stops the worker if it is interrupted', async () => {
    const command = new Process(['conformance', 'worker', '--', ...SLEEPING_WORKER]);
    closers.push(() => command.kill());
    const pid = Number(await command.find(/worker (\d+)/));
    command.child.kill('SIGTERM');
    expect(await command.exited).toBe(130);
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });

  it('explains why the server is unreachable, and runs no check', async () => {
    const place = ['--url', 'http://127.0.0.1:1025', '--endpoint', 'e', '--key', 'k'];
    const args = ['conformance', 'platform', '--protocol', 'runpod', ...place];
    const command = new Process(args);
    expect(await command.exited).toBe(1);
    expect(command.output).toContain('ECONNREFUSED');
    expect(command.output).not.toContain('FAILS');
  });

  it('does not wait for polls that a platform never answers', { timeout: 20_000 }, async () => {
    const server = createServer((request, response) => {
      request.resume();
      if (request.url?.includes('job-stop')) return;
      const isJob = request.url?.includes('job-take');
      response.end(JSON.stringify(isJob ? { id: 'j', input: INPUT } : { id: 'j', status: 'DONE' }));
    });
    server.listen(0, '127.0.0.1');
    closers.push(
      () => server.closeAllConnections(),
      () => server.close(),
    );
    await once(server, 'listening');
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('there is no port');
    const { code, failing } = await judgeConformance(
      ...['platform', '--protocol', 'runpod', '--url', `http://127.0.0.1:${address.port}`],
      ...['--endpoint', 'e', '--key', 'k', '--only', 'stop'],
    );
    expect(code).toBe(1);
    expect(failing).toEqual(['names a cancelled job at once, by the ID that the take returned']);
  });
});

describe('a platform with one fault', { concurrent: true, timeout: LIMIT_MS }, () => {
  it.each([
    [
      'applies reports twice',
      'report',
      'applies a report once and answers a repeat as a duplicate',
    ],
    [
      'accepts any token',
      'fencing',
      'gives a job with an expired lease to another worker and then ignores the old token',
    ],
    ['forgets takeIds', 'take', 'returns the same leases for the same takeId'],
    [
      'accepts old incarnations',
      'incarnation',
      'rejects the calls of a process after a newer one has said hello',
    ],
  ] as const)('fails if it %s', async (oddity, area, rule) => {
    await using platform = await startOddPlatform(oddity);
    const { endpoint, jobsKey, key, url } = platform;
    const verdict = await judgeConformance(
      ...['platform', '--url', url, '--endpoint', endpoint, '--only', area],
      ...['--key', key, '--jobs-key', jobsKey],
    );
    expect(verdict).toMatchObject({ code: 1, holds: false });
    expect(verdict.failing).toContain(rule);
  });
});
