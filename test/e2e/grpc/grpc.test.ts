// Workers over gRPC as processes: with and without TLS, over ends of either side, and on a connection
// that only one end believes in.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.ts';
import { createGrpcLink } from '../../../src/transport/grpc/grpc-link.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../support/certificates.ts';
import { TcpProxy } from '../../support/network/tcp-proxy.ts';
import { listChildren } from '../../support/process-tree.ts';
import { PlatformProcess, type Process } from '../../support/processes.ts';
import { until } from '../../support/until.ts';

const GRPC_URL = /Workers over gRPC at (\S+)/;
const ENDPOINT = 'counting';
/** One for each test on the shared platform. */
const ENDPOINTS = ['plain', 'leaving', 'killed', 'dying'];

let shared: PlatformProcess;
let platform: PlatformProcess | undefined;
const closing: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
  await platform?.close();
  platform = undefined;
});

async function start(...args: string[]): Promise<PlatformProcess> {
  platform = await PlatformProcess.start({ endpoints: [ENDPOINT], args });
  return platform;
}

async function startWorker(
  from: PlatformProcess,
  { args = [], endpoint = ENDPOINT }: { args?: string[]; endpoint?: string } = {},
): Promise<Process> {
  const url = await from.process.find(GRPC_URL);
  const worker = from.startWorker(endpoint, 'counting.ts', ...['--url', url, ...args]);
  await worker.find(/worker ready/);
  return worker;
}

async function submit(to: PlatformProcess, input: object, endpoint: string): Promise<string> {
  const answer = await to.post(`/v2/${endpoint}/run`, { input });
  return Object(await answer.json()).id;
}

/** The job's record once it has ended. */
async function waitForEnd(from: PlatformProcess, id: string, endpoint: string): Promise<object> {
  return until(
    async () => {
      const answer = await from.fetch(`/v2/${endpoint}/status/${id}`).catch(() => undefined);
      const record = Object(await answer?.json());
      return ['COMPLETED', 'FAILED', 'TIMED_OUT'].includes(record.status) && record;
    },
    { everyMs: 50 },
  );
}

async function untilRunning(from: PlatformProcess, id: string, endpoint: string): Promise<void> {
  const look = async () => (await from.fetch(`/v2/${endpoint}/status/${id}`)).json();
  await expect.poll(look).toMatchObject({ status: 'IN_PROGRESS' });
}

/** The handler runs then: a lease that has not reached its worker goes back to the queue in a drain. */
async function untilStreaming(from: PlatformProcess, id: string, endpoint: string): Promise<void> {
  await until(async () => {
    const answer = await from.fetch(`/v2/${endpoint}/stream/${id}?after=0`);
    return Object(await answer.json()).length > 0;
  });
}

/** A port that is free and stays that of the platform over its restarts. */
async function choosePort(): Promise<string> {
  const proxy = await TcpProxy.start('http://127.0.0.1:1');
  const { port } = new URL(proxy.url);
  await proxy.close();
  return port;
}

