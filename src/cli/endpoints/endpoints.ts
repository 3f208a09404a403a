// `millrace endpoints`: manages endpoints, shows their state beside the record, and explains their scaling decisions.
import { type ApiCaller, ApiError, callOf } from '../../client/api-caller.ts';
import { connectEndpoints, connectPods } from '../../client/platform-client.ts';
import { connectResources } from '../../client/resource-calls.ts';
import { listStartParts, type StartParts } from '../../wire/job/attempt.ts';
import type { EndpointOverview, Overview } from '../../wire/resources/activity.ts';
import type {
  EndpointHealth,
  EndpointRecord,
  InputSchemaRecord,
} from '../../wire/resources/endpoint.ts';
import { ENDPOINT_FIELDS, SCALER_FIELDS } from '../../wire/resources/fields.ts';
import type { PodRecord } from '../../wire/resources/pod.ts';
import type { DecisionRecord } from '../../wire/resources/scaling.ts';
import type { TemplateRecord } from '../../wire/resources/template.ts';
import { ACTIVITY_ROUTES, JOB_ROUTES } from '../../wire/routes/routes.ts';
import { CommandError, type CommandGroup } from '../command.ts';
import { flag, integer, type OptionValues, UsageError } from '../options.ts';
import { formatTable } from '../output.ts';
import {
  type ApiRequest,
  addCursor,
  confirm,
  defineApiVerb,
  defineResourceVerbs,
  type ListKind,
  pageOptions,
  showList,
  showRecord,
  yesOption,
} from '../resources/resource-command.ts';
import { environmentVerb, webhookSecretVerb } from './endpoint-credentials.ts';

const { perWorker, seconds } = SCALER_FIELDS;
/** Also for `millrace deploy`. */
export const scalerOptions = {
  queueDelay: integer({
    ...{ min: seconds.min, max: seconds.max, placeholder: 'S' },
    help: `scaling: add workers when a job waits longer than this, s; the default of a queue, with ${seconds.default}; or give --per-worker`,
  }),
  perWorker: integer({
    ...{ min: perWorker.min, max: perWorker.max, placeholder: 'N' },
    help: 'scaling: run one worker for each N jobs or requests; the default of a LOAD_BALANCER, with 4; or give --queue-delay',
  }),
};

const scaling = {
  options: scalerOptions,
  compose: (values: ScalerValues) => ({ scaler: composeScaler(values) }),
};

const verbs = defineResourceVerbs({
  name: 'endpoints',
  fields: ENDPOINT_FIELDS,
  columns: columnsOf(new Map()),
  create: {
    ...scaling,
    examples: [
      'millrace endpoints create --name echo --template tpl_01912f4e-… --workers-max 4',
      'millrace endpoints create --name chat --template tpl_… --type LOAD_BALANCER --gpu "NVIDIA L4"',
    ],
  },
  update: {
    ...scaling,
    effect:
      'Another template, another network volume or other GPU types replace the workers; the new ones become ready first.',
    examples: ['millrace endpoints update echo --workers-max 8 --queue-delay 2'],
  },
});

const decisionOptions = {
  ...pageOptions,
  explain: flag({ help: 'print the inputs of each decision' }),
};

/** `millrace deploy` creates the endpoint right after its template, ms. */
const MADE_WITHIN_MS = 60_000;
const FORBIDDEN = 403;
const NOT_FOUND = 404;
const CONFLICT = 409;

const deletionOptions = { yes: yesOption };

const deletionVerb = defineApiVerb({
  summary: 'deletes one endpoint with its workers, jobs and logs',
  description: [
    'Also deletes the template that `millrace deploy` made for the endpoint, unless another endpoint uses it.',
  ],
  id: 'endpoint ID or name',
  options: deletionOptions,
  examples: ['millrace endpoints delete echo', 'millrace endpoints delete echo --yes'],
  act: deleteEndpoint,
});

