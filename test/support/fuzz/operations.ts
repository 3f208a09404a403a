// Composes a correct request for each operation; the fuzzer changes it afterwards.

import { encodeFrames, FRAMES_MEDIA_TYPE } from '../../../src/wire/link/http-form.ts';
import type { Operation } from '../../../src/wire/operations/operation.ts';
import { OPERATIONS } from '../../../src/wire/operations/operations.ts';
import { listResourceRoutes, type ResourceOutline } from '../../../src/wire/routes/route.ts';
import {
  FETCH_VERSION_ROUTES,
  JOB_ROUTES,
  OPENAI_BATCH_ROUTES,
  OPENAI_ROUTES,
  RESOURCES,
  RUNPOD_BASE,
  WORKER_ROUTES,
  type WorkerVerb,
} from '../../../src/wire/routes/routes.ts';
import type { Dice } from './dice.ts';
import { HARMLESS_ARGS } from './safety.ts';

export const RESOURCE_KINDS = [
  'endpoint',
  'job',
  'pod',
  'template',
  'key',
  'networkvolume',
  'budget',
  'schedule',
] as const;
export type ResourceKind = (typeof RESOURCE_KINDS)[number];

/** IDs that requests name. */
export interface Ground {
  /** IDs of the catalog. */
  cpu: { id: string; vcpuCount: number; memory: number };
  /** An existing resource of the kind; undefined if none exists. */
  pickId: (kind: ResourceKind, dice: Dice) => string | undefined;
  /** A lease of one of the fuzzer's workers; undefined without one. */
  pickLease: (dice: Dice) => TakenLease | undefined;
}

export interface TakenLease {
  jobId: string;
  attempt: number;
  token: string;
  workerId: string;
}

type Query = readonly [name: string, value: string][];

export interface Call {
  query?: Query;
  /** Body, sent as JSON. */
  json?: unknown;
  bytes?: { mediaType: string; bytes: Buffer };
  headers?: readonly [name: string, value: string][];
}

export interface FuzzedOperation {
  /** With the parameters of RESOURCE_KINDS, and `*` for whatever a worker says behind it. */
  method: string;
  path: string;
  /** The answer may take longer than the fuzzer waits. */
  mayWait: boolean;
  compose: (dice: Dice, ground: Ground) => Call;
}

const NOTHING: FuzzedOperation['compose'] = () => ({});
const WAITING = new Set([
  ...['runJobSync', 'streamJob', 'streamEvents'],
  ...['postOpenAi', 'getOpenAiModels', 'getOpenAiModel'],
]);
const INCARNATION = 1;

/**
 * By the operation's ID in the OpenAPI document; other operations send the example of their
 * description.
 */
