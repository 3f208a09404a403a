// Creates the resources of the users of the fuzzer's platform.
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { cpuFlavorList } from '../../../src/wire/resources/catalog.ts';
import { issuedKey } from '../../../src/wire/resources/key.ts';
import { podList } from '../../../src/wire/resources/pod.ts';
import type { PlatformProcess } from '../processes.ts';
import type { Ground, ResourceKind } from './operations.ts';
import type { Allowance } from './safety.ts';

const SERVER = fileURLToPath(new URL('../../../examples/load-balanced/server.ts', import.meta.url));
/** Texts that the fuzzer never sends and therefore must never receive. */
export const SECRET = 'what-only-bob-may-see';
export const POLL_MS = 50;
/** No schedule may submit a job during a run: an hourly one does so in a run over a full hour. */
const WEEK_MS = 7 * 86_400_000;

export const created = z.looseObject({ id: z.string() });

/** A user of the platform and the IDs of their resources, by kind. */
export interface User {
  key: string;
  ids: Record<ResourceKind, string[]>;
}

export interface Furnishing {
  platform: PlatformProcess;
  allowance: Allowance;
  alice: User;
  bob: User;
  callers: { full: string; some: string[] };
  cpu: Ground['cpu'];
  before: unknown;
}

export async function furnish(
  platform: PlatformProcess,
  allowance: Allowance,
): Promise<Furnishing> {
  const key = async (userId: string, scopes: string[]): Promise<string> => {
    const creation = { name: `key of ${userId}`, userId, scopes };
    return issuedKey.parse(await call(platform, platform.adminKey, '/v1/keys', creation)).key;
  };
  const full = await key('alice', ['admin']);
  const { cpus } = cpuFlavorList.parse(await call(platform, full, '/v2/catalog/cpus'));
  const [flavor] = cpus;
  if (!flavor) throw new Error('the catalog has no processors');
  const cpu = { id: flavor.id, vcpuCount: Math.min(...flavor.vcpuCounts), memory: 1 };
  const bob = await furnishBob(platform, { cpu, key: await key('bob', ['admin']) });
  const alice = await furnishAlice(platform, { cpu, key: full });
  const [queue = ''] = alice.ids.endpoint;
  const some = await Promise.all([
    key('alice', ['worker']),
    key('alice', ['jobs:read', 'endpoints:read', 'pods:read', 'keys:read']),
    key('alice', [`jobs:read:${queue}`, `jobs:write:${queue}`, `worker:${queue}`]),
  ]);
  const before = await describeBelongings(platform, bob);
  return { platform, allowance, alice, bob, callers: { full, some }, cpu, before };
}

interface Start {
  key: string;
  cpu: Ground['cpu'];
}

/**
 * Alice's first endpoint has only workers that the fuzzer simulates; her second one forwards
 * requests.
 */
async function furnishAlice(platform: PlatformProcess, { cpu, key }: Start): Promise<User> {
  const idle = await make(platform, key, '/v1/templates', {
    name: 'a',
    image: 'none',
    args: 'true',
  });
  const serving = await make(platform, key, '/v1/templates', {
    ...{ name: 'web', image: 'none', ports: ['8000/http'] },
    args: `'${process.execPath}' '${SERVER}'`,
  });
  const endpoint = (templateId: string, more: object) =>
    make(platform, key, '/v1/endpoints', { name: 'alice', templateId, ...more });
  const queue = await endpoint(idle, { workersMax: 0 });
  const balanced = await endpoint(serving, {
    ...{ type: 'LOAD_BALANCER', workersMin: 1, workersMax: 1 },
  });
  await untilServed(platform, key, balanced);
  const jobs = [0, 1].map((n) => make(platform, key, `/v2/${queue}/run`, { input: { n } }));
  const pod = await make(platform, key, '/v2/pods', {
    ...{ name: 'alice', image: 'none', args: 'sleep 600', cpu },
  });
  const volume = await make(platform, key, '/v1/network-volumes', { name: 'alice', size: 1 });
  const budget = await make(platform, key, '/v1/budgets', { name: 'alice', limit: 1_000 });
  const weekly = { name: 'alice', endpointId: queue, every: WEEK_MS };
  const schedule = await make(platform, key, '/v1/schedules', weekly);
  return {
    key,
    ids: {
      ...{ budget: [budget], schedule: [schedule] },
      networkvolume: [volume],
      ...{ endpoint: [queue, balanced], template: [idle], pod: [pod], key: [] },
      job: await Promise.all(jobs),
    },
  };
}

