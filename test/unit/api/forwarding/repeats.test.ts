// Requests that are sent again although a node may have acted on them: after the death of the owner, and when the node
// that has received them loses the endpoint.
import { describe, expect, it, vi } from 'vitest';
import { RateGate } from '../../../../src/api/limits/rate-limit.ts';
import { LinkError } from '../../../../src/wire/link/worker-link.ts';
import { passOn, startFake } from '../../../support/api/fake-node.ts';
import { ENDPOINT, readJson, submitJob, takeJob } from '../../../support/api/platform.ts';
import { startNodes, type TwoNodes } from '../../../support/api/two-nodes.ts';

const LOST = new LinkError('unavailable', 'the queue was closed');

/** An owner that carries out the next request, and dies before it answers. Then the real owner is found again. */
async function startDying({ move, other, owner }: TwoNodes, endpointId?: string) {
  const dying = await startFake();
  const statuses: number[] = [];
  dying.answer(async (request, response) => {
    statuses.push(await passOn(request, owner.nodeUrl));
    move(owner.nodeUrl, endpointId);
    response.destroy();
  });
  move(dying.url, endpointId);
  other.placement.learn();
  return statuses;
}

/** The dead owner and the node that takes over have one store: the request reaches that node twice. */
async function startReplaced({ learn, move, other }: TwoNodes, endpointId?: string) {
  const dying = await startFake();
  dying.answer(async (request, response) => {
    move(other.nodeUrl, endpointId);
    learn();
    await passOn(request, other.nodeUrl);
    response.destroy();
  });
  move(dying.url, endpointId);
  other.placement.learn();
}

describe('after the owner has carried a request out and died, another node answers', () => {
  it.each(['/v2', '/runpod/v2'])('a cancellation on %s', async (base) => {
    const nodes = await startNodes();
    const { other, owner } = nodes;
    const id = await submitJob(owner);
    expect(await startDying(nodes)).toEqual([]);
    const answer = await other.post(`${base}/${ENDPOINT}/cancel/${id}`, {});
    expect([answer.status, await readJson(answer)]).toEqual([200, { id, status: 'CANCELLED' }]);
  });

  it.each(['/v2', '/runpod/v2'])('a retry on %s, which happens once', async (base) => {
    const nodes = await startNodes();
    const { other, owner } = nodes;
    const id = await submitJob(owner);
    await (await takeJob(owner)).fail('never');
    const statuses = await startDying(nodes);
    const answer = await other.post(`${base}/${ENDPOINT}/retry/${id}`, {});
    expect([answer.status, await readJson(answer)]).toEqual([200, { id, status: 'IN_QUEUE' }]);
    expect(statuses).toEqual([200]);
    // The job is not failed, and nobody has asked for it twice.
    const again = await other.post(`${base}/${ENDPOINT}/retry/${id}`, {});
    expect(again.status).toBe(base === '/v2' ? 409 : 400);
  });

  it('a purge', async () => {
    const nodes = await startNodes();
    await submitJob(nodes.owner);
    await startDying(nodes);
    const answer = await nodes.other.post(`/v2/${ENDPOINT}/purge-queue`, {});
    expect([answer.status, await readJson(answer)]).toEqual([
      200,
      { removed: 0, status: 'completed' },
    ]);
  });

  it('a change of an endpoint', async () => {
    const nodes = await startNodes();
    await startDying(nodes, 'control');
    const change = { method: 'PATCH' };
    const answer = await nodes.other.post(`/v1/endpoints/${ENDPOINT}`, { maxQueued: 5 }, change);
    expect([answer.status, await readJson(answer)]).toMatchObject([200, { maxQueued: 5 }]);
  });

  it('a removal, which finds nothing any more', async () => {
    const nodes = await startNodes();
    const created = await nodes.owner.post('/v1/templates', { name: 't', image: 'alpine' });
    const { id } = await readJson(created);
    const statuses = await startDying(nodes, 'control');
    const remove = () => nodes.other.call(`/v1/templates/${id}`, { method: 'DELETE' });
    // The other node of this test has a store of its own, and so no template.
    expect((await remove()).status).toBe(204);
    expect(statuses).toEqual([204]);
    expect((await remove()).status).toBe(404);
  });
});