const TOLD: Readonly<Record<string, FuzzedOperation['compose']>> = {
  runJob: (dice) => ({ json: composeJob(dice) }),
  runJobSync: (dice) => ({
    json: composeJob(dice),
    query: [['wait', '1000']],
  }),
  runJobs: (dice) => ({
    json: { jobs: Array.from({ length: dice.integer(1, 4) }, () => composeJob(dice)) },
  }),
  getJobStatus: (dice) => (dice.chance(0.3) ? { query: [['ttl', '60000']] } : {}),
  streamJob: composeStreaming,
  listJobs: (dice) => ({
    query: [...composePage(dice), ...pickSome(dice, [['status', 'IN_QUEUE']])],
  }),
  getJob: (dice) => ({ query: pickSome(dice, [['input', 'false']]) }),
  streamEvents: (dice, ground) => ({ query: [['topics', composeTopics(dice, ground)]] }),
  getJobLog: () => ({ query: [['after', '0']] }),
  listPods: (dice) => ({ query: composePage(dice) }),
  listEndpoints: (dice) => ({ query: composePage(dice) }),
  listTemplates: (dice) => ({ query: composePage(dice) }),
  listNetworkVolumes: (dice) => ({ query: composePage(dice) }),
  listRegistries: (dice) => ({ query: composePage(dice) }),
  listBudgets: (dice) => ({ query: [...composePage(dice), ...composeUser(dice)] }),
  createBudget: (dice, ground) => ({ json: composeBudget(dice, ground) }),
  listGpuTypes: (dice) => ({ query: composePage(dice) }),
  listCpuFlavors: (dice) => ({ query: composePage(dice) }),
  listDataCenters: (dice) => ({ query: composePage(dice) }),
  listScalerDecisions: (dice) => ({ query: composePage(dice) }),
  listKeys: (dice) => ({ query: composePage(dice) }),
  getPodLog: () => ({ query: [['bytes', '1000']] }),
  createPod: (dice, ground) => ({ json: composePod(dice, ground) }),
  updatePod: (dice) => ({ json: pickMembers(dice, composeContainer(dice)) }),
  actOnPod: (dice) => ({
    json: { action: dice.pick(['start', 'stop', 'restart', 'restart', 'terminate']) },
  }),
  createEndpoint: (dice, ground) => ({ json: composeEndpoint(dice, ground) }),
  updateEndpoint: (dice, ground) => ({ json: pickMembers(dice, composeEndpoint(dice, ground)) }),
  createTemplate: (dice) => ({ json: composeTemplate(dice) }),
  updateTemplate: (dice) => ({ json: pickMembers(dice, composeTemplate(dice)) }),
  createNetworkVolume: (dice) => ({ json: composeVolume(dice) }),
  updateNetworkVolume: (dice) => ({
    json: pickMembers(dice, { name: 'fuzzed', size: dice.integer(1, 100) }),
  }),
  createKey: (dice) => ({ json: composeKey(dice) }),
  rotateKey: (dice) => (dice.chance(0.5) ? { json: { graceSeconds: 60 } } : {}),
};

/** Calls of workers, and paths with the formats of another service. */
const UNTOLD: readonly FuzzedOperation[] = [
  worker('hello', (dice, ground) => ({
    json: {
      ...composeWorker(dice),
      ...{ protocol: 1, version: '1.0.0', slots: 2, requires: [] },
      devices: [{ kind: 'gpu', index: 0, uuid: 'GPU-0', name: 'H200', memoryBytes: 1e11 }],
      outbox: dice.chance(0.3) ? [composeLease(dice, ground)] : [],
    },
  })),
  worker('take', (dice, ground) => ({
    json: {
      ...composeWorker(dice),
      ...{ takeId: `take-${dice.integer(1, 10_000)}`, max: 2, waitMs: 100 },
      held: Array.from({ length: 20 }, () => composeLease(dice, ground).token),
    },
  })),
  worker('renew', (dice, ground) => {
    const { jobId, token } = composeLease(dice, ground);
    const leases = [{ jobId, token, stopping: dice.chance(0.1) }];
    return { json: { ...composeWorker(dice), waitMs: 100, leases } };
  }),
  worker('report', composeReport),
  worker('bye', (dice) => ({
    json: {
      ...composeWorker(dice),
      ...{ reason: dice.pick(['drained', 'crashed']), outbox: [], detail: 'gone' },
    },
  })),
  { ...FETCH_VERSION_ROUTES.fetchVersion, mayWait: false, compose: NOTHING },
  ...['/', '/console', '/console/*'].map((path) => ({
    ...{ method: 'GET', path, mayWait: false, compose: NOTHING },
  })),
  ...runpodClient(),
  ...runpodWorker(),
  ...runpodManagement(),
];

export const FUZZED_OPERATIONS: readonly FuzzedOperation[] = [
  ...OPERATIONS.map(({ body, id, method, path }) => ({
    method,
    path: serveAll(path),
    mayWait: WAITING.has(id) || path.startsWith('/lb/'),
    compose: path.startsWith('/lb/') ? composePassedOn : (TOLD[id] ?? sendExample(body)),
  })),
  ...UNTOLD,
];

