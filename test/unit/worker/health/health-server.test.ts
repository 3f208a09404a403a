// The health port over real sockets: its answers, and what they say of a worker in and out of trouble.
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { LinkError } from '../../../../src/wire/link/worker-link.ts';
import {
  HealthPortError,
  type HealthServer,
  type HealthServerOptions,
  openHealthServer,
  probeWorker,
} from '../../../../src/worker/health/health-server.ts';
import type { Worker, WorkerHealth } from '../../../../src/worker/worker.ts';
import { lease, type Script, script, startScript } from '../../../support/workers/worker-script.ts';

const fine: WorkerHealth = {
  ready: true,
  state: 'ready',
  slots: 2,
  running: 1,
  ended: 4,
  stuck: 0,
  outboxDepth: 3,
};

const open: HealthServer[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()));
});

interface Changes extends Partial<HealthServerOptions> {
  health?: () => WorkerHealth;
}

async function serve({ health = () => fine, ...changes }: Changes = {}): Promise<string> {
  const server = await openHealthServer({
    host: '127.0.0.1',
    port: 0,
    ...probeWorker(health),
    collectMetrics: async () => 'up 1\n',
    log: silentLog,
    ...changes,
  });
  open.push(server);
  return `http://127.0.0.1:${server.port}`;
}

describe('the health port', () => {
  it('answers /readyz with the health of the worker', async () => {
    const answer = await fetch(`${await serve()}/readyz`);
    expect(answer.status).toBe(200);
    expect(await answer.json()).toEqual(fine);
  });

  it('answers /readyz with 503 and the reason while the worker is not ready', async () => {
    const health = () => ({ ...fine, ready: false, reason: 'the platform does not answer takes' });
    const answer = await fetch(`${await serve({ health })}/readyz?verbose`);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({
      ready: false,
      reason: 'the platform does not answer takes',
    });
  });

  it('answers /healthz with 200 while the worker runs but is not ready', async () => {
    const health = () => ({
      ...fine,
      ready: false,
      reason: 'draining',
      state: 'draining' as const,
    });
    const answer = await fetch(`${await serve({ health })}/healthz`);
    expect(answer.status).toBe(200);
    expect(await answer.json()).toEqual({ status: 'ok', state: 'draining' });
  });

  it('answers /healthz with 503 once the worker has failed', async () => {
    const reason = 'failed: a newer process is here';
    const health = () => ({ ...fine, ready: false, reason, state: 'failed' as const });
    const answer = await fetch(`${await serve({ health })}/healthz`);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toEqual({ status: 'failed', state: 'failed', reason });
  });

  it('answers /metrics in the Prometheus text format', async () => {
    const answer = await fetch(`${await serve()}/metrics`);
    expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(await answer.text()).toBe('up 1\n');
  });

  it('answers HEAD as GET, without the body', async () => {
    const answer = await fetch(`${await serve()}/readyz`, { method: 'HEAD' });
    expect([answer.status, await answer.text()]).toEqual([200, '']);
    expect(Number(answer.headers.get('content-length'))).toBeGreaterThan(0);
  });

  it('refuses other paths with 404 and other methods with 405, as problems', async () => {
    const url = await serve();
    const lost = await fetch(`${url}/healthz/more`);
    expect(lost.status).toBe(404);
    expect(lost.headers.get('content-type')).toBe('application/problem+json');
    expect(await lost.json()).toMatchObject({ status: 404, code: 'not_found' });
    const posted = await fetch(`${url}/readyz`, { method: 'POST', body: '{}' });
    expect(posted.status).toBe(405);
    expect(posted.headers.get('allow')).toBe('GET, HEAD');
  });

  it('does not show internal errors', async () => {
    const collectMetrics = () => Promise.reject(new Error('secret'));
    const answer = await fetch(`${await serve({ collectMetrics })}/metrics`);
    expect(answer.status).toBe(500);
    expect(await answer.text()).not.toContain('secret');
  });

  it('names itself in an error if it is in use', async () => {
    const { port } = new URL(await serve());
    const second = serve({ port: Number(port) });
    await expect(second).rejects.toThrow(HealthPortError);
    await expect(second).rejects.toThrow(`127.0.0.1 port ${port}`);
  });

  it('closes while a connection is open', async () => {
    const { port } = new URL(await serve());
    const socket = connect(Number(port), '127.0.0.1');
    await once(socket, 'connect');
    const closed = once(socket, 'close');
    socket.on('error', () => {}).resume();
    await Promise.all(open.splice(0).map((server) => server.close()));
    await closed;
    await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow();
  });
});

