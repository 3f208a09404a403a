// The typed client of the platform's resources, against a real server: every operation, lists over their
// pages, refusals, and what is repeated when no answer comes.
import { createServer } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ApiError, createPlatform, type Platform, UnreachableError } from '../../../src/client.ts';
import { startPlatform } from '../../support/api/platform.ts';
import { CPU, PodWorld } from '../../support/containers/pod-world.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';

const TEMPLATE = { name: 'echo', image: 'worker', handler: 'handlers/echo.ts' };

async function open(): Promise<{ client: Platform; world: PodWorld }> {
  const world = await PodWorld.open();
  onTestFinished(() => world.close());
  const { admin, url } = await startPlatform({ engine: 'process', server: { pods: world.pods } });
  return { client: createPlatform({ url, key: admin, fetch: fetchChecked }), world };
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const namesOf = (items: { name: string }[]) => items.map(({ name }) => name);

describe('pods', () => {
  it('are created, acted on, changed, read and ended', async () => {
    const { client, world } = await open();
    const { id, status } = await client.pods.create({ name: 'a', image: 'busy', cpu: CPU });
    expect(status).toBe('PROVISIONING');
    await world.settle();
    expect(await client.pods.get(id)).toMatchObject({ status: 'RUNNING', name: 'a' });
    expect(await client.pods.stop(id)).toMatchObject({ status: 'EXITED' });
    await world.settle();
    expect(await client.pods.start(id)).toMatchObject({ status: 'STARTING' });
    await world.settle();
    expect(await client.pods.restart(id)).toMatchObject({ status: 'STARTING' });
    await world.settle();
    expect(await client.pods.update(id, { name: 'b' })).toMatchObject({ name: 'b' });
    expect(await client.pods.log(id, { maxBytes: 100 })).toBeTypeOf('string');
    await client.pods.terminate(id);
    await world.settle();
    expect(await client.pods.get(id)).toMatchObject({ status: 'TERMINATED' });
  });

  it('reject an action that their status does not allow with the problem', async () => {
    const { client, world } = await open();
    const { id } = await client.pods.create({ name: 'a', image: 'busy', cpu: CPU });
    await world.settle();
    const refused = await client.pods.start(id).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(ApiError);
    expect(refused).toMatchObject({ status: 409, problem: { code: 'conflict' } });
  });
});

describe('templates and endpoints', () => {
  it('are created, read, changed and removed', async () => {
    const { client } = await open();
    const template = await client.templates.create(TEMPLATE);
    expect(await client.templates.get(template.id)).toEqual(template);
    expect(await client.templates.update(template.id, { disk: 30 })).toMatchObject({ disk: 30 });
    const endpoint = await client.endpoints.create({ name: 'e', templateId: template.id });
    expect(await client.endpoints.get(endpoint.id)).toEqual(endpoint);
    expect(await client.endpoints.update(endpoint.id, { workersMax: 7 })).toMatchObject({
      workersMax: 7,
    });
    await client.endpoints.delete(endpoint.id);
    await expect(client.endpoints.get(endpoint.id)).rejects.toMatchObject({ status: 404 });
    const { id } = await client.templates.create(TEMPLATE);
    await client.templates.delete(id);
    expect(namesOf(await collect(client.templates.list()))).toEqual(['echo']);
  });

  it('are listed over all pages, the newest first', async () => {
    const { client } = await open();
    for (const name of ['a', 'b', 'c', 'd', 'e'])
      await client.templates.create({ ...TEMPLATE, name });
    expect(namesOf(await collect(client.templates.list({ pageSize: 2 })))).toEqual([
      ...['e', 'd', 'c', 'b', 'a'],
    ]);
  });

  it('are listed a page at a time', async () => {
    const { client } = await open();
    for (const name of ['a', 'b', 'c']) await client.templates.create({ ...TEMPLATE, name });
    const first = await client.templates.page({ limit: 2 });
    expect(namesOf(first.items)).toEqual(['c', 'b']);
    const second = await client.templates.page({ limit: 2, cursor: first.cursor });
    expect(namesOf(second.items)).toEqual(['a']);
    expect(second).not.toHaveProperty('cursor');
  });
});

describe('the catalog', () => {
  it('lists the available types', async () => {
    const { client } = await open();
    expect(await collect(client.catalog.gpus.list())).toEqual([]);
    const [cpu] = await collect(client.catalog.cpus.list());
    expect(cpu).toMatchObject({ id: expect.any(String), vcpuCounts: expect.any(Array) });
  });
});

describe('keys', () => {
  it('are created, shown, rotated and revoked', async () => {
    const { client } = await open();
    const made = await client.keys.create({ name: 'k', scopes: ['pods:read'] });
    expect(made.key).toMatch(/^mr_/);
    expect(await client.keys.get(made.id)).not.toHaveProperty('key');
    const rotated = await client.keys.rotate(made.id, { graceSeconds: 60 });
    expect(rotated.key).not.toBe(made.key);
    await client.keys.delete(rotated.id);
    await expect(client.keys.get(rotated.id)).rejects.toMatchObject({ status: 404 });
  });

  it('are listed for another user by user ID', async () => {
    const { client } = await open();
    await client.keys.create({ name: 'of ann', scopes: ['jobs:read'], userId: 'ann' });
    expect(namesOf(await collect(client.keys.ofUser('ann').list()))).toEqual(['of ann']);
    expect(namesOf(await collect(client.keys.list()))).not.toContain('of ann');
  });
});

/** A service that hangs up on the first calls and then answers with an empty object. */
async function startFlaky(failures: number) {
  const seen: string[] = [];
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    if (seen.length <= failures) request.socket.destroy();
    else response.writeHead(200, { 'content-type': 'application/json' }).end('{"gpus":[]}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const url = `http://127.0.0.1:${address.port}`;
  return { seen, client: createPlatform({ url, repeats: 2 }) };
}

describe('without an answer', () => {
  it('reads and changes are repeated', async () => {
    const { client, seen } = await startFlaky(1);
    await client.pods.get('a/b');
    expect(seen).toEqual(['GET /v2/pods/a%2Fb', 'GET /v2/pods/a%2Fb']);
    await client.endpoints.update('e', { workersMax: 1 });
    expect(seen.at(-1)).toBe('PATCH /v1/endpoints/e');
  });

  it.each<[string, (client: Platform) => Promise<unknown>]>([
    ['creates', ({ pods }) => pods.create({ name: 'a', image: 'i' })],
    ['acts', ({ pods }) => pods.restart('a')],
    ['deletes', ({ templates }) => templates.delete('a')],
    ['rotates', ({ keys }) => keys.rotate('a')],
  ])('repeats no call that %s, because it may have succeeded', async (_what, call) => {
    const { client, seen } = await startFlaky(1);
    await expect(call(client)).rejects.toThrow(UnreachableError);
    expect(seen).toHaveLength(1);
  });
});

it('rejects a cancelled list with the reason', async () => {
  const { client } = await startFlaky(0);
  const signal = AbortSignal.abort(new Error('enough'));
  await expect(collect(client.catalog.gpus.list({ signal }))).rejects.toThrow('enough');
});