/** Operations with a body, which have the most cases. */
export const FUZZED_READERS = FUZZED_OPERATIONS.filter(
  ({ compose, method, path }) =>
    compose !== NOTHING && (method === 'POST' || method === 'PATCH') && !path.startsWith('/lb/'),
);

/** The path as the server has it: these parameters stand for all that follows. */
function serveAll(path: string): string {
  return path.replace(/\/:(path|model)$/, '/*');
}

function sendExample(body: Operation['body']): FuzzedOperation['compose'] {
  return body?.example === undefined ? NOTHING : () => ({ json: body.example });
}

function composeJob(dice: Dice): object {
  return {
    input: { n: dice.integer(0, 9), ms: 0, text: 'é', list: [1, [2, { a: null }]] },
    ...pickMembers(dice, {
      policy: { executionTimeout: 5_000, ttl: 60_000, priority: 3, delay: 10 },
      // Refused because of its address.
      webhook: 'http://127.0.0.1:9/hook',
      idempotencyKey: `key-${dice.integer(1, 2_000)}`,
    }),
  };
}

function composePage(dice: Dice): Query {
  const cursor = Buffer.from(String(Date.now() * 1_000)).toString('base64url');
  return pickSome(dice, [
    ['limit', String(dice.integer(1, 50))],
    ['cursor', cursor],
  ]);
}

function composeTopics(dice: Dice, { pickId }: Ground): string {
  const named = ['endpoint', 'health', 'activity', 'decisions', 'versions'].map(
    (kind) => `${kind}:${pickId('endpoint', dice) ?? 'none'}`,
  );
  const job = `job:${pickId('endpoint', dice) ?? 'none'}/${pickId('job', dice) ?? 'none'}`;
  const pods = ['pod', 'pod-log'].map((kind) => `${kind}:${pickId('pod', dice) ?? 'none'}`);
  const all = [job, ...named, ...pods, 'overview', 'endpoints', 'pods'] as const;
  return [dice.pick(all), dice.pick(all)].join();
}

function composeStreaming(dice: Dice): Call {
  const query = pickSome(dice, [['after', dice.pick(['0', '1.0', '2.17'])]]);
  const accept = dice.pick(['application/json', 'text/event-stream', '*/*']);
  const headers: [string, string][] = [['accept', accept]];
  if (dice.chance(0.3)) headers.push(['last-event-id', '1.0']);
  return { query: [...query, ['wait', '0']], headers };
}

function composeContainer(dice: Dice) {
  return {
    name: 'fuzzed',
    image: 'none',
    args: dice.pick(HARMLESS_ARGS),
    disk: 20,
    ports: dice.pick([[], ['8000/http'], ['8000/http', '22/tcp']]),
    env: dice.pick([{}, { A: '1', B_2: 'é' }]),
    ...(dice.chance(0.1) && { kubernetes: { labels: { team: 'a' } } }),
  };
}

function composePod(dice: Dice, { cpu, pickId }: Ground): object {
  const template = pickId('template', dice);
  const volume = dice.chance(0.2) ? pickId('networkvolume', dice) : undefined;
  return {
    ...composeContainer(dice),
    cpu,
    ...pickMembers(dice, {
      ...(template !== undefined && { template }),
      mounts: volume === undefined ? {} : { network: [{ volumeId: volume, path: '/data' }] },
      registry: null,
      cloud: 'SECURE',
      dataCenterId: null,
      globalNetworking: false,
      locked: false,
    }),
  };
}

function composeTemplate(dice: Dice): object {
  const handler = dice.pick([null, null, 'handler.ts']);
  return { ...composeContainer(dice), registry: null, ...(handler !== null && { handler }) };
}