export const endpointsCommands: CommandGroup = {
  name: 'millrace endpoints',
  description: [
    'An endpoint has a queue of jobs, or balances requests, and scales its workers.',
    '`endpoints create` generates an ID (ep_…). Commands, URLs and scopes of keys take the ID, or the name if it is a ' +
      'DNS label and no other endpoint of yours has it. `serve --endpoint echo` and `dev` declare endpoints whose ID ' +
      'you choose.',
  ],
  verbs: {
    ...verbs,
    list: defineApiVerb({
      summary: 'lists your endpoints, newest first, with their states',
      options: pageOptions,
      examples: ['millrace endpoints list', 'millrace endpoints list --json | jq .endpoints[].id'],
      act: listEndpoints,
    }),
    show: defineApiVerb({
      summary: 'prints one endpoint with its state, jobs, workers, pods, last scaling decision',
      description: [
        'The record says what the endpoint should be, and `live` what it is now. A part of `live` that the key may not ' +
          'read is left out.',
      ],
      id: 'endpoint ID or name',
      options: {},
      examples: [
        'millrace endpoints show echo',
        'millrace endpoints show echo --json | jq .live.jobs',
      ],
      act: async ({ caller, id, json }) => {
        const record = await connectEndpoints(caller).get(id);
        return showRecord({ ...record, live: await readState(caller, record.id) }, json);
      },
    }),
    delete: deletionVerb,
    scaler: defineApiVerb({
      summary: 'prints the last scaling decisions and their reasons',
      id: 'endpoint ID or name',
      options: decisionOptions,
      examples: ['millrace endpoints scaler ep_01912f4e-… --explain --limit 5'],
      act: showDecisions,
    }),
    schema: defineApiVerb({
      summary: 'prints the JSON Schema of the inputs that an endpoint accepts',
      description: [
        'Workers tell the platform the schema of their handler. See docs/handlers.md on how a handler gets one.',
      ],
      id: 'endpoint ID or name',
      options: {},
      examples: [
        'millrace endpoints schema echo',
        'millrace endpoints schema echo --json | jq .schema',
      ],
      act: showInputSchema,
    }),
    env: environmentVerb,
    'webhook-secret': webhookSecretVerb,
  },
  examples: [
    'millrace endpoints create --name echo --template tpl_01912f4e-… --workers-max 4',
    'millrace endpoints scaler ep_01912f4e-… --explain --limit 5',
    'MILLRACE_KEY=mr_… millrace endpoints env image --runpod --url https://q.example.com > worker.env',
  ],
};

/** `states`: by ID. */
function columnsOf(states: ReadonlyMap<string, string>): ListKind<EndpointRecord>['columns'] {
  return {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    TYPE: ({ type }) => type,
    STATE: ({ id }) => states.get(id) ?? '',
    WORKERS: ({ workersMax, workersMin }) => `${workersMin} to ${workersMax}`,
    SCALING: ({ scaler }) =>
      scaler.type === 'QUEUE_DELAY'
        ? `queue delay ${scaler.seconds} s`
        : `1 worker per ${scaler.perWorker}`,
    GPUS: ({ gpuTypeIds }) => gpuTypeIds.join(','),
    TEMPLATE: ({ templateId }) => templateId ?? '',
  };
}

async function listEndpoints(request: ApiRequest<typeof pageOptions>): Promise<string> {
  const { caller, json } = request;
  const columns = columnsOf(json ? new Map() : await readStates(caller));
  return showList(connectEndpoints(caller), { plural: 'endpoints', columns }, request);
}

async function showDecisions(request: ApiRequest<typeof decisionOptions>): Promise<string> {
  const { caller, id, json, values, width } = request;
  const { cursor, explain, limit } = values;
  const page = await connectEndpoints(caller).decisions(id).page({ cursor, limit });
  const { items: decisions, ...rest } = page;
  if (json) return JSON.stringify({ decisions, ...rest });
  if (decisions.length === 0) return 'no decisions';
  const shown = explain
    ? explainDecisions(decisions, await readStarts(caller, decisions))
    : describeDecisions(decisions, width);
  return addCursor(shown, page.cursor);
}