describe('a worker over gRPC', () => {
  /** Leases outlive the tests: a job comes back by what its supervisor says, and by nothing else. */
  beforeAll(async () => {
    const args = ['--grpc-port', await choosePort(), '--lease-ms', '600000'];
    shared = await PlatformProcess.start({ endpoints: ENDPOINTS, args });
    return () => shared.close();
  });

  afterEach(() => shared.killWorkers());

  it('runs jobs and streams their output', async () => {
    const from = shared;
    const endpoint = 'plain';
    await startWorker(from, { endpoint });
    const plain = await submit(from, { n: 7, ms: 0 }, endpoint);
    const streaming = await submit(from, { n: 7, ms: 0, yields: 2 }, endpoint);
    expect(await waitForEnd(from, plain, endpoint)).toMatchObject({ output: { n: 7, square: 49 } });
    expect(await waitForEnd(from, streaming, endpoint)).toMatchObject({
      output: [{ n: 7, index: 0, attempt: 1 }, { index: 1 }],
    });
  });

  it('exits after a drain request when its jobs have ended', async () => {
    const from = shared;
    const endpoint = 'leaving';
    const worker = await startWorker(from, { endpoint });
    const id = await submit(from, { n: 3, ms: 300, yields: 3 }, endpoint);
    await untilStreaming(from, id, endpoint);
    expect(await worker.end('SIGTERM')).toBe(0);
    expect(await waitForEnd(from, id, endpoint)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
  });

  it('continues at its position when the platform is killed and restarted', async () => {
    const from = shared;
    const endpoint = 'killed';
    await startWorker(from, { endpoint });
    const id = await submit(from, { n: 4, ms: 200, yields: 10 }, endpoint);
    await untilRunning(from, id, endpoint);
    await from.kill();
    await from.restart();
    expect(await waitForEnd(from, id, endpoint)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
    const next = await submit(from, { n: 5, ms: 0 }, endpoint);
    expect(await waitForEnd(from, next, endpoint)).toMatchObject({ output: { n: 5, square: 25 } });
  });

  it('is reported by its supervisor if it crashes, and its job is retried at once', async () => {
    const from = shared;
    const endpoint = 'dying';
    const worker = await startWorker(from, { endpoint });
    const [pid = 0] = listChildren(worker.child.pid ?? 0);
    const id = await submit(from, { n: 6, ms: 3_000 }, endpoint);
    await untilRunning(from, id, endpoint);
    process.kill(pid, 'SIGKILL');
    expect(await waitForEnd(from, id, endpoint)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('explains why it cannot connect', async () => {
    const from = shared;
    const url = await from.process.find(GRPC_URL);
    const other = from.startWorker('plain', 'counting.ts', '--url', url, '--key', 'mr_no');
    await other.find(/refuses the key.*unknown or expired API key/);
    const lost = from.startWorker('nowhere', 'counting.ts', '--url', url);
    await lost.find(/NOT_FOUND endpoint nowhere not found/);
  });
});

describe('over TLS', () => {
  async function startSecure(...args: string[]) {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-tls-'));
    closing.push(() => rm(folder, { recursive: true }));
    const file = (name: string) => join(folder, name);
    await writeFile(file('cert.pem'), CERTIFICATE);
    await writeFile(file('key.pem'), CERTIFICATE_KEY);
    const tls = ['--tls-cert', file('cert.pem'), '--tls-key', file('key.pem')];
    const more = args.map((arg) => arg.replace('$', folder));
    return { from: await start('--grpc-port', '0', ...tls, ...more), file };
  }

  /** Posts to a platform whose certificate nobody else trusts. */
  async function submitSecurely(from: PlatformProcess): Promise<string> {
    const answer = await new Promise<string>((resolve, reject) => {
      const headers = { authorization: from.adminKey, 'content-type': 'application/json' };
      const options = { method: 'POST', ca: CERTIFICATE, headers };
      const call = request(`${from.url}/v2/${ENDPOINT}/runsync`, options, (response) =>
        resolve(text(response)),
      );
      call.on('error', reject).end('{"input":{"n":2,"ms":0}}');
    });
    return answer;
  }

  it('connects a worker that trusts the CA; another one logs the reason', async () => {
    const { file, from } = await startSecure();
    expect(await from.process.find(GRPC_URL)).toMatch(/^grpcs:/);
    await startWorker(from, { args: ['--ca', file('cert.pem')] });
    expect(await submitSecurely(from)).toContain('"square":4');
    const url = await from.process.find(GRPC_URL);
    const other = from.startWorker(ENDPOINT, 'counting.ts', '--url', url);
    await other.find(/the platform is unavailable.*certificate/);
  });

  it('connects only workers with a certificate if the platform requires one', async () => {
    const { file, from } = await startSecure('--grpc-client-ca', '$/cert.pem');
    const ca = ['--ca', file('cert.pem')];
    const url = await from.process.find(GRPC_URL);
    const without = from.startWorker(ENDPOINT, 'counting.ts', '--url', url, ...ca);
    await without.find(/the platform is unavailable.*certificate/);
    const pair = ['--client-cert', file('cert.pem'), '--client-key', file('key.pem')];
    await startWorker(from, { args: [...ca, ...pair] });
    expect(await submitSecurely(from)).toContain('"square":4');
    expect(without.output).not.toContain('worker ready');
  });
});

describe('a half-open connection', () => {
  it('is detected by keep-alive, even without traffic', async () => {
    const from = await start('--grpc-port', '0');
    const proxy = await TcpProxy.start(await from.process.find(GRPC_URL));
    closing.push(() => proxy.close());
    const key = from.workerKey;
    const link = createGrpcLink({ url: proxy.url, endpointId: ENDPOINT, key, log: silentLog });
    closing.push(() => link.close());
    const identity = { workerId: 'w1', incarnation: 1 };
    const hello = { ...identity, protocol: 1, version: '0', slots: 1, devices: [], outbox: [] };
    await link.hello(hello);
    proxy.weather = () => ({ kind: 'half-open', direction: 'request', afterBytes: 0 });
    const take = { ...identity, takeId: 't', max: 1, waitMs: 60_000, held: [] };
    const waiting = link.take(take, new AbortController().signal);
    // The test's limit is shorter than the 75 s for which the take itself would wait.
    await expect(waiting).rejects.toMatchObject({ name: 'LinkError', code: 'unavailable' });
    proxy.weather = undefined;
    expect(await link.hello(hello)).toMatchObject({ protocol: 1 });
  }, 60_000);
});
