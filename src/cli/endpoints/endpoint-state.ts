// The state of an endpoint beside its record: counts of jobs and workers, its pods, and its scaling decisions.
import { type ApiCaller, ApiError, callOf } from '../../client/api-caller.ts';
import { connectEndpoints, connectPods } from '../../client/platform-client.ts';
import type { EndpointOverview, Overview } from '../../wire/resources/activity.ts';
import type { EndpointHealth } from '../../wire/resources/endpoint.ts';
import type { PodRecord } from '../../wire/resources/pod.ts';
import type { DecisionRecord } from '../../wire/resources/scaling.ts';
import { ACTIVITY_ROUTES, JOB_ROUTES } from '../../wire/routes/routes.ts';
import { formatTable } from '../output.ts';

/** The newest pods of the user, among which those of the endpoint are. */
const PODS_READ = 1_000;
const FORBIDDEN = 403;
/** The platform has no engine. */
const CONFLICT = 409;

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

/** Members that the key may not read are undefined. @throws ApiError, UnreachableError */
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

async function readIfAllowed<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    const isDenied = error instanceof ApiError && [FORBIDDEN, CONFLICT].includes(error.status);
    if (isDenied) return undefined;
    throw error;
  }
}

/** One row for each decision. */
export function describeDecisions(decisions: readonly DecisionRecord[], width: number): string {
  const titles = ['TIME', 'DESIRED', 'START', 'DRAIN', 'REASON'];
  const rows = decisions.map(({ at, drain, reason, start, want }) => [
    ...[at, String(want), String(start), String(drain.length), reason],
  ]);
  return formatTable(titles, rows, width);
}

/** One paragraph for each decision, with its inputs. */
export function explainDecisions(decisions: readonly DecisionRecord[]): string {
  return decisions.map(explain).join('\n\n');
}

function explain({ at, cause, drain, input, reason, started, want }: DecisionRecord): string {
  const { crashes, load, places, scaler, workers, workersMax, workersMin } = input;
  const oldest =
    load.oldestQueuedAt === null ? '' : `, the oldest for ${input.now - load.oldestQueuedAt} ms`;
  const facts: [label: string, fact: string | undefined][] = [
    ['load', `${load.waiting} waiting${oldest}; ${load.running} running; recent peak ${load.peak}`],
    ['later GPU', describeOutgrown(load.outgrown)],
    ['workers', describeWorkers(workers)],
    ['limits', `${workersMin} to ${workersMax}, ${describeScaler(scaler)}`],
    ['GPUs', places === null ? undefined : `free for ${places} workers`],
    ['crashes', crashes.streak > 0 ? `${crashes.streak} in a row: ${crashes.reason}` : undefined],
    ['started', started.map(({ gpu, pod }) => (gpu ? `${pod} on ${gpu}` : pod)).join(', ')],
    ['drained', drain.join(', ')],
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