/** Where the time of the workers' starts went, by pod. */
type Starts = ReadonlyMap<string, StartParts>;

/** Without those of pods that are no longer known. @throws ApiError, UnreachableError */
async function readStarts(
  caller: ApiCaller,
  decisions: readonly DecisionRecord[],
): Promise<Starts> {
  const wanted = new Set(decisions.flatMap(({ started }) => started.map(({ pod }) => pod)));
  if (wanted.size === 0) return new Map();
  const page = await readIfAllowed(() => connectPods(caller).page({ limit: PODS_READ }));
  return new Map(
    page?.items.flatMap(({ id, timeline = [] }) => {
      const parts = timeline.find(({ event }) => event === 'started')?.parts;
      return parts && wanted.has(id) ? [[id, parts] as const] : [];
    }),
  );
}

async function showInputSchema({
  caller,
  id,
  json,
}: Pick<ApiRequest<never>, 'caller' | 'id' | 'json'>): Promise<string> {
  const call = callOf(JOB_ROUTES.getInputSchema, { endpoint: id });
  const record = await caller.json<InputSchemaRecord>(call);
  if (json) return JSON.stringify(record);
  if (record.schema) return JSON.stringify(record.schema, null, 2);
  throw new CommandError(
    `no input schema of endpoint ${id} is known: its workers have sent none. Give its handler an \`input\` schema of zod 4, or \`inputSchema\``,
  );
}

/** The newest pods of the user, among which those of the endpoint are. */
const PODS_READ = 1_000;

/** Members that the key may not read are undefined. */
interface EndpointState {
  /** Same state as in the overview and the console. */
  state: EndpointOverview['state'] | undefined;
  jobs: EndpointHealth['jobs'] | undefined;
  workers: EndpointHealth['workers'] | undefined;
  /** Those of its workers that are not TERMINATED, the newest first. */
  pods: Pick<PodRecord, 'id' | 'status' | 'reason'>[] | undefined;
  /** Null without one. */
  lastDecision: { at: string; want: number; reason: string } | null | undefined;
}

/** @throws ApiError, UnreachableError */
export async function readState(caller: ApiCaller, endpoint: string): Promise<EndpointState> {
  const health = callOf(JOB_ROUTES.getEndpointHealth, { endpoint });
  const activity = callOf(ACTIVITY_ROUTES.getEndpointActivity, { endpoint });
  const [now, counts, pods, decisions] = await Promise.all([
    readIfAllowed(() => caller.json<EndpointOverview>(activity)),
    readIfAllowed(() => caller.json<EndpointHealth>(health)),
    readIfAllowed(() => connectPods(caller).page({ limit: PODS_READ })),
    readIfAllowed(() => connectEndpoints(caller).decisions(endpoint).page({ limit: 1 })),
  ]);
  const own = pods?.items.filter(
    (pod) => pod.endpointId === endpoint && pod.status !== 'TERMINATED',
  );
  const [last] = decisions?.items ?? [];
  return {
    state: now?.state,
    jobs: counts?.jobs,
    workers: counts?.workers,
    pods: own?.map(({ id, reason, status }) => ({ id, status, reason })),
    lastDecision: last ? { at: last.at, want: last.want, reason: last.reason } : decisions && null,
  };
}

/** By ID, in one word. Empty if the key may not read them. @throws ApiError, UnreachableError */
export async function readStates(
  caller: ApiCaller,
): Promise<ReadonlyMap<string, EndpointOverview['state']>> {
  const read = () => caller.json<Overview>(callOf(ACTIVITY_ROUTES.getOverview, {}));
  const { endpoints = [] } = (await readIfAllowed(read)) ?? {};
  return new Map(endpoints.map(({ id, state }) => [id, state]));
}

