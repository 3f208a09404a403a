// Quotas of a user over HTTP: each is counted, and concurrent creations never exceed it. Limits, as users read them.
import { describe, expect, it, onTestFinished } from 'vitest';
import { RateGate } from '../../../src/api/limits/rate-limit.ts';
import { readQuotas } from '../../../src/cli/options/limit-options.ts';
import { limitsCommand } from '../../../src/cli/resources/usage.ts';
import { DEFAULT_QUOTAS, type Quotas } from '../../../src/control/limits/quotas.ts';
import { limitsRecord } from '../../../src/wire/resources/limits.ts';
import { type Platform, readJson, startPlatform } from '../../support/api/platform.ts';
import { CPU, PodWorld } from '../../support/containers/pod-world.ts';
import { catchPrinted } from '../../support/runs/verb-run.ts';

const TEMPLATE = { name: 't', image: 'busy', args: 'true' };

async function start(changed: Partial<Quotas>, listBytes?: number) {
  const quotas = { ...DEFAULT_QUOTAS, ...changed };
  const world = await PodWorld.open({ pods: { quotas } });
  onTestFinished(() => world.close());
  const server = { pods: world.pods, listBytes };
  const platform = await startPlatform({ engine: 'docker', quotas, server });
  const template = async () => {
    const made = await platform.post('/v1/templates', TEMPLATE);
    return String((await readJson(made))['id']);
  };
  return { platform, template, world };
}

const patch = (platform: Platform, path: string, body: object) =>
  platform.post(path, body, { method: 'PATCH' });

/** Of each resource: how one more is asked for, and its path. */
const RESOURCES = {
  endpoints: {
    path: '/v1/endpoints',
    body: (template: string) => ({ name: 'e', templateId: template }),
  },
  templates: { path: '/v1/templates', body: () => TEMPLATE },
  keys: { path: '/v1/keys', body: () => ({ name: 'k', scopes: ['jobs:read'] }) },
  networkVolumes: { path: '/v1/network-volumes', body: () => ({ name: 'v', size: 1 }) },
  registries: {
    path: '/v1/registries',
    body: () => ({ name: 'r', server: 'r.example.com', username: 'u', secret: 's' }),
  },
  budgets: { path: '/v1/budgets', body: () => ({ name: 'b', limit: 1 }) },
  sharedLimits: { path: '/v1/shared-limits', body: () => ({ name: 'l' }) },
  schedules: {
    path: '/v1/schedules',
    body: () => ({ name: 's', endpointId: 'demo', every: 3_600_000 }),
  },
  pods: { path: '/v2/pods', body: () => ({ name: 'p', image: 'busy', cpu: CPU }) },
} as const;

describe.each(Object.entries(RESOURCES))('the quota of %s', (quota, { body, path }) => {
  it('admits exactly its number of concurrent creations, and one more for each deletion', async () => {
    const { platform, template } = await start({ [quota]: 4 });
    const wanted = body(quota === 'endpoints' ? await template() : '');
    // Two keys and one endpoint are there from the start.
    const had = { endpoints: 1, templates: 0, keys: 2, pods: 0 }[quota] ?? 0;
    const answers = await Promise.all(Array.from({ length: 8 }, () => platform.post(path, wanted)));
    const made = answers.filter(({ status }) => status === 201);
    const refused = answers.filter(({ status }) => status === 409);
    expect([made.length, refused.length]).toEqual([4 - had, 4 + had]);
    for (const answer of refused) {
      expect(await readJson(answer)).toMatchObject({
        ...{ code: 'quota_exceeded', status: 409 },
        detail: expect.stringContaining(`4 ${quota}`),
      });
    }
    const { id } = await readJson(made[0] ?? Response.error());
    expect((await platform.call(`${path}/${id}`, { method: 'DELETE' })).status).toBe(204);
    expect((await platform.post(path, wanted)).status).toBe(201);
    expect((await platform.post(path, wanted)).status).toBe(409);
  });

  it('counts each user separately', async () => {
    const { platform } = await start({ [quota]: 2 });
    // Those need a template or an endpoint of each user.
    if (quota === 'endpoints' || quota === 'schedules') return;
    const { key } = await platform.keys.issue({ name: 'k', userId: 'ann', scopes: ['admin'] });
    const ann = { headers: { authorization: key } };
    await platform.post(path, body(''));
    await platform.post(path, body(''));
    expect((await platform.post(path, body(''))).status).toBe(409);
    expect((await platform.post(path, body(''), ann)).status).toBe(201);
  });
});