describe('after the owner has carried a request out and died, the node that received it takes over', () => {
  it('answers a retry, which happens once', async () => {
    const nodes = await startNodes();
    const { learn, move, other } = nodes;
    move(other.nodeUrl);
    learn();
    const id = await submitJob(other);
    await (await takeJob(other)).fail('never');
    await startReplaced(nodes);
    const retry = () => other.post(`/v2/${ENDPOINT}/retry/${id}`, {});
    const answer = await retry();
    expect([answer.status, await readJson(answer)]).toEqual([200, { id, status: 'IN_QUEUE' }]);
    expect((await retry()).status).toBe(409);
  });

  it('answers a removal', async () => {
    const nodes = await startNodes();
    const { learn, move, other } = nodes;
    move(other.nodeUrl, 'control');
    learn();
    const created = await other.post('/v1/templates', { name: 't', image: 'alpine' });
    const { id } = await readJson(created);
    await startReplaced(nodes, 'control');
    const remove = () => other.call(`/v1/templates/${id}`, { method: 'DELETE' });
    expect((await remove()).status).toBe(204);
    expect((await remove()).status).toBe(404);
  });
});

describe('jobs submitted with one request', () => {
  const body = { jobs: [{ input: { n: 1 } }, { input: { n: 2 } }, { input: { n: 3 } }] };
  const listing = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 10 };

  it('get the same IDs if the owner dies after it has added them', async () => {
    const nodes = await startNodes();
    const { other, owner } = nodes;
    const statuses = await startDying(nodes);
    const answer = await readJson(await other.post(`/v2/${ENDPOINT}/jobs`, body));
    expect(statuses).toEqual([200]);
    const { jobs } = await owner.queue.jobs.list(listing);
    expect(answer['jobs']).toEqual(jobs.toReversed().map(({ id, status }) => ({ id, status })));
    expect(jobs).toHaveLength(3);
  });

  it('are added once if the node that received them takes over', async () => {
    const nodes = await startNodes();
    await startReplaced(nodes);
    const answer = await readJson(await nodes.other.post(`/v2/${ENDPOINT}/jobs`, body));
    const { jobs } = await nodes.other.queue.jobs.list(listing);
    expect(answer['jobs']).toEqual(jobs.toReversed().map(({ id, status }) => ({ id, status })));
    expect(jobs).toHaveLength(3);
  });

  it('are counted once, by the owner', async () => {
    const rateGate = new RateGate({ minute: 7 });
    const nodes = await startNodes({ settings: { server: { rateGate } } });
    await startDying(nodes);
    const send = () => nodes.other.post(`/v2/${ENDPOINT}/jobs`, body);
    expect((await send()).status).toBe(200);
    expect((await send()).status).toBe(200);
    expect((await send()).status).toBe(429);
    expect((await nodes.owner.queue.jobs.list(listing)).jobs).toHaveLength(6);
  });
});

describe('a body of more than 64 KB', () => {
  const text = 'x'.repeat(2_000_000);

  it('is sent again if the owner dies after it', async () => {
    const nodes = await startNodes();
    const { other, owner } = nodes;
    const statuses = await startDying(nodes);
    const id = await submitJob(other, { input: { text } });
    expect(statuses).toEqual([200]);
    const jobs = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 10 };
    expect((await owner.queue.jobs.list(jobs)).jobs.map((job) => job.id)).toEqual([id]);
    await expect.poll(() => other.forwarder?.usedBytes).toBe(0);
  });

  it('is sent again if the owner dies within it, also if the endpoint comes here', async () => {
    const { learn, move, other, owner } = await startNodes();
    for (const next of [owner, other]) {
      const dying = await startFake();
      dying.answer((request, response) => {
        request.once('data', () => {
          move(next.nodeUrl);
          if (next === other) learn();
          response.destroy();
        });
      });
      move(dying.url);
      other.placement.learn();
      const id = await submitJob(other, { input: { text } });
      const job = await takeJob(next);
      expect(job.id).toBe(id);
      await job.complete('1');
      const record = await readJson(await next.call(`/v2/${ENDPOINT}/status/${id}`));
      expect(record).toMatchObject({ status: 'COMPLETED' });
    }
  });

  it('is refused if it could not be copied', async () => {
    const bounds = { maxCopiedBytes: 3_000_000, maxUserCopiedBytes: 3_000_000 };
    const nodes = await startNodes({ forwarding: { bounds } });
    const { move, other } = nodes;
    const held = await startFake();
    held.answer((request) => request.resume());
    move(held.url);
    other.placement.learn();
    const path = `/v2/${ENDPOINT}/run`;
    const waiting = other.post(path, { input: { text } }).catch(() => 'closed');
    await expect.poll(() => other.forwarder?.usedBytes).toBeGreaterThan(2_000_000);
    await startDying(nodes);
    const refused = await other.post(path, { input: { text } });
    expect([refused.status, await readJson(refused)]).toMatchObject([
      503,
      { detail: expect.stringContaining('may have had its effect') },
    ]);
    move(nodes.owner.nodeUrl);
    await held.close();
    expect(await waiting).toMatchObject({ status: 200 });
  });
});