/** Undefined if the key may not read it, or the platform has no engine. */
function readIfAllowed<T>(read: () => Promise<T>): Promise<T | undefined> {
  return ignoring([FORBIDDEN, CONFLICT], read);
}

/** One row for each decision. */
export function describeDecisions(decisions: readonly DecisionRecord[], width: number): string {
  const titles = ['TIME', 'DESIRED', 'START', 'DRAIN', 'REASON'];
  const rows = decisions.map(({ at, drain, reason, start, startSpares = 0, want }) => [
    ...[at, String(want), String(start + startSpares), String(drain.length), reason],
  ]);
  return formatTable(titles, rows, width);
}

/** One paragraph for each decision, with its inputs. */
export function explainDecisions(
  decisions: readonly DecisionRecord[],
  starts: Starts = new Map(),
): string {
  return decisions.map((decision) => explain(decision, starts)).join('\n\n');
}

function explain(decision: DecisionRecord, starts: Starts): string {
  const { at, cause, drain, input, park = [], reason, started, wake = [], want } = decision;
  const { spares } = input;
  const { resume = [], suspend = [] } = decision;
  const { crashes, load, places, scaler, workers, workersMax, workersMin } = input;
  const { raisedUntil } = input;
  const oldest =
    load.oldestQueuedAt === null ? '' : `, the oldest for ${input.now - load.oldestQueuedAt} ms`;
  const facts: [label: string, fact: string | undefined][] = [
    ['load', `${load.waiting} waiting${oldest}; ${load.running} running; recent peak ${load.peak}`],
    ['later GPU', describeOutgrown(load.outgrown)],
    ['workers', describeWorkers(workers)],
    ['limits', `${workersMin} to ${workersMax}, ${describeScaler(scaler)}`],
    [
      'schedule',
      raisedUntil === undefined
        ? undefined
        : `raises the minimum until ${new Date(raisedUntil).toISOString()}`,
    ],
    ['GPUs', places === null ? undefined : `free for ${places} workers`],
    ['spares', spares && `${spares.count} wanted${spares.obstacle ? `; ${spares.obstacle}` : ''}`],
    ['gives way', describeGivingWay(input)],
    ['preempted', describePreempted(input)],
    ['crashes', crashes.streak > 0 ? `${crashes.streak} in a row: ${crashes.reason}` : undefined],
    ['started', started.map(({ gpu, pod }) => (gpu ? `${pod} on ${gpu}` : pod)).join(', ')],
    ...started.map(({ pod }): [string, string] => ['took', describeStart(pod, starts)]),
    ['drained', drain.join(', ')],
    ['parked', park.join(', ')],
    ['woken', wake.join(', ')],
    ['suspended', suspend.join(', ')],
    ['resumed', resume.join(', ')],
  ];
  const lines = facts.flatMap(([label, fact]) => (fact ? [`  ${label.padEnd(10)}${fact}`] : []));
  return [`${at}  ${want} wanted (${cause}): ${reason}`, ...lines].join('\n');
}

function describeOutgrown(
  outgrown: DecisionRecord['input']['load']['outgrown'] = [],
): string | undefined {
  const jobs = outgrown.map(({ gpuType, waiting }) => `${waiting} ran out of memory on ${gpuType}`);
  return jobs.length === 0 ? undefined : jobs.join(', ');
}

/** `pod_1 10.5 s: queue 0.4 s, import 3 s, …`; empty if its start was not measured. */
function describeStart(pod: string, starts: Starts): string {
  const parts = listStartParts(starts.get(pod) ?? {});
  if (parts.length === 0) return '';
  const sum = parts.reduce((total, { ms }) => total + ms, 0);
  const each = parts.map(({ ms, name }) => `${name} ${ms / 1_000} s`);
  return `${pod} ${sum / 1_000} s: ${each.join(', ')}`;
}