describe('the quota workersMax', () => {
  it('applies to the creation and to each change of an endpoint', async () => {
    const { platform, template } = await start({ workersMax: 5 });
    const templateId = await template();
    const create = (workersMax: number) =>
      platform.post('/v1/endpoints', { name: 'e', templateId, workersMax });
    expect(await readJson(await create(6))).toMatchObject({
      ...{ code: 'quota_exceeded', detail: expect.stringMatching(/workersMax is 6.*\b5\b/) },
    });
    const { id } = await readJson(await create(5));
    const change = (body: object) => patch(platform, `/v1/endpoints/${id}`, body);
    expect((await change({ workersMax: 6 })).status).toBe(409);
    expect((await change({ workersMax: 4 })).status).toBe(200);
  });
});

describe('the quota recordBytes', () => {
  const text = (length: number) => ({ TEXT: 'x'.repeat(length) });

  it('applies to templates', async () => {
    const { platform, template } = await start({ recordBytes: 2_000 });
    const big = await platform.post('/v1/templates', { ...TEMPLATE, env: text(2_000) });
    expect([big.status, (await readJson(big))['code']]).toEqual([409, 'quota_exceeded']);
    const path = `/v1/templates/${await template()}`;
    expect((await patch(platform, path, { env: text(2_000) })).status).toBe(409);
    expect((await patch(platform, path, { env: text(200) })).status).toBe(200);
  });

  it('applies to pods', async () => {
    const { platform } = await start({ recordBytes: 2_000 });
    const pod = { name: 'p', image: 'busy', cpu: CPU };
    expect((await platform.post('/v2/pods', { ...pod, env: text(2_000) })).status).toBe(409);
    const { id } = await readJson(await platform.post('/v2/pods', pod));
    expect((await patch(platform, `/v2/pods/${id}`, { env: text(2_000) })).status).toBe(409);
    expect((await patch(platform, `/v2/pods/${id}`, { env: text(200) })).status).toBe(200);
  });

  it('applies to endpoints', async () => {
    const { platform, template } = await start({ recordBytes: 2_000 });
    const gpuTypeIds = Array.from({ length: 20 }, (_, index) => `${index}`.padEnd(150, 'x'));
    const body = { name: 'e', templateId: await template(), gpuTypeIds };
    expect((await platform.post('/v1/endpoints', body)).status).toBe(409);
  });

  it('is 256 KB by default', async () => {
    const { platform } = await start({});
    const env = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, at) => [`E${at}`, 'x'.repeat(100_000)]));
    expect((await platform.post('/v1/templates', { ...TEMPLATE, env: env(2) })).status).toBe(201);
    expect((await platform.post('/v1/templates', { ...TEMPLATE, env: env(3) })).status).toBe(409);
  });
});

describe('the quota of keys', () => {
  const rotate = (platform: Platform, id: unknown, graceSeconds: number) =>
    platform.post(`/v1/keys/${id}/rotate`, { graceSeconds });

  it('counts the old key of a rotation with a grace period', async () => {
    const { platform } = await start({ keys: 3 });
    const body = { name: 'k', scopes: ['jobs:read'] };
    const { id } = await readJson(await platform.post('/v1/keys', body));
    expect((await rotate(platform, id, 60)).status).toBe(409);
    expect((await rotate(platform, id, 0)).status).toBe(201);
  });

  it('cannot be evaded by the name of a worker pod or by rotating its key', async () => {
    const { platform } = await start({ keys: 3 });
    const name = 'pod pod_0190';
    const body = { name, scopes: ['worker:demo'] };
    expect((await platform.post('/v1/keys', body)).status).toBe(422);
    const { holder } = await platform.keys.issue({ ...body, podId: 'pod_0190' });
    expect((await rotate(platform, holder.keyId, 60)).status).toBe(201);
    const { keys } = await readJson(await platform.call('/v1/keys'));
    const newest = Array.isArray(keys) ? keys[0].id : undefined;
    expect((await rotate(platform, newest, 60)).status).toBe(409);
  });
});