function composeEndpoint(dice: Dice, { pickId }: Ground): object {
  const type = dice.pick(['QUEUE', 'QUEUE', 'LOAD_BALANCER']);
  return {
    name: 'fuzzed',
    templateId: pickId('template', dice) ?? 'none',
    ...{ gpuTypeIds: [], workersMin: 0, workersMax: 1, idleTimeout: 1, type },
    ...pickMembers(dice, {
      executionTimeout: 5_000,
      maxAttempts: 2,
      maxQueued: 1_000,
      scaler: { type: 'REQUEST_COUNT', perWorker: 2 },
    }),
  };
}

function composeVolume(dice: Dice): object {
  const size = dice.integer(1, 50);
  return {
    name: 'fuzzed',
    size,
    ...pickMembers(dice, { dataCenterId: dice.pick([null, 'local']) }),
  };
}

/** Budgets of other users are for the operator. */
function composeUser(dice: Dice): Query {
  return dice.chance(0.3) ? [['userId', dice.pick(['alice', 'bob', 'owner', '*'])]] : [];
}

/** Limits that nothing reaches: the fuzzer goes on to start pods. */
function composeBudget(dice: Dice, { pickId }: Ground): object {
  const choices = {
    period: dice.pick(['day', 'month']),
    endpointId: pickId('endpoint', dice) ?? null,
    warnAt: 0.5,
    userId: dice.pick(['alice', 'bob', 'owner', 'nobody']),
  };
  return { name: 'fuzzed', limit: dice.integer(1_000, 9_000), ...pickMembers(dice, choices) };
}

function composeKey(dice: Dice): object {
  const scopes = dice.pick([
    ['jobs:read'],
    ['jobs:read', 'jobs:write'],
    ['pods:read', 'endpoints:read'],
    ['worker'],
    ['admin'],
    ['keys:read', 'keys:write'],
  ]);
  const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
  return { name: 'fuzzed', scopes, ...pickMembers(dice, { expiresAt }) };
}

function composeWorker(dice: Dice) {
  const incarnation = dice.chance(0.05) ? dice.integer(0, 2) : INCARNATION;
  return { workerId: `worker-${dice.integer(1, 2)}`, incarnation };
}

function composeLease(dice: Dice, { pickLease }: Ground): TakenLease {
  const taken = dice.chance(0.9) ? pickLease(dice) : undefined;
  return taken ?? { jobId: 'job', attempt: 1, token: 'token', ...composeWorker(dice) };
}

function composeReport(dice: Dice, ground: Ground): Call {
  const { workerId, ...lease } = composeLease(dice, ground);
  const error = { code: 'handler_error', message: 'no' };
  const json = dice.pick(['{"a":[1]}', '"text"', '{}[]', '1 2', '{"cut":"', '[null, 1e3 ]\n']);
  const chunk = `{"output":${json},"metrics":{}}`;
  const sizes = [chunk.length, chunk.length];
  const [kinds, body] = dice.pick<readonly [object, string]>([
    [{ kind: 'chunks', first: 0, sizes }, `${chunk},${chunk}`],
    [{ kind: 'progress' }, json],
    [{ kind: 'log', dropped: 0 }, json],
    [{ kind: 'outcome', outcome: { kind: 'completed', executionMs: 1, output: 'value' } }, json],
    [{ kind: 'outcome', outcome: { kind: 'completed', executionMs: 1, output: 'chunks' } }, ''],
    [{ kind: 'outcome', outcome: { kind: 'failed', executionMs: 1, retry: 'never', error } }, ''],
  ]);
  const header = { ...lease, seq: dice.integer(1, 3), ...kinds };
  const frames = [{ header, body: Buffer.from(body) }];
  return {
    bytes: { mediaType: FRAMES_MEDIA_TYPE, bytes: Buffer.concat(encodeFrames(frames)) },
    headers: [
      ['millrace-worker', workerId],
      ['millrace-incarnation', String(INCARNATION)],
    ],
  };
}

function composePassedOn(dice: Dice): Call {
  return dice.chance(0.5) ? { json: { text: 'a' } } : {};
}