function describeGivingWay({ giveWay = [], now }: DecisionRecord['input']): string | undefined {
  const workers = giveWay.map(({ isTurnOver, since, to, worker }) => {
    const whose = to === null ? 'an endpoint of another user' : `endpoint ${to}`;
    const why = isTurnOver ? 'its turn is over' : 'idle';
    return `${worker} (${why}) to ${whose}, which has waited for ${now - since} ms`;
  });
  return workers.length === 0 ? undefined : workers.join(', ');
}

function describePreempted({ now, preempted = [] }: DecisionRecord['input']): string | undefined {
  const workers = preempted.map(({ priority, since, to, worker }) => {
    return `${worker} by a job of priority ${priority} of endpoint ${to}, which has waited for ${now - since} ms`;
  });
  return workers.length === 0 ? undefined : workers.join(', ');
}

function describeWorkers(workers: DecisionRecord['input']['workers']): string {
  const states = Map.groupBy(workers, ({ state }) => state);
  const counts = [...states].map(([state, those]) => `${those.length} ${state}`);
  const old = workers.filter(({ isCurrent }) => !isCurrent).length;
  return [...counts, ...(old > 0 ? [`${old} to be replaced`] : [])].join(', ') || 'none';
}

function describeScaler(scaler: DecisionRecord['input']['scaler']): string {
  return scaler.type === 'QUEUE_DELAY'
    ? `add one when a job waits for ${scaler.seconds} s`
    : `one per ${scaler.perWorker} jobs or requests`;
}

type ScalerValues = OptionValues<typeof scalerOptions>;

/** @throws UsageError */
export function composeScaler({
  perWorker,
  queueDelay: seconds,
}: ScalerValues): object | undefined {
  if (perWorker === undefined) {
    return seconds === undefined ? undefined : { type: 'QUEUE_DELAY', seconds };
  }
  if (seconds === undefined) return { type: 'REQUEST_COUNT', perWorker };
  throw new UsageError('--queue-delay and --per-worker exclude each other; give one');
}

async function deleteEndpoint(request: ApiRequest<typeof deletionOptions>): Promise<string> {
  const { caller, id, json, values } = request;
  const template = await findOwnTemplate(caller, id);
  const also = template ? `, and the template ${template.name} that deploy made for it` : '';
  await confirm(`Delete endpoint ${id} with its workers, jobs and logs${also}?`, values);
  await connectEndpoints(caller).delete(id);
  const removed = template && (await removeTemplate(caller, template.id)) ? template.id : undefined;
  if (json) {
    return JSON.stringify({ id, deleted: true, ...(removed && { templateId: removed }) });
  }
  return removed ? `${id}  deleted\n${removed}  deleted` : `${id}  deleted`;
}

/** Undefined if a person made the template, or if the key cannot read it: then it stays. */
async function findOwnTemplate(caller: ApiCaller, id: string): Promise<TemplateRecord | undefined> {
  const endpoint = await ignoring([FORBIDDEN], () => connectEndpoints(caller).get(id));
  const { templateId } = endpoint ?? {};
  if (!endpoint || !templateId) return undefined;
  const template = await ignoring([FORBIDDEN, NOT_FOUND], () =>
    connectResources(caller, 'templates').get(templateId),
  );
  return template && isMadeByDeploy(endpoint, template) ? template : undefined;
}

function isMadeByDeploy(endpoint: EndpointRecord, template: TemplateRecord): boolean {
  const afterMs = Date.parse(endpoint.createdAt) - Date.parse(template.createdAt);
  return (
    endpoint.source === 'VERSION' &&
    template.name === endpoint.name &&
    template.handler === null &&
    afterMs >= 0 &&
    afterMs <= MADE_WITHIN_MS
  );
}

async function removeTemplate(caller: ApiCaller, id: string): Promise<boolean> {
  const removed = await ignoring([FORBIDDEN, NOT_FOUND, CONFLICT], async () => {
    await connectResources(caller, 'templates').delete(id);
    return true;
  });
  return removed ?? false;
}

async function ignoring<T>(
  statuses: readonly number[],
  call: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof ApiError && statuses.includes(error.status)) return undefined;
    throw error;
  }
}
