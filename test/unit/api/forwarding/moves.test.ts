// Requests whose endpoint moves, has no owner, or whose owner fails.
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { OwnerWaits } from '../../../../src/api/forwarding/forwarding-options.ts';
import { LinkError } from '../../../../src/wire/link/worker-link.ts';
import { startFake } from '../../../support/api/fake-node.ts';
import { ENDPOINT, exchange, readJson, submitJob, takeJob } from '../../../support/api/platform.ts';
import { SECRET, startNodes } from '../../../support/api/two-nodes.ts';
import { createRandom } from '../../../support/random.ts';
import { until } from '../../../support/until.ts';

const RUN = `/v2/${ENDPOINT}/run`;

describe('a request for a node that is no longer the owner', () => {
  it('follows the endpoint, and its body is used once', async () => {
    const { move, other, owner } = await startNodes();
    const third = await startFake();
    // The first node believes an earlier owner, which refuses.
    third.answer((_request, response) => {
      response.writeHead(421, { 'millrace-node-answer': 'not_owner' }).end();
    });
    move(third.url);
    other.placement.learn();
    move(owner.nodeUrl);
    const id = await submitJob(other, { input: { n: 1 } });
    expect((await takeJob(owner)).id).toBe(id);
    expect(other.placement.refreshes).toBe(1);
  });

  it.each([10, 60_000, 200_000])(
    'is served here with its %i bytes if it comes back',
    async (size) => {
      const { move, other, owner } = await startNodes();
      move(other.nodeUrl);
      owner.placement.learn();
      const text = 'x'.repeat(size);
      const id = await submitJob(other, { input: { text } });
      const job = await takeJob(other);
      expect(job.id).toBe(id);
      expect(other.placement.refreshes).toBe(1);
      await job.complete('1');
      const counts = await other.queue.health(ENDPOINT);
      expect(counts.jobs).toMatchObject({ completed: 1, inQueue: 0 });
    },
  );

  it('is repeated if the endpoint moves while its queue serves the request', async () => {
    const { move, other, owner } = await startNodes();
    const { submissions } = owner.queue;
    const submit = submissions.submit.bind(submissions);
    submissions.submit = async () => {
      submissions.submit = submit;
      move(other.nodeUrl);
      owner.placement.learn();
      throw new LinkError('unavailable', 'the queue was closed');
    };
    const id = await submitJob(other, { input: { n: 1 } });
    expect((await takeJob(other)).id).toBe(id);
  });

  it('is never passed on a second time', async () => {
    const { move, other, owner } = await startNodes();
    move(other.nodeUrl);
    owner.placement.learn();
    const answer = await exchange(portOf(owner.nodeUrl), [
      `GET /v2/${ENDPOINT}/health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${owner.admin}\r\n` +
        `millrace-node-secret: ${SECRET}\r\nConnection: close\r\n\r\n`,
    ]);
    expect(answer).toMatch(/^HTTP\/1\.1 421 /);
    expect(answer).toMatch(/millrace-node-answer: not_owner/i);
  });
});

describe('a request for an endpoint without an owner', () => {
  it('waits until one appears', async () => {
    const { learn, move, other, owner } = await startNodes();
    move(undefined);
    learn();
    const untilWaiting = watchWaits();
    const submitted = other.post(RUN, { input: {} });
    const polled = owner.call(`/v2/${ENDPOINT}/health`);
    await untilWaiting(2);
    move(owner.nodeUrl);
    learn();
    expect((await submitted).status).toBe(200);
    expect((await polled).status).toBe(200);
  });

  it('is refused with Retry-After after its time', async () => {
    const bounds = { ownerWaitMs: 50, workerOwnerWaitMs: 60_000 };
    const { learn, move, other } = await startNodes({ forwarding: { bounds } });
    move(undefined);
    learn();
    const refused = await other.post(RUN, { input: {} });
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '2']);
    expect(await readJson(refused)).toMatchObject({ code: 'unavailable' });
    const scrape = await (await other.call('/metrics')).text();
    expect(scrape).toContain('duration_seconds_count{outcome="no_owner"} 1');
  });

  it('is passed on by a node that stops, if another one takes the shard soon', async () => {
    const { learn, move, other, owner } = await startNodes();
    move(undefined);
    learn();
    const untilWaiting = watchWaits();
    const submitted = other.post(RUN, { input: {} });
    const polled = other.call(`/v2/${ENDPOINT}/health`);
    await untilWaiting(2);
    const closed = other.close();
    await new Promise((resolve) => setTimeout(resolve, 50));
    move(owner.nodeUrl);
    learn();
    expect([(await submitted).status, (await polled).status]).toEqual([200, 200]);
    await closed;
  });

  it('is refused when the platform stops and no node takes the shard', async () => {
    const { learn, move, other } = await startNodes();
    move(undefined);
    learn();
    const untilWaiting = watchWaits();
    const polled = other.call(`/v2/${ENDPOINT}/health`);
    await untilWaiting(1);
    const closed = other.close();
    expect(await readJson(await polled)).toMatchObject({ detail: 'the platform is stopping' });
    await closed;
  });

  it('ends when its client disconnects', async () => {
    const { learn, move, other } = await startNodes();
    move(undefined);
    learn();
    const untilWaiting = watchWaits();
    const socket = connect(other.port, '127.0.0.1');
    socket.write(
      `GET /v2/${ENDPOINT}/health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${other.admin}\r\n\r\n`,
    );
    await untilWaiting(1);
    socket.destroy();
    await until(async () => {
      const scrape = await (await other.call('/metrics')).text();
      return scrape.includes('duration_seconds_count{outcome="gone"} 1');
    });
  });
});

