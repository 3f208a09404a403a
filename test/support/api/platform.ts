// A platform for tests: store in memory, queue and HTTP server on a free port, with keys to call it. Not made
// by `createPlatformServer`: tests replace its clock, store, balancer and the server's own options.
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { Writable } from 'node:stream';
import { onTestFinished } from 'vitest';
import { BATCH_FORMS, RECORD_FORMATS } from '../../../src/api/adapters.ts';
import type { Access } from '../../../src/api/http/auth.ts';
import type { ServedRoute } from '../../../src/api/http/guard.ts';
import { type ApiServer, createServer } from '../../../src/api/server.ts';
import type { ApiServerOptions } from '../../../src/api/server-options.ts';
import { type ResumableClock, systemClock } from '../../../src/base/clock.ts';
import { createLog } from '../../../src/base/log.ts';
import { Balancer, type BalancerOptions } from '../../../src/control/balancing/balancer.ts';
import { Billing } from '../../../src/control/billing/billing.ts';
import { BudgetFindings } from '../../../src/control/billing/budget-judge.ts';
import { Budgets } from '../../../src/control/billing/budgets.ts';
import { type CostTotals, Spending } from '../../../src/control/billing/spending.ts';
import { Catalog } from '../../../src/control/endpoints/catalog.ts';
import {
  type CatalogFile,
  composeCatalog,
} from '../../../src/control/endpoints/catalog-contents.ts';
import { Endpoints } from '../../../src/control/endpoints/endpoints.ts';
import type { EngineKind } from '../../../src/control/endpoints/templates.ts';
import { Keys } from '../../../src/control/keys/keys.ts';
import { Sessions } from '../../../src/control/keys/sessions.ts';
import type { Quotas } from '../../../src/control/limits/quotas.ts';
import { SecretSealer } from '../../../src/control/registries/sealed-secret.ts';
import { Decisions } from '../../../src/control/scaling/decisions.ts';
import { listServed, openSpecResources } from '../../../src/control/served-resources.ts';
import { inspectUpload } from '../../../src/control/versions/version-archives.ts';
import { Versions, type VersionsOptions } from '../../../src/control/versions/versions.ts';
import { DOCKER_CAPABILITIES } from '../../../src/engine/docker/docker-engine.ts';
import { EndpointDeletion } from '../../../src/platform/compute/endpoint-remains.ts';
import { createLimitSources } from '../../../src/platform/shared-limit-source.ts';
import { Queue } from '../../../src/queue/queue.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../src/store/store.ts';
import type { AttemptError } from '../../../src/wire/job/attempt.ts';
import type { Device, WorkerLink } from '../../../src/wire/link/worker-link.ts';
import { fetchChecked } from '../network/checked-fetch.ts';

export const ENDPOINT = 'demo';

export interface PlatformSettings {
  access?: Access;
  clock?: ResumableClock;
  wrapStore?: (store: Store) => Store;
  server?: Partial<ApiServerOptions>;
  /** Of endpoints, templates and keys. Default: DEFAULT_QUOTAS. */
  quotas?: Quotas;
  /** Of which endpoints can be made; none is run. Default: without one. */
  engine?: EngineKind;
  /** Default: no endpoint is load-balanced. */
  balancing?: Pick<BalancerOptions, 'targets' | 'waitMs' | 'maxOpen'>;
  /** Of the metrics of costs. Default: none is counted. */
  totals?: CostTotals;
  /** Of uploads. Default: inspectUpload. */
  inspect?: VersionsOptions['inspect'];
  /** Default: a catalog of nothing but processors. */
  offers?: { file?: CatalogFile; devices?: Device[]; heldGpus?: string[] };
}

export interface Platform {
  url: string;
  /** Undefined without forwarding. */
  nodeUrl: string | undefined;
  port: number;
  queue: Queue;
  keys: Keys;
  endpoints: Endpoints;
  routes: readonly ServedRoute[];
  balancer: Balancer | undefined;
  admin: string;
  worker: string;
  /** The queue as a worker sees it, without HTTP between. */
  link: WorkerLink;
  logged: () => string;
  flows: ApiServer['flows'];
  forwarder: ApiServer['forwarder'];
  workers: ApiServer['workers'];
  close: () => Promise<void>;
  listenAlso: ApiServer['listenAlso'];
  announceShutdown: ApiServer['announceShutdown'];
  /** A call with the admin key unless `authorization` says otherwise. */
  call: (path: string, init?: RequestInit) => Promise<Response>;
  /** With another method if `init` names one. */
  post: (path: string, body: unknown, init?: RequestInit) => Promise<Response>;
}