function worker(verb: WorkerVerb, compose: FuzzedOperation['compose']): FuzzedOperation {
  const mayWait = verb === 'take' || verb === 'renew';
  return { method: 'POST', path: WORKER_ROUTES[verb].path, mayWait, compose };
}

function runpodClient(): FuzzedOperation[] {
  const place = (path: string) => `${RUNPOD_BASE}${path}`;
  const onJob = ['status', 'stream', 'status-sync'].flatMap((verb) => {
    const path = place(`/v2/:endpoint/${verb}/:job`);
    const common = { path, mayWait: verb !== 'status', compose: NOTHING };
    return [
      { ...common, method: 'GET' },
      { ...common, method: 'POST' },
    ];
  });
  const submitting = ['run', 'runsync'].map((verb) => ({
    ...{ method: 'POST', path: place(`/v2/:endpoint/${verb}`), mayWait: verb === 'runsync' },
    compose: (dice: Dice) => ({ json: composeRunpodJob(dice) }),
  }));
  const { cancelJob, getEndpointHealth, purgeQueue, retryJob } = JOB_ROUTES;
  const changing = [cancelJob, retryJob, purgeQueue].map(({ path }) => ({
    method: 'POST',
    path: place(path),
    mayWait: false,
    compose: NOTHING,
  }));
  const health = place(getEndpointHealth.path);
  const openAi = Object.values(OPENAI_ROUTES).map(({ method, path }) => ({
    ...{ method, path: place(serveAll(path)), mayWait: true },
    compose: method === 'POST' ? () => ({ json: { model: 'small' } }) : NOTHING,
  }));
  const openAiBatches = Object.values(OPENAI_BATCH_ROUTES).map(({ method, path }) => ({
    ...{ method, path: place(path), mayWait: false },
    compose: NOTHING,
  }));
  return [
    ...openAi,
    ...openAiBatches,
    ...runpodBatches(place('/v2/:endpoint/batch')),
    ...onJob,
    ...submitting,
    ...changing,
    { method: 'GET', path: health, mayWait: false, compose: NOTHING },
  ];
}

function runpodBatches(path: string): FuzzedOperation[] {
  const requests = [{ input: { n: 1 } }, { input: { n: 2 } }];
  const send = (at: string, json: unknown) => ({
    ...{ method: 'POST', path: at, mayWait: false },
    compose: () => ({ json }),
  });
  const read = (at: string) => ({ method: 'GET', path: at, mayWait: false, compose: NOTHING });
  const change = (at: string) => ({ ...read(at), method: 'POST' });
  return [
    send(path, requests),
    send(`${path}/:batch/requests`, { requests }),
    ...['finalize', 'cancel'].map((verb) => change(`${path}/:batch/${verb}`)),
    ...[path, `${path}/:batch`, `${path}/:batch/requests`].map(read),
  ];
}

function composeRunpodJob(dice: Dice): object {
  return {
    input: { n: 1 },
    ...pickMembers(dice, {
      policy: { executionTimeout: 5_000, ttl: 60_000, lowPriority: true },
      webhook: 'http://127.0.0.1:9/hook',
      s3Config: { accessId: 'a', accessSecret: 'b', bucketName: 'c', endpointUrl: 'http://d' },
    }),
  };
}

function runpodWorker(): FuzzedOperation[] {
  const place = (verb: string) => `${RUNPOD_BASE}/v2/:endpoint/${verb}/*`;
  const polls = ['job-take', 'job-take-batch', 'job-stop', 'ping'].map((verb) => ({
    ...{ method: 'GET', path: place(verb), mayWait: verb !== 'ping' },
    compose: (dice: Dice): Call => ({
      query: pickSome(dice, [
        ['job_in_progress', '0'],
        ['batch_size', '3'],
        ['job_id', 'a-a1,b-a2'],
        ['every', '1000'],
        ['status', 'unhealthy'],
      ]),
    }),
  }));
  const reports = ['job-stream', 'job-done'].map((verb) => ({
    ...{ method: 'POST', path: place(verb), mayWait: false },
    compose: (dice: Dice): Call => ({
      json: dice.pick<object>([{ output: { a: 1 } }, { error: 'it broke' }, { output: 'part' }]),
      query: pickSome(dice, [['isStream', 'true']]),
    }),
  }));
  return [...polls, ...reports];
}