describe('an owner that fails', () => {
  it('gives the request to the next owner, if it was not reached', async () => {
    const { move, other, owner } = await startNodes();
    const dead = await startFake();
    await dead.close();
    move(dead.url);
    other.placement.learn();
    move(owner.nodeUrl);
    const key = { headers: { 'idempotency-key': 'k' } };
    expect((await other.post(`/v2/${ENDPOINT}/purge-queue`, '{}', key)).status).toBe(200);
    expect(await submitJob(other)).toBe((await takeJob(owner)).id);
  });

  it('has its submission repeated, which finds the job', async () => {
    const { move, other, owner } = await startNodes();
    const dying = await startFake();
    // Passes the request to the owner, and dies before it answers.
    dying.answer(async (request, response) => {
      const body = await text(request);
      const headers = new Headers();
      for (const name of ['authorization', 'content-type', 'millrace-node-secret']) {
        headers.set(name, String(request.headers[name]));
      }
      headers.set('millrace-node-job', String(request.headers['millrace-node-job']));
      await fetch(owner.nodeUrl + request.url, { method: 'POST', headers, body });
      move(owner.nodeUrl);
      response.destroy();
    });
    move(dying.url);
    other.placement.learn();
    const id = await submitJob(other, { input: { n: 1 } });
    const { jobs } = await owner.queue.health(ENDPOINT);
    expect(jobs).toMatchObject({ inQueue: 1 });
    expect((await takeJob(owner)).id).toBe(id);
  });

  it('has its submission repeated, which the next owner hears', async () => {
    const { move, other, owner } = await startNodes();
    const dying = await startFake();
    const jobs: string[] = [];
    dying.answer((request, response) => {
      jobs.push(String(request.headers['millrace-node-job']));
      if (jobs.length === 1) {
        response.destroy();
        return;
      }
      move(owner.nodeUrl);
      response.writeHead(421, { 'millrace-node-answer': 'not_owner' }).end();
    });
    move(dying.url);
    other.placement.learn();
    const id = await submitJob(other);
    expect(jobs).toEqual([id, `${id} repeat`]);
  });

  it('leaves one job of a repeated submission, if the endpoint comes here', async () => {
    const { move, other, owner } = await startNodes();
    const dying = await startFake();
    dying.answer(async (request, response) => {
      await text(request);
      move(other.nodeUrl);
      owner.placement.learn();
      response.destroy();
    });
    move(dying.url);
    other.placement.learn();
    const id = await submitJob(other, { input: { n: 1 } });
    expect((await takeJob(other)).id).toBe(id);
  });

  it('has what cannot be repeated refused, once it may have acted', async () => {
    const { move, other, owner } = await startNodes();
    const dying = await startFake();
    dying.answer((_request, response) => {
      move(owner.nodeUrl);
      move(owner.nodeUrl, 'control');
      response.destroy();
    });
    move(dying.url, 'control');
    other.placement.learn();
    const refused = await other.post('/v1/keys', { name: 'k', scopes: ['jobs:read'] });
    expect(refused.status).toBe(503);
    expect(await readJson(refused)).toMatchObject({ detail: expect.stringContaining('may have') });
    // A reading request is repeated.
    move(dying.url);
    other.placement.learn();
    expect((await other.call(`/v2/${ENDPOINT}/health`)).status).toBe(200);
  });

  it('cuts the answer that it has begun', async () => {
    const { move, other } = await startNodes();
    const dying = await startFake();
    dying.answer((_request, response) => {
      response.writeHead(200, { 'millrace-node-answer': 'owner' });
      response.write('[{"output":1');
      setTimeout(() => response.destroy(), 50);
    });
    move(dying.url);
    other.placement.learn();
    const answer = await fetch(`${other.url}/v2/${ENDPOINT}/jobs`, {
      headers: { authorization: `Bearer ${other.admin}` },
    });
    expect(answer.status).toBe(200);
    await expect(answer.text()).rejects.toThrow();
  });

  it('is given up for its silence, if it does not close its connections', async () => {
    const bounds = { nodeSilenceMs: 400 };
    const { move, other, owner } = await startNodes({ forwarding: { bounds } });
    const paused = await startFake();
    paused.answer(() => move(owner.nodeUrl));
    move(paused.url);
    other.placement.learn();
    expect((await other.call(`/v2/${ENDPOINT}/health`)).status).toBe(200);
    expect(other.logged()).toContain('node does not answer');
  });

  it('is given up at the end of its lease, if it does not close its connections', async () => {
    // Silence alone would end the wait after the limit of the test.
    const bounds = { nodeSilenceMs: 600_000 };
    const { learn, move, other, owner } = await startNodes({ forwarding: { bounds } });
    const paused = await startFake();
    paused.answer(() => {
      other.placement.dead.add(paused.url);
      move(owner.nodeUrl);
      learn();
    });
    move(paused.url);
    other.placement.learn();
    expect((await other.call(`/v2/${ENDPOINT}/health`)).status).toBe(200);
  });
});