async function ask(worker: Worker): Promise<{ status: number; reason: string | undefined }> {
  const answer = await fetch(`${await serve({ health: () => worker.health() })}/readyz`);
  const { reason } = (await answer.json()) as WorkerHealth;
  return { status: answer.status, reason };
}

async function renewFor({ clock, link }: Script, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 5_000) {
    await clock.advance(5_000);
    link.lastRenewal.answer({ ended: [], drain: false });
  }
  await clock.advance(0);
}

describe('/readyz of a worker', () => {
  it('is 503 until the setup and the hello are done, then 200', async () => {
    const { clock, executor, worker } = script();
    const setup = Promise.withResolvers<object>();
    executor.onStart = () => setup.promise;
    const started = worker.start();
    await clock.advance(0);
    expect(await ask(worker)).toEqual({ status: 503, reason: 'starting: waiting for the setup' });
    setup.resolve({});
    await started;
    expect(await ask(worker)).toEqual({ status: 200, reason: undefined });
  });

  it('is 503 while the platform does not answer takes, and 200 as soon as they are', async () => {
    const started = await startScript();
    await renewFor(started, 35_000);
    expect(await ask(started.worker)).toEqual({
      status: 503,
      reason: 'the platform does not answer takes',
    });
    started.link.lastTake.answer([]);
    await started.clock.advance(0);
    expect(await ask(started.worker)).toMatchObject({ status: 200 });
  });

  it('is 503 while leases cannot be renewed', async () => {
    const { clock, link, worker } = await startScript();
    for (let failures = 0; failures < 6; failures++) {
      link.lastRenewal.fail(new LinkError('unavailable', 'not now'));
      await clock.advance(4_000);
    }
    expect(await ask(worker)).toEqual({
      status: 503,
      reason: 'lease renewals failed for too long',
    });
  });

  it('is 503 when a renewal hangs for longer than a lease lasts, before it has failed', async () => {
    const { clock, link, worker } = await startScript();
    link.lastRenewal.fail(new LinkError('unknown_worker', 'who are you'));
    link.onHello = () => new Promise(() => {});
    await clock.advance(16_000);
    expect(await ask(worker)).toMatchObject({
      reason: 'lease renewals failed for too long',
    });
  });

  it('is 503 if no slot is free although no job runs, after the duration of a take', async () => {
    const started = await startScript({ slots: 1 });
    const { clock, executor, link, worker } = started;
    link.lastTake.answer([lease('a')]);
    await renewFor(started, 100_000);
    expect(await ask(worker)).toMatchObject({ status: 200 });
    executor.isUp = false;
    executor.last.complete();
    await clock.advance(0);
    expect(await ask(worker)).toMatchObject({ status: 200 });
    await renewFor(started, 35_000);
    const reason = 'no slot is free although no job runs';
    expect(await ask(worker)).toEqual({ status: 503, reason });
  });

  it('is 503 while an attempt runs long after its timeout, and 200 when it has ended', async () => {
    const started = await startScript({ slots: 2, stuckAfterMs: 10_000 });
    const { clock, executor, link, worker } = started;
    link.lastTake.answer([lease('a', { executionTimeoutMs: 60_000 }), lease('b')]);
    await renewFor(started, 65_000);
    expect(executor.executions[0]?.stops).toEqual(['timeout']);
    expect(await ask(worker)).toMatchObject({ status: 200 });
    await renewFor(started, 5_000);
    expect(await ask(worker)).toEqual({ status: 503, reason: 'stuck slots: 1 of 2' });
    executor.executions[0]?.complete();
    await clock.advance(0);
    expect(await ask(worker)).toMatchObject({ status: 200 });
  });

  it('is 503 while an attempt that was cancelled does not end', async () => {
    const started = await startScript({ slots: 1, stuckAfterMs: 10_000 });
    started.link.lastTake.answer([lease('a')]);
    await started.clock.advance(5_000);
    const ended = [{ jobId: 'a', token: 'token-a', verdict: 'cancelled' as const }];
    started.link.lastRenewal.answer({ ended, drain: false });
    await started.clock.advance(0);
    expect(started.worker.health().stuck).toBe(0);
    await renewFor(started, 10_000);
    expect(await ask(started.worker)).toMatchObject({ reason: 'stuck slots: 1 of 1' });
  });

  it('is 503 while the worker drains', async () => {
    const { clock, link, worker } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    void worker.drain();
    expect(await ask(worker)).toEqual({ status: 503, reason: 'draining' });
  });
});