/** Ends with the test. */
export async function startPlatform(settings: PlatformSettings = {}): Promise<Platform> {
  const platform = await openPlatform(settings);
  onTestFinished(platform.close);
  return platform;
}

/** Ends with `close`. */
export async function openPlatform(settings: PlatformSettings = {}): Promise<Platform> {
  const { access = 'keys', clock = systemClock, wrapStore = (store) => store } = settings;
  const lines: string[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(String(line));
      done();
    },
  });
  const log = createLog({ level: 'trace', destination });
  const opened = openSqliteStore({ path: ':memory:' });
  const store = wrapStore(opened);
  const keys = await Keys.open({ store, clock });
  const first = await keys.ensureFirstKeys();
  if (!first) throw new Error('a new store has keys');
  const sessions = await Sessions.open({ store, clock, keys });
  const { engine = 'none', offers = {}, quotas } = settings;
  const catalog = openCatalog(offers);
  const billing = new Billing({
    ...{ store, clock, totals: settings.totals, nameOf: () => undefined },
    pods: settings.server?.pods,
  });
  const spending = new Spending({ store, billing });
  const findings = new BudgetFindings();
  const resources = await openSpecResources({
    ...{ store, clock, engine, catalog, quotas, findings },
    sealer: new SecretSealer([randomBytes(32)]),
  });
  const { sharedLimits, templates } = resources;
  const deploying =
    engine === 'none' ? {} : { deploying: { engine, catalog, templates, admit: () => {} } };
  const endpoints = await Endpoints.open({ store, clock, quotas, sharedLimits, ...deploying });
  const budgets = await Budgets.open({
    ...{ store, clock, log, quotas, findings, spending },
    findEndpoint: (userId, id) => (endpoints.find(id)?.userId === userId ? id : undefined),
    nameOfEndpoint: (id) => endpoints.nameOf(id),
  });
  const users = { listEndpoints: () => [], listPods: () => [] };
  const served = listServed({ ...resources, budgets }, users);
  await endpoints.ensureEndpoint(ENDPOINT);
  const limits = createLimitSources({ endpoints, sharedLimits })();
  const formats = { batchForms: BATCH_FORMS, formats: RECORD_FORMATS };
  const queue = new Queue({ store, clock, log, ...formats, sharedLimits: limits });
  await queue.start();
  const deletion = new EndpointDeletion({ store, clock, log, endpoints, jobs: queue.removal });
  await deletion.start();
  const heldGpus = () => new Set(offers.heldGpus);
  const admit = () => {};
  const parts = {
    store,
    clock,
    log,
    endpoints,
    quotas,
    inspect: settings.inspect ?? inspectUpload,
    admit,
  };
  const versions = new Versions(parts);
  const decisions = await Decisions.open(store);
  const { balancing } = settings;
  const balancer = balancing && new Balancer({ ...balancing, endpoints, clock });
  const server = createServer({
    ...{ queue, keys, sessions, endpoints, log, clock, access, quotas },
    ...{ host: '127.0.0.1', port: 0, version: '1.2.3' },
    resources: {
      ...{ served, records: resources, catalog, heldGpus, versions, decisions, billing },
      engine: engine === 'none' ? null : { kind: engine, capabilities: DOCKER_CAPABILITIES },
    },
    ...(balancer && { balancer }),
    ...settings.server,
  });
  const { nodeUrl, url } = await server.start();
  const close = async () => {
    await server.close();
    balancer?.close();
    await deletion.close();
    await opened.close();
  };
  const call = (path: string, init: RequestInit = {}) => {
    const headers = new Headers(init.headers);
    if (!headers.has('authorization')) headers.set('authorization', `Bearer ${first.admin}`);
    return fetchChecked(url + path, { ...init, headers });
  };
  const post = (path: string, body: unknown, init: RequestInit = {}) =>
    call(path, {
      method: 'POST',
      ...init,
      headers: { 'content-type': 'application/json', ...init.headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  return {
    nodeUrl,
    ...{ url, port: Number(new URL(url).port), queue, keys, endpoints, close, call, post },
    ...{ admin: first.admin, worker: first.worker, routes: server.routes, balancer },
    listenAlso: (host) => server.listenAlso(host),
    announceShutdown: () => server.announceShutdown(),
    link: queue.link(ENDPOINT),
    logged: () => lines.join(''),
    flows: server.flows,
    forwarder: server.forwarder,
    workers: server.workers,
  };
}

function openCatalog({ devices = [], file }: NonNullable<PlatformSettings['offers']>): Catalog {
  const processors = { vcpus: 4, memoryBytes: 8 * 2 ** 30 };
  return new Catalog(composeCatalog({ file, devices, processors, readPassword: () => 'secret' }));
}

/** Resolves with the signal of the next take that reaches the queue over HTTP; before the first. */
export function nextTake({ queue }: Platform): Promise<AbortSignal> {
  const linkOf = queue.link.bind(queue);
  return new Promise((resolve) => {
    queue.link = (endpointId, podId) => {
      const link = linkOf(endpointId, podId);
      const take: WorkerLink['take'] = (request, signal) => {
        resolve(signal);
        return link.take(request, signal);
      };
      return { ...link, take };
    };
  });
}

const WORKER = { workerId: 'w1', incarnation: 1 };

export interface RunningJob {
  id: string;
  attempt: number;
  input: Buffer;
  yieldChunks: (...chunks: string[]) => Promise<void>;
  log: (lines: string, dropped?: number) => Promise<void>;
  complete: (output?: string) => Promise<void>;
  fail: (retry: 'never' | 'default', error?: Partial<AttemptError>) => Promise<void>;
}

/** Submits a job. */
export async function submitJob(platform: Platform, body: object = { input: {} }): Promise<string> {
  const response = await platform.post(`/v2/${ENDPOINT}/run`, body);
  const { id } = await readJson(response);
  return String(id);
}

/** Takes the job that is next, as a worker of the name w1 would. */
export async function takeJob({ link }: Pick<Platform, 'link'>): Promise<RunningJob> {
  await link.hello({
    ...{ ...WORKER, protocol: 1, version: '1.2.3', slots: 100, devices: [], outbox: [] },
  });
  const take = { ...WORKER, takeId: crypto.randomUUID(), max: 1, waitMs: 2_000, held: heldTokens };
  const [lease] = await link.take(take, new AbortController().signal);
  if (!lease) throw new Error('there was no job to take');
  const { attempt, jobId, token } = lease;
  heldTokens.push(token);
  const base = { jobId, attempt, token };
  let seq = 0;
  let first = 0;
  const report = async (rest: Parameters<WorkerLink['report']>[0]['reports'][number]) => {
    const [answer] = await link.report({ ...WORKER, reports: [rest] });
    if (answer?.answer !== 'applied') throw new Error(`report: ${answer?.answer}`);
  };
  return {
    id: jobId,
    attempt,
    input: Buffer.from(lease.input),
    async yieldChunks(...chunks) {
      const sizes = chunks.map((chunk) => Buffer.byteLength(chunk));
      const body = Buffer.from(chunks.join(','));
      await report({ ...base, seq: ++seq, kind: 'chunks', first, sizes, body });
      first += chunks.length;
    },
    log: (lines, dropped = 0) =>
      report({ ...base, seq: ++seq, kind: 'log', dropped, body: Buffer.from(lines) }),
    complete: (output) =>
      report({
        ...{ ...base, seq: ++seq, kind: 'outcome', body: Buffer.from(output ?? '') },
        outcome: {
          ...{ kind: 'completed', executionMs: 5 },
          output: output === undefined ? 'chunks' : 'value',
        },
      }),
    fail: (retry, error = {}) =>
      report({
        ...{ ...base, seq: ++seq, kind: 'outcome', body: Buffer.alloc(0) },
        outcome: {
          ...{ kind: 'failed', executionMs: 5, retry },
          error: { code: 'handler_error', message: 'no', ...error },
        },
      }),
  };
}

/** Of all jobs taken in this file: a lease that a take does not name is given back. */
const heldTokens: string[] = [];

export async function readJson(response: Response): Promise<Record<string, unknown>> {
  return JSON.parse(await response.text());
}

/** Writes to a socket as it is and reads until `enough` or the end. */
export function exchange(
  port: number,
  pieces: readonly (string | Buffer)[],
  enough: (answer: string) => boolean = () => false,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let answer = '';
    socket.on('error', reject);
    socket.on('close', () => resolve(answer));
    socket.on('data', (data) => {
      answer += data.toString('latin1');
      if (enough(answer)) socket.destroy();
    });
    for (const piece of pieces) socket.write(piece);
  });
}
