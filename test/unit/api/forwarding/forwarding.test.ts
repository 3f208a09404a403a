// Requests of clients and workers that reach a node which does not own the endpoint.
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { createGrpcServer } from '../../../../src/api/grpc/server.ts';
import { RateGate } from '../../../../src/api/limits/rate-limit.ts';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { createGrpcLink } from '../../../../src/transport/grpc/grpc-link.ts';
import { createHttpLink } from '../../../../src/transport/http-link.ts';
import { LinkError, type WorkerLink } from '../../../../src/wire/link/worker-link.ts';
import {
  ENDPOINT,
  exchange,
  nextTake,
  readJson,
  submitJob,
  takeJob,
} from '../../../support/api/platform.ts';
import { type Node, startNodes } from '../../../support/api/two-nodes.ts';
import { until } from '../../../support/until.ts';
import { startWorker, TargetList } from '../../../support/workers/worker-stand.ts';

const WORKER = { workerId: 'w1', incarnation: 1 };
const HELLO = { ...WORKER, protocol: 1, version: '1', slots: 1, devices: [], outbox: [] };
const take = (waitMs = 2_000) => ({
  ...{ ...WORKER, takeId: crypto.randomUUID(), max: 1, waitMs, held: [] },
});
const COMPLETED = { kind: 'completed', executionMs: 5, output: 'value' } as const;