describe('endpoints that move again and again', () => {
  it('have each acknowledged job once, and no bytes are left in memory', async () => {
    const { learn, move, other, owner } = await startNodes();
    const nodes = [owner, other];
    const random = createRandom(7);
    const pick = <T>(items: readonly T[]) => items[Math.floor(random() * items.length)] as T;
    const acknowledged: string[] = [];
    let sent = 0;
    const runClient = async () => {
      while (sent++ < 240) {
        if (sent % 6 === 0) {
          move(pick([owner.nodeUrl, other.nodeUrl, undefined]));
          pick(nodes).placement.learn();
          // Without an owner for a moment only.
          setTimeout(() => {
            move(pick(nodes).nodeUrl);
            learn();
          }, 5);
        }
        const text = 'x'.repeat(pick([10, 30_000, 60_000, 150_000]));
        const signal = random() < 0.2 ? AbortSignal.timeout(pick([1, 5, 15])) : null;
        const answer = await pick(nodes)
          .post(RUN, { input: { text } }, { signal })
          .catch(() => undefined);
        if (!answer) continue;
        expect(answer.status).toBe(200);
        acknowledged.push(String((await readJson(answer))['id']));
      }
    };
    await Promise.all(Array.from({ length: 8 }, runClient));
    const found = await Promise.all(
      nodes.map(async ({ queue }) => {
        const listing = {
          ...{ endpointId: ENDPOINT, status: undefined, before: undefined },
          limit: 1_000,
        };
        return (await queue.jobs.list(listing)).jobs.map(({ id }) => id);
      }),
    );
    const times = acknowledged.map((id) => found.flat().filter((each) => each === id).length);
    expect(new Set(times)).toEqual(new Set([1]));
    expect(acknowledged.length).toBeGreaterThan(100);
    for (const { flows, forwarder } of nodes) {
      await until(() => flows.usedBytes === 0 && forwarder?.usedBytes === 0);
    }
  });
});

describe('bodies for other nodes', () => {
  it('have a budget of their own', async () => {
    const bounds = { maxForwardedBytes: 30_000 };
    const { learn, move, other, owner } = await startNodes({
      forwarding: { bounds },
      settings: { server: { bounds: { inFlightWaitMs: 50 } } },
    });
    const paused = await startFake();
    const { promise: arrived, resolve } = Promise.withResolvers<void>();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    paused.answer(async (_request, response) => {
      resolve();
      await released;
      response.writeHead(421, { 'millrace-node-answer': 'not_owner' }).end();
    });
    move(paused.url);
    other.placement.learn();
    const body = { input: { text: 'x'.repeat(20_000) } };
    const first = other.post(RUN, body);
    await arrived;
    const refused = await other.post(RUN, body);
    expect(refused.status).toBe(503);
    expect(await readJson(refused)).toMatchObject({ detail: expect.stringContaining('bytes') });
    expect(other.flows.usedBytes).toBe(0);
    move(owner.nodeUrl);
    learn();
    release();
    expect((await first).status).toBe(200);
    expect((await other.post(RUN, body)).status).toBe(200);
  });
});

/** @returns a function that resolves when so many requests have begun to wait for an owner */
function watchWaits(): (requests: number) => Promise<boolean> {
  const spy = vi.spyOn(OwnerWaits.prototype, 'wait');
  onTestFinished(() => spy.mockRestore());
  return (requests) => until(() => spy.mock.calls.length >= requests);
}

function portOf(url: string): number {
  return Number(new URL(url).port);
}