describe('a list', () => {
  it('is limited by bytes and by rows, and continues with its cursor', async () => {
    const { platform } = await start({ recordBytes: 1_000_000 }, 10_000);
    const paths = {
      templates: ['/v1/templates', (env: object) => ({ ...TEMPLATE, env })],
      pods: ['/v2/pods', (env: object) => ({ name: 'p', image: 'busy', cpu: CPU, env })],
    } as const;
    for (const [member, [path, body]] of Object.entries(paths)) {
      const sizes = [100, 20_000, 3_000, 3_000, 3_000, 3_000, 100];
      const made: unknown[] = [];
      for (const size of sizes) {
        const created = await platform.post(path, body({ TEXT: 'x'.repeat(size) }));
        made.unshift((await readJson(created))['id']);
      }
      const { bytes, ids, pages } = await readPages(platform, path, member);
      expect(ids).toEqual(made);
      // A record that is larger than a page has one of its own.
      expect(bytes.filter((each) => each > 11_000)).toHaveLength(1);
      expect(pages).toBeGreaterThan(2);
      expect((await readPages(platform, `${path}?limit=2`, member)).pages).toBeGreaterThan(pages);
    }
  });
});

async function readPages(platform: Platform, path: string, member: string) {
  const ids: unknown[] = [];
  const bytes: number[] = [];
  for (let cursor: unknown, pages = 1; ; pages++) {
    const query = cursor === undefined ? '' : `${path.includes('?') ? '&' : '?'}cursor=${cursor}`;
    const text = await (await platform.call(path + query)).text();
    bytes.push(text.length);
    const page = JSON.parse(text);
    ids.push(...page[member].map(({ id }: { id: string }) => id));
    cursor = page.cursor;
    if (cursor === undefined) return { bytes, ids, pages };
  }
}

describe('the limits', () => {
  async function readLimits({ call }: Platform, authorization?: string) {
    const response = await call('/v1/limits', authorization ? { headers: { authorization } } : {});
    expect(response.status).toBe(200);
    return limitsRecord.parse(await response.json());
  }

  describe('the limits of a user', () => {
    it('count what the user has, in the names of serve --quota', async () => {
      const quotas = { ...DEFAULT_QUOTAS, templates: 7, recordBytes: 2_048 };
      const platform = await startPlatform({ quotas });
      await platform.post('/v1/templates', { name: 't', image: 'i' });
      const { quotas: shown, rates, userId } = await readLimits(platform);
      expect({ userId, rates }).toEqual({ userId: 'owner', rates: [] });
      const named = new Map(shown.map(({ name, ...rest }) => [name, rest]));
      expect(named.get('templates')).toEqual({ of: 'user', limit: 7, used: 1 });
      expect(named.get('endpoints')).toEqual({ of: 'user', limit: 100, used: 1 });
      expect(named.get('keys')).toEqual({ of: 'user', limit: 200, used: 2 });
      expect(named.get('recordKb')).toEqual({ of: 'record', limit: 2, used: null });
      expect(named.get('workersMax')).toEqual({ of: 'endpoint', limit: 100, used: null });
      expect(named.size).toBe(Object.keys(DEFAULT_QUOTAS).length);
      expect(() =>
        readQuotas([...named.keys()].map((name) => `${name}=1`).join(',')),
      ).not.toThrow();
    });

    it('are those of the caller, whatever the scopes of the key', async () => {
      const platform = await startPlatform();
      const { key } = await platform.keys.issue({ name: 'k', scopes: ['worker'], userId: 'ada' });
      const { quotas, userId } = await readLimits(platform, key);
      expect(userId).toBe('ada');
      expect(quotas.find(({ name }) => name === 'endpoints')?.used).toBe(0);
      expect(quotas.find(({ name }) => name === 'keys')?.used).toBe(1);
      expect((await platform.call('/v1/limits', { headers: { authorization: 'x' } })).status).toBe(
        401,
      );
    });

    it('count calls in each limited window, this one included', async () => {
      const rateGate = new RateGate({ minute: 5, day: 50 });
      const platform = await startPlatform({ server: { rateGate } });
      await readLimits(platform);
      const { at, rates } = await readLimits(platform);
      expect(rates).toMatchObject([
        { window: 'minute', limit: 5, used: 2 },
        { window: 'day', limit: 50, used: 2 },
      ]);
      for (const { endsAt } of rates) expect(endsAt).toBeGreaterThan(at);
    });

    it('are printed as a table and as JSON', async () => {
      const rateGate = new RateGate({ minute: 5 });
      const { admin, url } = await startPlatform({ server: { rateGate } });
      const print = async (...args: string[]) => {
        return catchPrinted(() => limitsCommand.run([...args, '--url', url, '--key', admin]));
      };
      const table = await print();
      expect(table).toMatch(
        /^LIMIT +USED +AT MOST +NOTE\ncalls per minute +1 +5 +for \d+ s more\n/,
      );
      expect(table).toMatch(/\nworkersMax +- +100 +each endpoint\n/);
      expect(limitsRecord.parse(JSON.parse(await print('--json'))).rates[0]?.used).toBe(2);
    });
  });
});