/** Of RunPod's REST API: the five verbs of each resource. */
function runpodManagement(): FuzzedOperation[] {
  return [
    ...manage({ ...RESOURCES.endpoints, path: 'serverless' }, (dice) => ({
      ...{ name: 'managed', image: 'image:1', args: dice.pick(HARMLESS_ARGS), type: 'QUEUE' },
      scaling: { type: 'REQUEST_COUNT', requestCount: dice.integer(1, 9) },
      ...pickMembers(dice, {
        gpu: { pools: ['NVIDIA H200'], excludedTypes: ['A'], count: 1 },
        cpu: [{ id: 'cpu', vcpuCount: 2 }],
        workers: { min: 0, max: dice.integer(0, 2) },
        ...{ env: { A: '1' }, timeout: 5_000, flashboot: 'FLASHBOOT', networkVolumes: [] },
      }),
    })),
    ...manage({ ...RESOURCES.templates, path: 'templates' }, (dice) => ({
      ...{ name: 'managed', image: 'image:1' },
      ...pickMembers(dice, { serverless: true, category: 'CPU', startSsh: false, disk: 10 }),
    })),
    ...manage({ ...RESOURCES.networkVolumes, path: 'network-volumes' }, (dice) => ({
      ...{ name: 'managed', size: dice.integer(10, 100), dataCenter: 'local' },
    })),
    ...manage({ ...RESOURCES.registries, path: 'registries' }, () => ({
      ...{ name: 'managed', username: 'ci', password: 'secret' },
    })).filter(({ method }) => method !== 'PATCH'),
    ...manage({ ...RESOURCES.pods, path: 'pods' }, (dice) => ({
      ...{ name: 'managed', image: 'image:1', args: dice.pick(HARMLESS_ARGS) },
      ...{ cpu: { id: 'cpu', vcpuCount: 2 } },
    })),
    {
      ...{ method: 'POST', path: `${RUNPOD_BASE}/v2/pods/:pod/action`, mayWait: false },
      compose: () => ({ json: { action: 'restart' } }),
    },
    ...['gpus', 'gpus/:id', 'cpus', 'cpus/:id', 'datacenters', 'datacenters/:id', 'templates'].map(
      (path) => ({
        ...{ method: 'GET', path: `${RUNPOD_BASE}/v2/catalog/${path}`, mayWait: false },
        compose: (dice: Dice): Call => ({
          query: pickSome(dice, [
            ['include', 'AVAILABILITY'],
            ['product', 'POD'],
          ]),
        }),
      }),
    ),
  ];
}

function manage(outline: ResourceOutline, compose: (dice: Dice) => object): FuzzedOperation[] {
  const routes = listResourceRoutes({ ...outline, path: `${RUNPOD_BASE}/v2/${outline.path}` });
  return Object.entries(routes).map(([verb, { method, path }]) => ({
    ...{ method, path, mayWait: false },
    compose(dice): Call {
      if (verb === 'create') return { json: compose(dice) };
      return verb === 'update' ? { json: pickMembers(dice, compose(dice)) } : {};
    },
  }));
}

function pickMembers<T extends object>(dice: Dice, members: T): Partial<T> {
  const some: Partial<T> = {};
  const names = Object.keys(members);
  for (const name of names) {
    // This module created the object, so its keys are exactly these names.
    if (dice.chance(0.6)) Object.assign(some, { [name]: Reflect.get(members, name) });
  }
  return some;
}

function pickSome(dice: Dice, query: Query): Query {
  return query.filter(() => dice.chance(0.5));
}
