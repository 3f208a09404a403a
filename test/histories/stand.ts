// What a run needs around a platform: users with their keys and endpoints, workers that can be killed and paused, and
// a receiver of webhooks.
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { WEBHOOK_HEADERS } from '../../src/client.ts';
import { fixture, type PlatformProcess, Process } from '../support/processes.ts';
import type { History, Limit, Recorder } from './history.ts';
import type { FaultGroup } from './run.ts';
import { IDLE, TWIN } from './stories.ts';

export const LEASE_MS = 2_000;
/** Long enough for leases to expire, so that another worker takes the jobs. */
const LONGEST_PAUSE_MS = 2 * LEASE_MS;
export const PLATFORM_ARGS = [
  ...['--lease-ms', `${LEASE_MS}`, '--renew-every-ms', '500', '--take-wait-ms', '1000'],
  ...['--timeout-grace-ms', '2000', '--retry-base-ms', '100', '--retain-runsync-ms', '1800000'],
  // Faults cost many attempts; jobs fail only if the handler wants it.
  ...['--max-attempts', '100', '--allow-private-webhooks', '--trust-users'],
];
/** Endpoints of the owner. The guest creates another one. */
export const OWN_ENDPOINTS = ['work', TWIN, IDLE];
/** Of the owner's endpoints that have workers, which are on different shards of several nodes. */
const SHARED = { name: 'upstream', concurrency: 2, rateLimit: { max: 5, perMs: 400 } };

export interface User {
  user: string;
  key: string;
  workerKey: string;
  endpoint: string;
}

const issuedKey = z.object({ key: z.string() });
const created = z.object({ id: z.string() });

/** Adds a guest. @returns the owner of the platform and the guest, each with an endpoint whose groups run one job at a time */
export async function addUsers(
  platform: PlatformProcess,
  limitKey: Limit['key'] = 'group',
): Promise<[owner: User, guest: User]> {
  const ask = async (method: string, path: string, body: object, key = platform.adminKey) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` };
    const response = await platform.fetch(path, { method, headers, body: JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path}: ${text}`);
    return JSON.parse(text);
  };
  const issue = async (scopes: string[]) => {
    const about = { name: scopes.join(), userId: 'guest', scopes };
    return issuedKey.parse(await ask('POST', '/v1/keys', about)).key;
  };
  const key = await issue(['admin']);
  const template = { name: 'guest', image: 'none', args: 'true' };
  const { id: templateId } = created.parse(await ask('POST', '/v1/templates', template, key));
  const settings = { groupConcurrency: 1 };
  const creation = { name: 'side', templateId, workersMax: 0, maxAttempts: 100, ...settings };
  const { id: endpoint } = created.parse(await ask('POST', '/v1/endpoints', creation, key));
  await ask('POST', '/v1/shared-limits', { ...SHARED, key: limitKey });
  const limits = [SHARED.name];
  await ask('PATCH', '/v1/endpoints/work', { ...settings, limits });
  await ask('PATCH', `/v1/endpoints/${TWIN}`, { limits });
  const { adminKey, workerKey } = platform;
  return [
    { user: 'owner', key: adminKey, workerKey, endpoint: 'work' },
    { user: 'guest', key, workerKey: await issue(['worker']), endpoint },
  ];
}

export function describeEndpoints(
  users: readonly User[],
  limitKey: Limit['key'] = 'group',
): Pick<History, 'endpoints' | 'limits'> {
  const served = users.map(({ endpoint, user }) => [endpoint, { user }] as const);
  const groups = users.map(({ endpoint }): Limit => {
    const alone = { key: 'group', concurrency: 1, rateLimit: null } as const;
    return { name: endpoint, endpoints: [endpoint], ...alone };
  });
  const own = Object.fromEntries([TWIN, IDLE].map((name) => [name, { user: 'owner' }]));
  return {
    endpoints: { ...Object.fromEntries(served), ...own },
    limits: [...groups, { ...SHARED, key: limitKey, endpoints: ['work', TWIN] }],
  };
}

/** A worker process. */
export class RecordedWorker implements AsyncDisposable {
  readonly endpoint: string;
  readonly #args: string[];
  #process: Process;

  /** @param url of the platform, or of a proxy before it */
  constructor(url: string, { endpoint, workerKey }: User, place: { id: string; folder: string }) {
    this.endpoint = endpoint;
    this.#args = [
      ...['worker', fixture('recorded.ts'), '--url', url, '--endpoint', endpoint],
      ...['--key', workerKey, '--worker-id', place.id, '--state-dir', join(place.folder, 'state')],
      ...['--unsupervised', '--threads', '1', '--jobs-per-thread', '6', '--grace-ms', '200'],
    ];
    this.#process = new Process(this.#args);
  }

  async untilReady(): Promise<void> {
    await this.#process.find(/worker ready/);
  }

  async kill(): Promise<void> {
    await this.#process.end('SIGKILL');
    this.#process = new Process(this.#args);
  }

  pause(ms: number): Promise<void> {
    return pause(this.#process, ms);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill();
    await this.#process.exited;
  }
}

export async function pause({ child }: Process, ms: number): Promise<void> {
  child.kill('SIGSTOP');
  await sleep(ms);
  child.kill('SIGCONT');
}

/** Starts three workers of the owner, one of them for the second endpoint, and one of the guest. They share the `urls` in turn. */
export function startWorkers(
  ends: AsyncDisposableStack,
  [owner, guest]: readonly [User, User],
  { folder, urls }: { folder: string; urls: readonly string[] },
) {
  const twin = { ...owner, endpoint: TWIN };
  const workers = [owner, owner, guest, twin].map((user, index) => {
    const url = urls[index % urls.length] ?? '';
    return ends.use(new RecordedWorker(url, user, { id: `w${index}`, folder }));
  });
  const faults = (random: () => number): FaultGroup => {
    const choose = () => workers[Math.floor(random() * workers.length)];
    return {
      'worker killed': async () => choose()?.kill(),
      async 'worker paused'() {
        const worker = choose();
        await worker?.pause(random() * LONGEST_PAUSE_MS);
        return worker?.endpoint;
      },
    };
  };
  return { faults };
}

/** Notes each webhook, and answers 200. The path ends with a tag. */
export async function receiveWebhooks(recorder: Recorder): Promise<Server & { url: string }> {
  const server = createServer(async (request, response) => {
    // If the platform is killed, the body is incomplete.
    const pieces = await Array.fromAsync(request).catch(() => undefined);
    if (!pieces) return;
    const tag = (request.url ?? '').split('/').at(-1) ?? '';
    const delivery = String(request.headers[WEBHOOK_HEADERS.id]);
    const body = Buffer.concat(pieces).toString();
    recorder.note({ kind: 'posted', at: recorder.now(), tag, delivery, body });
    response.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return Object.assign(server, { url: `http://127.0.0.1:${address.port}` });
}