describe('a client of a node that does not own the endpoint', () => {
  it('submits a job, waits for it and reads it', async () => {
    const { other, owner } = await startNodes();
    const id = await submitJob(other, { input: { n: 1 } });
    const job = await takeJob(owner);
    expect(job.id).toBe(id);
    await job.complete('{"n":2}');
    const status = await readJson(await other.call(`/v2/${ENDPOINT}/status/${id}`));
    expect(status).toMatchObject({ id, status: 'COMPLETED', output: { n: 2 } });
    const synced = other.post(`/v2/${ENDPOINT}/runsync`, { input: {} });
    await (await takeJob(owner)).complete('"late"');
    expect(await readJson(await synced)).toMatchObject({ status: 'COMPLETED', output: 'late' });
    const found = await other.call(`/v2/${ENDPOINT}/status/none`);
    expect(found.status).toBe(404);
    expect([...found.headers.keys()].filter((name) => name.startsWith('millrace-node'))).toEqual(
      [],
    );
  });

  it('reads a stream, by polls and as events', async () => {
    const { other, owner } = await startNodes();
    const id = await submitJob(other);
    const job = await takeJob(owner);
    await job.yieldChunks('{"output":1,"metrics":{}}');
    const page = await other.call(`/v2/${ENDPOINT}/stream/${id}`);
    expect(await page.json()).toEqual([{ output: 1, metrics: {} }]);
    const events = await other.call(`/v2/${ENDPOINT}/stream/${id}?after=0`, {
      headers: { accept: 'text/event-stream' },
    });
    expect(events.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    await job.yieldChunks('{"output":2,"metrics":{}}');
    await job.complete();
    const sent = await events.text();
    expect(sent).toContain('data: {"output":1');
    expect(sent).toContain('data: {"output":2');
    expect(sent).toContain('event: done');
  });

  it('sends and receives 20 MB', async () => {
    const { other, owner } = await startNodes();
    const large = { text: 'x'.repeat(19_900_000) };
    const synced = other.post(`/v2/${ENDPOINT}/runsync`, { input: large });
    const worker = openHttpLink(other);
    await worker.hello(HELLO);
    const [lease] = await worker.take(take(20_000), AbortSignal.timeout(20_000));
    if (!lease) throw new Error('no job');
    expect(lease.input).toHaveLength(JSON.stringify(large).length);
    const { attempt, input: body, jobId, token } = lease;
    const outcome = { jobId, attempt, token, seq: 1, kind: 'outcome', outcome: COMPLETED } as const;
    const answers = await worker.report({ ...WORKER, reports: [{ ...outcome, body }] });
    expect(answers).toEqual([{ answer: 'applied' }]);
    expect((await readJson(await synced))['output']).toEqual(large);
    expect(owner.flows.usedBytes).toBe(0);
  });

  it('reads and changes the control plane, which another node has', async () => {
    const { other } = await startNodes();
    const change = { method: 'PATCH' };
    const changed = await other.post(`/v1/endpoints/${ENDPOINT}`, { maxQueued: 5 }, change);
    expect(await readJson(changed)).toMatchObject({ id: ENDPOINT, maxQueued: 5 });
    const { endpoints } = await readJson(await other.call('/v1/endpoints'));
    expect(endpoints).toHaveLength(1);
    expect((await other.call('/healthz')).status).toBe(200);
    expect(await (await other.call('/metrics')).text()).toContain(
      'millrace_forwarded_request_duration_seconds_count{outcome="answered"} 2',
    );
  });

  it('may leave out a body that is optional', async () => {
    const { other } = await startNodes();
    const submitted = await other.post(`/v2/${ENDPOINT}/flows`, {
      jobs: [{ name: 'only', input: {} }],
    });
    const { id } = await readJson(submitted);
    const cancelled = await other.call(`/v2/${ENDPOINT}/flows/${id}/cancel`, { method: 'POST' });
    expect(await readJson(cancelled)).toEqual({ changed: 1 });
  });

  it('may send as many headers as at the owner', async () => {
    const { other } = await startNodes();
    const path = `/v2/${ENDPOINT}/health`;
    const named = ['Host', 'x', 'Connection', 'close', 'Authorization', `Bearer ${other.admin}`];
    const framed = named.join('').length + (named.length / 2 + 1) * 4 + 'X-Large'.length;
    for (const [bytes, status] of [
      [16_384, 200],
      [16_385, 431],
    ] as const) {
      const all = [...named, 'X-Large', 'x'.repeat(bytes - framed)];
      const lines = all.flatMap((name, at) => (at % 2 === 0 ? [`${name}: ${all[at + 1]}`] : []));
      const head = [`GET ${path} HTTP/1.1`, ...lines, '', ''].join('\r\n');
      expect(await exchange(other.port, [head])).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    }
  });

  it('has each call counted once', async () => {
    const rateGate = new RateGate({ minute: 3 });
    const { other } = await startNodes({ settings: { server: { rateGate } } });
    const statuses: number[] = [];
    for (let n = 0; n < 4; n++) statuses.push((await other.call('/v1/endpoints')).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
  });

  it('ends a wait at the owner when it disconnects', async () => {
    const { other, owner } = await startNodes();
    const arrived = nextTake(owner);
    const abort = new AbortController();
    const worker = openHttpLink(other);
    await worker.hello(HELLO);
    const taking = worker.take(take(20_000), abort.signal).catch(() => 'aborted');
    const signal = await arrived;
    abort.abort();
    expect(await taking).toBe('aborted');
    if (!signal.aborted) await once(signal, 'abort');
    expect(signal.aborted).toBe(true);
  });

  it.each([
    ['runsync', 'POST', `/v2/${ENDPOINT}/runsync`],
    ['runsync of RunPod', 'POST', `/runpod/v2/${ENDPOINT}/runsync?wait=60000`],
    ['status', 'GET', `/v2/${ENDPOINT}/status/JOB?wait=60000`],
    ['stream', 'GET', `/v2/${ENDPOINT}/stream/JOB?wait=60000`],
    ['status-sync of RunPod', 'GET', `/runpod/v2/${ENDPOINT}/status-sync/JOB`],
  ])('gets the present state when its node stops: %s', async (_name, method, path) => {
    const { other, owner } = await startNodes();
    const id = await submitJob(owner);
    const isWaiting = vi.spyOn(owner.queue.jobs, 'untilEnd');
    const isStreaming = vi.spyOn(owner.queue.streams, 'read');
    const body = method === 'POST' ? JSON.stringify({ input: {} }) : null;
    const headers = { 'content-type': 'application/json' };
    const asked = other.call(path.replace('JOB', id), { method, headers, body });
    await until(() => isWaiting.mock.calls.length + isStreaming.mock.calls.length > 0);
    await other.close();
    const answer = await asked;
    expect(answer.status).toBe(200);
    const text = await answer.text();
    if (path.includes('/stream/')) expect(text).toBe('[]');
    else expect(JSON.parse(text)).toMatchObject({ status: 'IN_QUEUE' });
  });

  it('ends its upload at the owner when it disconnects', async () => {
    const { other, owner } = await startNodes();
    const head = [
      `POST /v2/${ENDPOINT}/run HTTP/1.1`,
      ...['Host: x', `Authorization: Bearer ${other.admin}`, 'Content-Type: application/json'],
      ...['Content-Length: 5000000', '', ''],
    ];
    const socket = connect(other.port, '127.0.0.1');
    socket.write(head.join('\r\n') + 'x'.repeat(1_000_000));
    await until(() => owner.flows.usedBytes === 5_000_000);
    socket.destroy();
    await until(() => owner.flows.usedBytes === 0);
    expect(other.flows.usedBytes).toBe(0);
  });

  it('learns that its body is too large before it sends it', async () => {
    const { other } = await startNodes();
    const answer = await exchange(other.port, [
      `POST /v2/${ENDPOINT}/run HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${other.admin}\r\n` +
        'Content-Type: application/json\r\nContent-Length: 90000000\r\nExpect: 100-continue\r\n\r\n',
    ]);
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
  });

  it('uses the paths of RunPod, as a client and as a worker', async () => {
    const { other, owner } = await startNodes();
    const base = `/runpod/v2/${ENDPOINT}`;
    const { id } = await readJson(await other.post(`${base}/run`, { input: { n: 1 } }));
    const headers = { authorization: `Bearer ${other.worker}` };
    const taken = await other.call(`${base}/job-take/pod-1?job_in_progress=0`, { headers });
    expect(await readJson(taken)).toEqual({ id, input: { n: 1 } });
    const done = await other.post(`${base}/job-done/pod-1/${id}?`, { output: 2 }, { headers });
    expect(done.status).toBe(200);
    const status = await readJson(await owner.call(`${base}/status/${id}`));
    expect(status).toMatchObject({ status: 'COMPLETED', output: 2 });
  });

  it('calls workers of a load-balancing endpoint, as the client that it is', async () => {
    const targets = new TargetList();
    const { move, learn, other, owner } = await startNodes({
      settings: { engine: 'process', balancing: { targets } },
    });
    const template = { name: 'web', image: 'web', args: 'web', ports: ['8000/http'] };
    const { id: templateId } = await readJson(await owner.post('/v1/templates', template));
    const creation = { name: 'web', type: 'LOAD_BALANCER', templateId };
    const endpointId = String((await readJson(await owner.post('/v1/endpoints', creation)))['id']);
    move(owner.nodeUrl, endpointId);
    learn();
    const worker = await startWorker({
      ...{ endpointId, podId: 'pod_a' },
      listener: async (request, response) => {
        if (request.url === '/hints')
          response.writeEarlyHints({ link: '</style.css>; rel=preload' });
        const names = Object.keys(request.headers).filter((name) => name.startsWith('millrace-'));
        response.setHeader('millrace-node-answer', 'not_owner');
        response.writeHead(request.url === '/421' ? 421 : 200);
        const { 'x-forwarded-for': from, 'x-real-ip': real } = request.headers;
        response.end(JSON.stringify({ names, from, real, body: await text(request) }));
      },
    });
    targets.put(worker.target);
    const answer = await other.post(`/lb/${endpointId}/work?x=1`, 'a body');
    expect(await answer.json()).toEqual({
      ...{ names: [], from: '127.0.0.1', real: '127.0.0.1', body: 'a body' },
    });
    expect((await other.call(`/lb/${endpointId}/421`)).status).toBe(421);
    const hinted = await exchange(other.port, [
      `GET /lb/${endpointId}/hints HTTP/1.1\r\nHost: x\r\nConnection: close\r\n` +
        `Authorization: Bearer ${other.admin}\r\n\r\n`,
    ]);
    expect(hinted).toMatch(/^HTTP\/1\.1 103 Early Hints\r\nLink: <\/style.css>.*HTTP\/1\.1 200 /s);
    const sockets = new WebSocketServer({ server: worker.server });
    sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
    const url = `ws://127.0.0.1:${other.port}/lb/${endpointId}/socket`;
    const socket = new WebSocket(url, { headers: { authorization: other.admin } });
    await once(socket, 'open');
    socket.send('hello');
    expect(String((await once(socket, 'message'))[0])).toBe('hello');
    socket.close();
    await once(socket, 'close');
  });
});

describe('a worker of a node that does not own the endpoint', () => {
  it.each(['http', 'grpc'] as const)('takes, renews and reports over %s', async (carrier) => {
    const { other, owner } = await startNodes();
    const link = carrier === 'http' ? openHttpLink(other) : await openGrpcLink(other);
    await runOneJob(link, owner);
  });

  it('goes on over gRPC when the endpoint moves, and learns what the owner refuses', async () => {
    const { learn, move, other, owner } = await startNodes();
    const link = await openGrpcLink(other);
    await expect(link.take(take(0), AbortSignal.timeout(5_000))).rejects.toMatchObject({
      code: 'unknown_worker',
    });
    await runOneJob(link, owner);
    move(other.nodeUrl);
    learn();
    await runOneJob(link, other);
    move(owner.nodeUrl);
    // Only the owner knows yet.
    owner.placement.learn();
    await link.hello(HELLO);
  });
});

describe('a call over gRPC', () => {
  const REPORT = { ...WORKER, reports: [] };

  it('goes to the new owner if the endpoint moves while the queue here serves it', async () => {
    const { learn, move, other, owner } = await startNodes();
    const link = await openGrpcLink(owner);
    await link.hello(HELLO);
    await openHttpLink(other).hello(HELLO);
    const linkTo = owner.queue.link.bind(owner.queue);
    owner.queue.link = (...named) => ({
      ...linkTo(...named),
      async bye() {
        move(other.nodeUrl);
        learn();
        throw new LinkError('unavailable', 'the queue was closed');
      },
    });
    const moved = await openGrpcLink(owner);
    await moved.bye({ ...WORKER, reason: 'drained', outbox: [] });
    expect(other.queue.workerLoads.isPresent(ENDPOINT, WORKER.workerId)).toBe(false);
  });

  it('waits for an owner, and is refused when the platform stops', async () => {
    const { learn, move, other } = await startNodes();
    move(undefined);
    learn();
    const link = await openGrpcLink(other);
    const refused = link.report(REPORT).catch((error: unknown) => error);
    await until(() => other.placement.refreshes > 0);
    const closed = other.close();
    expect(await refused).toMatchObject({ code: 'unavailable' });
    await closed;
  });
});

async function runOneJob(link: WorkerLink, owner: Node): Promise<void> {
  const id = await submitJob(owner, { input: { n: 1 } });
  expect(await link.hello(HELLO)).toMatchObject({ protocol: 1 });
  const [lease] = await link.take(take(), AbortSignal.timeout(10_000));
  if (!lease) throw new Error('no job');
  const { attempt, input, jobId, token } = lease;
  expect([jobId, String(input)]).toEqual([id, '{"n":1}']);
  const leases = [{ jobId, token, stopping: false }];
  const renewed = await link.renew({ ...WORKER, waitMs: 0, leases }, AbortSignal.timeout(10_000));
  expect(renewed).toEqual({ ended: [], drain: false });
  const body = Buffer.from('"done"');
  const report = { jobId, attempt, token, seq: 1, kind: 'outcome', outcome: COMPLETED } as const;
  const reports = [{ ...report, body }];
  expect(await link.report({ ...WORKER, reports })).toEqual([{ answer: 'applied' }]);
  expect(await link.report({ ...WORKER, reports })).toEqual([{ answer: 'duplicate' }]);
  const status = await owner.call(`/v2/${ENDPOINT}/status/${id}`);
  expect(await readJson(status)).toMatchObject({ status: 'COMPLETED', output: 'done' });
  await link.bye({ ...WORKER, reason: 'drained', outbox: [] });
}

function openHttpLink({ url, worker }: Node) {
  const link = createHttpLink({ url, endpointId: ENDPOINT, key: worker, log: silentLog });
  onTestFinished(() => link.close());
  return link;
}

async function openGrpcLink({ endpoints, keys, queue, worker, workers }: Node) {
  const server = createGrpcServer({
    ...{ ...workers, keys, endpoints, clock: systemClock, log: silentLog },
    ...{ host: '127.0.0.1', port: 0, isClosing: () => queue.isClosing },
  });
  const { url } = await server.start();
  const link = createGrpcLink({ url, endpointId: ENDPOINT, key: worker, log: silentLog });
  onTestFinished(async () => {
    await link.close();
    await server.close();
  });
  return link;
}