async function untilServed(platform: PlatformProcess, key: string, endpoint: string) {
  const answer = await fetch(`${platform.url}/lb/${endpoint}/ping`, {
    headers: { authorization: key },
  });
  if (!answer.ok) throw new Error(`the endpoint does not serve: ${await answer.text()}`);
}

async function furnishBob(platform: PlatformProcess, { cpu, key }: Start): Promise<User> {
  const template = await make(platform, key, '/v1/templates', {
    ...{ name: SECRET, image: 'none', args: 'true', env: { SECRET } },
  });
  const endpoint = await make(platform, key, '/v1/endpoints', {
    ...{ name: SECRET, templateId: template, workersMax: 0 },
  });
  const job = await make(platform, key, `/v2/${endpoint}/run`, { input: { SECRET } });
  const pod = await make(platform, key, '/v2/pods', {
    ...{ name: SECRET, image: 'none', args: 'sleep 600', env: { SECRET }, cpu },
  });
  const volume = await make(platform, key, '/v1/network-volumes', { name: SECRET, size: 1 });
  const spare = await make(platform, key, '/v1/keys', { name: SECRET, scopes: ['jobs:read'] });
  return {
    key,
    ids: {
      ...{ endpoint: [endpoint], job: [job], key: [spare], pod: [pod], template: [template] },
      networkvolume: [volume],
      budget: [await make(platform, key, '/v1/budgets', { name: SECRET, limit: 1_000 })],
      schedule: [
        await make(platform, key, '/v1/schedules', {
          ...{ name: SECRET, endpointId: endpoint, every: WEEK_MS },
        }),
      ],
    },
  };
}

/** State that only Bob may change. */
export async function describeBelongings(
  platform: PlatformProcess,
  { ids, key }: User,
): Promise<unknown> {
  const [endpoint = '', job = '', pod = ''] = [ids.endpoint[0], ids.job[0], ids.pod[0]];
  const paths = [
    `/v1/endpoints/${endpoint}`,
    `/v1/templates/${ids.template[0]}`,
    `/v1/keys/${ids.key[0]}`,
    `/v1/network-volumes/${ids.networkvolume[0]}`,
    `/v2/${endpoint}/health`,
  ];
  const records = await Promise.all(paths.map((path) => call(platform, key, path)));
  const shown = z.looseObject({ id: z.string(), name: z.unknown().optional() });
  const { status } = z
    .object({ status: z.string() })
    .parse(await call(platform, key, `/v2/${endpoint}/status/${job}`));
  const { env, id, locked, name } = shown
    .extend({ env: z.unknown(), locked: z.boolean() })
    .parse(await call(platform, key, `/v2/pods/${pod}`));
  return [...records, { status }, { env, id, locked, name }];
}

export async function endAll(platform: PlatformProcess, key: string): Promise<void> {
  const headers = { authorization: key };
  const remove = (path: string) => fetch(`${platform.url}${path}`, { method: 'DELETE', headers });
  const list = z.object({ endpoints: z.array(created) });
  const { endpoints } = list.parse(await call(platform, key, '/v1/endpoints?limit=1000'));
  for (const { id } of endpoints) await remove(`/v1/endpoints/${id}`);
  for (;;) {
    const { pods } = podList.parse(await call(platform, key, '/v2/pods?limit=1000'));
    const left = pods.filter(({ status }) => status !== 'TERMINATED');
    if (left.length === 0) return;
    for (const { id, locked } of left) {
      if (locked) await call(platform, key, `/v2/pods/${id}`, { locked: false }, 'PATCH');
      await remove(`/v2/pods/${id}`);
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

export async function make(
  platform: PlatformProcess,
  key: string,
  path: string,
  body: object,
): Promise<string> {
  return created.parse(await call(platform, key, path, body)).id;
}

/** Returns the answer of a call that must succeed. */
export async function call(
  platform: PlatformProcess,
  key: string,
  path: string,
  body?: object,
  method = body ? 'POST' : 'GET',
): Promise<unknown> {
  const response = await fetch(`${platform.url}${path}`, {
    method,
    headers: { authorization: key, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === '' ? undefined : JSON.parse(text);
}
