// `millrace conformance` on our own workers and platform, which pass, on a worker of another making,
// and on ones that do one thing wrong, which fail in just that.
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { startOddPlatform } from '../support/odd-platform.ts';
import { fixture, PlatformProcess, Process } from '../support/processes.ts';

/** Leases run out in real time, and half-open connections are found when their waits end. */
const LIMIT_MS = 170_000;
const ODD_WORKER = fileURLToPath(new URL('../support/odd-worker.js', import.meta.url));
const BIN = fileURLToPath(new URL('../../bin/millrace.js', import.meta.url));
const OWN_WORKER = [process.execPath, BIN, 'worker', fixture('conformance.ts')];

interface Verdict {
  code: number | null;
  holds: boolean;
  failing: string[];
  count: number;
}

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function judge(...args: string[]): Promise<Verdict> {
  const command = new Process(['conformance', '--json', ...args]);
  closers.push(() => command.kill());
  const code = await command.exited;
  const text = /^\{\n.*^\}$/ms.exec(command.output)?.[0];
  if (text === undefined) throw new Error(command.output);
  const { checks, holds } = JSON.parse(text);
  const failing = checks.filter((row: { result: string }) => row.result !== 'holds');
  return {
    code,
    holds,
    failing: failing.map((row: { area: string; rule: string; detail: string }) => row.rule),
    count: checks.length,
  };
}

describe('our own worker', () => {
  it.each([
    { speaks: 'HTTP', args: ['--link', 'http'], atLeast: 24 },
    { speaks: 'gRPC', args: ['--link', 'grpc'], atLeast: 24 },
    { speaks: "RunPod's protocol", args: ['--protocol', 'runpod'], atLeast: 13 },
  ])('passes over $speaks', { timeout: LIMIT_MS }, async ({ args, atLeast }) => {
    const { count, ...verdict } = await judge('--as-platform', ...args, '--', ...OWN_WORKER);
    expect(verdict).toEqual({ code: 0, holds: true, failing: [] });
    expect(count).toBeGreaterThanOrEqual(atLeast);
  });
});

describe('our own platform', () => {
  it.each([
    { speaks: 'HTTP', protocol: 'millrace', atLeast: 28 },
    { speaks: 'gRPC', protocol: 'millrace', atLeast: 28 },
    { speaks: "RunPod's protocol", protocol: 'runpod', atLeast: 15 },
  ])('passes over $speaks', { timeout: LIMIT_MS }, async ({ atLeast, protocol, speaks }) => {
    const terms = ['--lease-ms', '3000', '--renew-every-ms', '1000', '--take-wait-ms', '3000'];
    const args = [...terms, '--grpc-port', '0'];
    const platform = await PlatformProcess.start({ endpoints: ['test'], args });
    closers.push(() => platform.close());
    const grpcUrl = await platform.process.find(/(grpc:\/\/127\.0\.0\.1:\d+)/);
    const jobsUrl = protocol === 'runpod' ? `${platform.url}/runpod/v2` : platform.url;
    const { count, ...verdict } = await judge(
      ...['--as-worker', '--protocol', protocol, '--endpoint', 'test'],
      ...['--url', speaks === 'gRPC' ? grpcUrl : jobsUrl, '--jobs-url', jobsUrl],
      ...['--key', platform.workerKey, '--jobs-key', platform.adminKey],
    );
    expect(verdict).toEqual({ code: 0, holds: true, failing: [] });
    expect(count).toBeGreaterThanOrEqual(atLeast);
  });
});

describe('a worker of another making', () => {
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

  it('passes what it can do', { timeout: LIMIT_MS }, async () => {
    const verdict = await judge('--as-platform', ...only, '--', process.execPath, ODD_WORKER);
    expect(verdict).toMatchObject({ code: 0, failing: [] });
  });

  it.each([
    ['is deaf', 'cancel', 'ends the handler of a cancelled job, and says so'],
    [
      'forgets reports',
      'report',
      'repeats an outcome whose answer was lost, unchanged, until it is answered',
    ],
    [
      'has one takeId',
      'take',
      'asks again after an answer without jobs, by a new takeId, one call at a time',
    ],
    [
      'leaves without a word',
      'drain',
      'lets a running job end on SIGTERM, takes no other, and says bye',
    ],
  ])('that %s fails in that', { timeout: LIMIT_MS }, async (oddity, area, rule) => {
    const worker = [process.execPath, ODD_WORKER, oddity];
    const verdict = await judge('--as-platform', '--only', area, '--', ...worker);
    expect(verdict).toMatchObject({ code: 1, holds: false });
    expect(verdict.failing).toContain(rule);
  });

  it('without which nothing else can be seen stops the rest', { timeout: LIMIT_MS }, async () => {
    const worker = [process.execPath, ODD_WORKER, 'is greedy'];
    const { code, count, failing } = await judge(
      '--as-platform',
      '--only',
      'drain',
      '--',
      ...worker,
    );
    expect(code).toBe(1);
    expect(failing[0]).toBe('asks for jobs, for no more than it has slots');
    expect(failing).toHaveLength(count - 1);
  });

  it('that never says a word is given up', async () => {
    const command = new Process(['conformance', '--as-platform', '--wait-ms', '300']);
    expect(await command.exited).toBe(1);
    expect(command.output).toContain('no worker said anything within 0.3 s');
  });
});

describe('a platform that does one thing wrong', () => {
  it.each([
    [
      'applies reports twice',
      'report',
      'applies a report once and calls it a duplicate after that',
    ],
    [
      'takes any token',
      'fencing',
      'gives a job whose lease ran out to another worker, and nothing of the old token counts then',
    ],
    ['forgets takeIds', 'take', 'gives the same leases again for the same takeId'],
    [
      'lets old processes in',
      'incarnation',
      'ends the rights of the older process when a newer one says hello',
    ],
  ] as const)('that %s fails in that', { timeout: LIMIT_MS }, async (oddity, area, rule) => {
    const platform = await startOddPlatform(oddity);
    closers.push(() => platform.close());
    const { endpoint, jobsKey, key, url } = platform;
    const verdict = await judge(
      ...['--as-worker', '--url', url, '--endpoint', endpoint, '--only', area],
      ...['--key', key, '--jobs-key', jobsKey],
    );
    expect(verdict).toMatchObject({ code: 1, holds: false });
    expect(verdict.failing).toContain(rule);
  });
});