describe('a node that loses an endpoint while it serves a request passes it on', () => {
  /** The next call of the method finds that the endpoint has moved. */
  function loseIn<T extends object>(nodes: TwoNodes, of: T, name: keyof T) {
    vi.spyOn(of as Record<string, () => Promise<never>>, String(name)).mockImplementationOnce(
      async () => lose(nodes),
    );
  }

  function lose({ learn, move, other }: TwoNodes): never {
    move(other.nodeUrl);
    learn();
    throw LOST;
  }

  it.each([10, 200_000])(
    'a submission with %i bytes, under the ID of its first attempt',
    async (size) => {
      const nodes = await startNodes();
      const { other, owner } = nodes;
      loseIn(nodes, owner.queue.submissions, 'submit');
      const [first, second] = [owner, other].map(({ queue }) =>
        vi.spyOn(queue.submissions, 'submit'),
      );
      const id = await submitJob(owner, { input: { text: 'x'.repeat(size) } });
      expect(first?.mock.calls[0]?.[0].newJob).toEqual({ id, isRepeated: false });
      expect(second?.mock.calls[0]?.[0].newJob).toEqual({ id, isRepeated: true });
      expect((await takeJob(other)).id).toBe(id);
    },
  );

  it('a cancellation, a purge and a listing', async () => {
    const nodes = await startNodes();
    const { learn, move, other, owner } = nodes;
    move(other.nodeUrl);
    learn();
    const id = await submitJob(other);
    const jobs = `/v2/${ENDPOINT}`;
    for (const [name, call] of [
      ['purge', () => owner.post(`${jobs}/purge-queue`, {})],
      ['cancel', () => owner.post(`${jobs}/cancel/${id}`, {})],
      ['list', () => owner.call(`${jobs}/jobs`)],
    ] as const) {
      move(owner.nodeUrl);
      learn();
      loseIn(nodes, owner.queue.jobs, name);
      expect((await call()).status).toBe(200);
    }
  });

  it('a call of a worker, which is told the next owner', async () => {
    const nodes = await startNodes({ advertise: [{ url: 'http://a' }, { url: 'http://b' }] });
    const { other, owner } = nodes;
    const link = owner.queue.link(ENDPOINT);
    vi.spyOn(link, 'hello').mockImplementationOnce(async () => lose(nodes));
    vi.spyOn(owner.queue, 'link').mockReturnValueOnce(link);
    const worker = { workerId: 'w1', incarnation: 1, protocol: 1, version: '1', slots: 1 };
    const answer = await owner.post(
      `/v2/${ENDPOINT}/worker/hello`,
      { ...worker, devices: [], outbox: [] },
      { headers: { authorization: `Bearer ${owner.worker}` } },
    );
    expect([answer.status, answer.headers.get('millrace-owner')]).toEqual([200, 'http://b']);
    expect(other.queue.workerLoads.isPresent(ENDPOINT, 'w1')).toBe(true);
  });

  it('and does not count it as served here, so that it can hand the endpoint over', async () => {
    const nodes = await startNodes();
    const { owner } = nodes;
    let served = 0;
    owner.placement.begin = () => {
      served += 1;
      return () => {
        served -= 1;
      };
    };
    loseIn(nodes, owner.queue.jobs, 'list');
    const counts: number[] = [];
    vi.spyOn(nodes.other.queue.jobs, 'list').mockImplementation(async () => {
      counts.push(served);
      return { jobs: [], next: undefined };
    });
    expect((await owner.call(`/v2/${ENDPOINT}/jobs`)).status).toBe(200);
    expect([...counts, served]).toEqual([0, 0]);
  });

  it('but not what cannot be repeated, nor an error of its own', async () => {
    const nodes = await startNodes();
    const { learn, move, owner } = nodes;
    vi.spyOn(owner.keys, 'issue').mockImplementationOnce(async () => {
      move(nodes.other.nodeUrl, 'control');
      learn();
      throw LOST;
    });
    const refused = await owner.post('/v1/keys', { name: 'k', scopes: ['jobs:read'] });
    expect(refused.status).toBe(503);
    vi.spyOn(owner.queue.jobs, 'list').mockRejectedValueOnce(LOST);
    expect((await owner.call(`/v2/${ENDPOINT}/jobs`)).status).toBe(503);
  });
});
