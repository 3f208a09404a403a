// Says why a job waits: the reason follows from facts about its endpoint, its group, workers and GPUs.
import { isOpen, isWaiting, NO_GROUP, type StoredJob } from '../store/store.ts';
import { numberAttempt } from '../wire/job/job.ts';
import type { WaitReason } from '../wire/job/job-records.ts';
import type { EndpointSettings } from '../wire/resources/endpoint.ts';
import type { RateLimit } from '../wire/resources/field.ts';
import type { Pause } from '../wire/resources/pause.ts';
import type { KnownScaling, ScalingFacts } from '../wire/resources/scaling.ts';
import { isHeldBack, type Presence } from './leases/presence.ts';
import { nameChild } from './lifecycle/handler-wait.ts';
import { nameParent } from './lifecycle/links.ts';
import type { SharedHold } from './limits/shared/shared-limits.ts';
import type { QueueParts } from './queue-parts.ts';

/** Status reads are frequent: the workers of an endpoint are counted once in this time, ms. */
const COUNTED_MS = 200;
/** Endpoints whose counts are kept. */
const MAX_COUNTED = 1_000;

/** The scaler's view of an endpoint's workers. Never rejects. */
export type FindScaling = (endpointId: string) => KnownScaling | Promise<KnownScaling>;

type WaitsOptions = Pick<
  QueueParts,
  'clock' | 'findScaling' | 'pauses' | 'presence' | 'rates' | 'settings' | 'sharedLimits'
>;

export class Waits {
  readonly #options: WaitsOptions;
  readonly #counted = new Map<string, { at: number; workers: WorkerFacts }>();

  constructor(options: WaitsOptions) {
    this.#options = options;
  }

  /** Of a job that is IN_QUEUE. */
  async describe(
    job: StoredJob,
    facts: Pick<WaitFacts, 'group' | 'laterGpus' | 'rates'> = { group: undefined },
  ): Promise<WaitReason> {
    const { clock, findScaling } = this.#options;
    const { laterGpus } = facts;
    const paused = this.#findPause(job);
    const rate = facts.rates && this.#findRate(job, facts.rates);
    const shared = facts.rates && this.#options.sharedLimits.explain(job, facts.rates.limits);
    const scaling = await findScaling(job.endpointId);
    const workers = laterGpus
      ? this.#countOfTypes(job.endpointId, laterGpus.types)
      : this.#countWorkers(job.endpointId);
    return describeWait(job, { workers, scaling, paused, rate, shared, ...facts }, clock.now());
  }

  #findRate(
    { endpointId, group }: StoredJob,
    { groupRateLimit, rateLimit }: NonNullable<WaitFacts['rates']>,
  ): WaitFacts['rate'] {
    const { rates } = this.#options;
    const at = rateLimit ? rates.freeAt(endpointId, null, rateLimit) : undefined;
    if (rateLimit && at !== undefined) return { limit: rateLimit, until: at, ofGroup: false };
    if (!groupRateLimit || group === null) return undefined;
    const until = rates.freeAt(endpointId, group, groupRateLimit);
    return until === undefined ? undefined : { limit: groupRateLimit, until, ofGroup: true };
  }

  #findPause({ endpointId, group }: StoredJob): Pause | undefined {
    const { pauses } = this.#options;
    const ofAll = pauses.find({ endpointId, group: null });
    return ofAll ?? pauses.find({ endpointId, group: group ?? NO_GROUP });
  }

  #countOfTypes(endpointId: string, types: readonly string[]): WorkerFacts {
    const { clock, presence, settings } = this.#options;
    const able = [...presence.ofEndpoint(endpointId)].filter(
      ({ gpuType }) => gpuType !== null && types.includes(gpuType),
    );
    return countWorkers(able, clock.now() - settings.leaseMs);
  }

  #countWorkers(endpointId: string): WorkerFacts {
    const { clock, presence, settings } = this.#options;
    const now = clock.now();
    const known = this.#counted.get(endpointId);
    if (known && now - known.at >= 0 && now - known.at < COUNTED_MS) return known.workers;
    if (this.#counted.size >= MAX_COUNTED) this.#counted.clear();
    const workers = countWorkers(presence.ofEndpoint(endpointId), now - settings.leaseMs);
    this.#counted.set(endpointId, { at: now, workers });
    return workers;
  }
}

type SeenWorker = Pick<
  NonNullable<ReturnType<Presence['find']>>,
  'draining' | 'leases' | 'seenAt' | 'slots'
> &
  Parameters<typeof isHeldBack>[0];

export function countWorkers(all: Iterable<SeenWorker>, aliveSince: number): WorkerFacts {
  const facts: WorkerFacts = {
    ...{ alive: 0, freeSlots: 0, empty: 0, draining: 0, parked: 0, suspended: 0 },
    silentSince: null,
  };
  for (const worker of all) {
    const { draining, leases, seenAt, slots } = worker;
    if (isHeldBack(worker)) {
      if (seenAt < aliveSince || worker.parking?.state === 'waking') continue;
      facts.parked++;
      if (worker.parking?.suspended) facts.suspended++;
      continue;
    }
    if (seenAt < aliveSince) facts.silentSince = Math.max(facts.silentSince ?? 0, seenAt);
    else if (draining) facts.draining++;
    else {
      facts.alive++;
      if (leases.size === 0) facts.empty++;
      const isAlone = [...leases.values()].some(({ solo }) => solo);
      if (!isAlone) facts.freeSlots += Math.max(0, slots - leases.size);
    }
  }
  return facts;
}

/** The workers of an endpoint as its queue sees them. */
export interface WorkerFacts {
  /** Workers that called within a lease and do not drain. */
  alive: number;
  /** Slots of these that no job has. */
  freeSlots: number;
  /** Number of these without any job. */
  empty: number;
  /** Workers that called within a lease and drain. */
  draining: number;
  /** Workers that called within a lease and are parked, or are about to be. */
  parked: number;
  /** Those of the parked ones whose jobs stand still. */
  suspended: number;
  /** Last call of the workers that are silent for longer than a lease, Unix ms; null without one. */
  silentSince: number | null;
}

export interface WaitFacts {
  workers: WorkerFacts;
  scaling: KnownScaling;
  /** The pause of the endpoint, or else of the job's group. Default: none holds. */
  paused?: Pause | undefined;
  /** What the endpoint limits. Default: nothing. */
  rates?: Pick<EndpointSettings, 'groupRateLimit' | 'limits' | 'rateLimit'> | undefined;
  /** The rate limit that holds the job back. Default: none does. */
  rate?: { limit: RateLimit; until: number; ofGroup: boolean } | undefined;
  /** The shared limit that holds the job back. Default: none does. */
  shared?: SharedHold | undefined;
  /** Undefined if the job has no group, or groups have no limit. */
  group: { limit: number; leases: number } | undefined;
  /** Undefined if any worker may take the job. Otherwise `workers` are those of the later types. */
  laterGpus?: LaterGpus | undefined;
}

/** The GPU type on which the job ran out of memory, and the endpoint's types after it. */
export interface LaterGpus {
  outgrown: string;
  types: readonly string[];
}

/** Why a job that is IN_QUEUE waits. The first reason that holds is the one that the caller can act on. */
export function describeWait(job: StoredJob, facts: WaitFacts, now: number): WaitReason {
  const reason = findJobReason(job, facts, now) ?? findEndpointReason(job.endpointId, facts, now);
  if (reason.since === undefined) return reason;
  // The cause may be older than the job's wait.
  return { ...reason, since: Math.max(reason.since, job.submittedAt) };
}

function findJobReason(
  job: StoredJob,
  { group, laterGpus, paused, rate, scaling, shared, workers }: WaitFacts,
  now: number,
): WaitReason | undefined {
  if (isWaiting(job)) return job.links?.wait ? describeChildren(job) : describeParents(job);
  if (job.delayed && job.availableAt > now) return describeDelay(job);
  if (paused) return describePause(paused);
  if (rate) return describeRate(job, rate);
  if (shared) return describeShared(job, shared);
  if (group && group.leases >= group.limit) {
    const message = `Group ${job.group} has ${count(group.leases, 'running job')}, and groupConcurrency of the endpoint is ${group.limit}.`;
    return { code: 'group_at_limit', message };
  }
  if (laterGpus && workers.alive === 0) {
    const { outgrown, types } = laterGpus;
    const scaler = typeof scaling === 'object' ? ` Scaler: ${endSentence(scaling.reason)}` : '';
    const message = `The job ran out of memory on ${outgrown} and needs a worker of a later GPU type of the endpoint (${types.join(', ')}). None is connected.${scaler}`;
    return { code: 'later_gpu_type', message, since: job.queuedAt };
  }
  if (job.solo && workers.alive > 0 && workers.empty === 0) {
    const message =
      'The job runs alone, because an earlier attempt ended its process or ran out of memory. A worker must finish its other jobs first.';
    return { code: 'runs_alone', message, since: job.queuedAt };
  }
  return undefined;
}

function describeParents(job: StoredJob): WaitReason {
  const parents = job.links?.parents ?? [];
  if (job.links?.filling) {
    const message =
      'The parents of the job have ended; their outputs are being put into its input.';
    return { code: 'waits_for_parent', message, since: job.submittedAt };
  }
  if (job.links?.held) {
    const message = 'The flow of the job is being added: it has jobs in other shards.';
    return { code: 'waits_for_parent', message, since: job.submittedAt };
  }
  const [first, ...others] = parents.filter(isOpen);
  const rest = others.length > 0 ? ` and ${count(others.length, 'other parent')}` : '';
  const all =
    parents.length > 1
      ? `; ${parents.length - others.length - 1} of ${parents.length} have ended`
      : '';
  const message = `The job waits for the end of job ${first && nameParent(job, first)}${rest}${all}.`;
  return { code: 'waits_for_parent', message, since: job.submittedAt };
}

function describeChildren(job: StoredJob): WaitReason {
  const code = 'waits_for_child';
  const since = job.links?.wait?.since ?? job.queuedAt;
  if (job.links?.filling) {
    const message = 'The children of the job have ended; the job is being given their outputs.';
    return { code, message, since };
  }
  const children = job.links?.parents.filter(({ step }) => step) ?? [];
  const [first, ...others] = children.filter(isOpen);
  const rest =
    others.length > 0 ? ` and ${count(others.length, 'other child', 'other children')}` : '';
  const all =
    children.length > 1
      ? `; ${children.length - others.length - 1} of ${children.length} have ended`
      : '';
  const message = `The handler of the job waits for the end of child ${nameChild(first)}, job ${first && nameParent(job, first)}${rest}${all}.`;
  return { code, message, since };
}

function describePause({ group, reason, since, until }: Pause): WaitReason {
  const what =
    group === null
      ? 'The endpoint is'
      : group === NO_GROUP
        ? 'Jobs without a group are'
        : `Group ${group} is`;
  const end = until === null ? 'until someone resumes it' : `until ${isoTime(until)}`;
  const message = `${what} paused ${end}${reason === null ? '.' : `: ${endSentence(reason)}`}`;
  const code = group === null ? 'paused' : 'group_paused';
  return { code, message, since, ...(until !== null && { until }) };
}

function describeRate(
  { group }: StoredJob,
  { limit, ofGroup, until }: NonNullable<WaitFacts['rate']>,
): WaitReason {
  const { max, perMs } = limit;
  const whose = ofGroup ? `group ${group} (groupRateLimit)` : 'the endpoint (rateLimit)';
  const message = `${count(max, 'job')} of ${whose} started in the last ${describeLength(perMs)}, the most that may; the next one may at ${isoTime(until)}.`;
  return { code: 'rate_limited', message, until };
}

function describeShared({ group }: StoredJob, { isPaused, limit, until }: SharedHold): WaitReason {
  const { concurrency, key, name, rateLimit } = limit;
  const whose = key === null ? '' : ` for group ${group}`;
  const next = until === undefined ? '' : ` until ${isoTime(until)}`;
  const terms = [
    ...(rateLimit
      ? [`${count(rateLimit.max, 'start')} in ${describeLength(rateLimit.perMs)}`]
      : []),
    ...(concurrency === null ? [] : [`${count(concurrency, 'running job')}`]),
  ];
  const message = isPaused
    ? `A handler has paused the shared limit ${name}${whose}${next}.`
    : `The shared limit ${name} (${terms.join(' and ')} over all its endpoints${key === null ? '' : ', for each group'}) is used up${whose}${next}.`;
  return { code: 'shared_limit', message, ...(until !== undefined && { until }) };
}

function describeLength(ms: number): string {
  return ms % 1_000 === 0 ? `${ms / 1_000} s` : `${ms} ms`;
}

function describeDelay(job: StoredJob) {
  const {
    attempt,
    availableAt: until,
    failures,
    history,
    links,
    notes,
    queuedAt,
    submittedAt,
  } = job;
  if (links?.wait) {
    const message = `The handler of the job sleeps until ${isoTime(until)}.`;
    return { code: 'sleeping', message, since: links.wait.since, until } as const;
  }
  const postponed = notes.find((note) => note.event === 'postponed' && note.attempt === attempt);
  if (postponed) {
    const message = `Attempt ${attempt} asked for a later one: ${endSentence(postponed.message ?? '')} It starts at ${isoTime(until)} at the earliest.`;
    return { code: 'backing_off', message, since: queuedAt, until } as const;
  }
  const last = history.at(-1);
  if (failures === 0 || !last) {
    const message = `The job was submitted with a delay and starts at ${isoTime(until)} at the earliest.`;
    return { code: 'delayed', message, since: submittedAt, until } as const;
  }
  const message = `Attempt ${numberAttempt(last)} failed with ${last.code}: ${endSentence(last.message)} The next attempt starts at ${isoTime(until)} at the earliest.`;
  return { code: 'backing_off', message, since: queuedAt, until } as const;
}

function findEndpointReason(endpointId: string, facts: WaitFacts, now: number): WaitReason {
  const { scaling, workers } = facts;
  if (workers.freeSlots > 0) {
    const message = `${count(workers.alive, 'worker')} connected, ${count(workers.freeSlots, 'slot')} free: the job starts in its turn.`;
    return { code: 'worker_ready', message };
  }
  if (typeof scaling === 'object') return explainScaling(scaling, workers, now);
  if (workers.alive > 0) return describeBusy(workers);
  return describeAbsence(endpointId, facts);
}

function describeBusy(workers: WorkerFacts): WaitReason {
  return { code: 'workers_busy', message: `${tellBusy(workers)}.` };
}

function describeAbsence(endpointId: string, { scaling, workers }: WaitFacts): WaitReason {
  const { draining, silentSince } = workers;
  const remedy =
    scaling === 'none'
      ? ` Start one: millrace worker <handler> --endpoint ${endpointId}.`
      : ' The scaler has not decided yet.';
  if (draining > 0) {
    const message = `No worker takes jobs: ${count(draining, 'connected worker')} draining.${remedy}`;
    return { code: 'no_worker', message };
  }
  if (silentSince === null) {
    return { code: 'no_worker', message: `No worker is connected.${remedy}` };
  }
  const message = `No worker is connected; the last call came at ${isoTime(silentSince)}.${remedy}`;
  return { code: 'no_worker', message, since: silentSince };
}

/** No worker has a free slot. */
function explainScaling(scaling: ScalingFacts, workers: WorkerFacts, now: number): WaitReason {
  const { cause, since, starting, workersMax } = scaling;
  const reason = `${capitalize(scaling.reason)}.`;
  if (scaling.unversioned) return describeMissingVersion(scaling, now);
  if (workersMax === 0) {
    const message = 'The endpoint is switched off: workersMax is 0.';
    return { code: 'at_maximum', message, since };
  }
  if (scaling.crashes.streak > 0 && workers.alive === 0) return describeCrashes(scaling, now);
  if (cause === 'no_gpu' && scaling.holder) return describeHolder(scaling, scaling.holder);
  if (cause === 'no_gpu' || cause === 'no_capacity' || cause === 'budget') {
    return { code: cause, message: reason, since };
  }
  if (starting) return describeStart(starting, now);
  if (scaling.workers >= workersMax) {
    const busy = workers.alive > 0 ? tellBusy(workers) : 'No worker takes jobs';
    const ends = workers.draining > 0 ? `, ${workers.draining} of them draining` : '';
    const message = `${busy}. The endpoint has ${count(scaling.workers, 'worker')}${ends}; workersMax is ${workersMax}.`;
    return { code: 'at_maximum', message, since };
  }
  if (workers.alive + workers.suspended > 0) {
    return { code: 'workers_busy', message: `${tellBusy(workers)}. Scaler: ${scaling.reason}.` };
  }
  // The last decision was made before the job came.
  const isNew = (cause === 'enough' || cause === 'no_spare') && scaling.workers === 0;
  const next = isNew ? '; one is about to start' : `. Scaler: ${scaling.reason}`;
  return { code: 'no_worker', message: `No worker is connected${next}.` };
}

function describeHolder(
  { reason, since }: ScalingFacts,
  holder: NonNullable<ScalingFacts['holder']>,
): WaitReason {
  const { until } = holder;
  const message = `${capitalize(reason)}. ${tellHolder(holder)}.`;
  return { code: 'no_gpu', message, since, ...(until !== null && { until }) };
}

function tellHolder({ endpoint, state, until }: NonNullable<ScalingFacts['holder']>): string {
  if (state === 'pod') {
    return `${endpoint === null ? 'A pod of another user' : `Pod ${endpoint}`} holds one, and pods give way to nobody`;
  }
  const whose = endpoint === null ? 'an endpoint of another user' : `endpoint ${endpoint}`;
  if (state === 'leaving')
    return `A worker of ${whose} gives one up as soon as its jobs have ended`;
  if (state === 'suspending') {
    return `Running jobs of ${whose} are being suspended, and urgent jobs get their GPU`;
  }
  if (state === 'starting') return `A worker of ${whose} has one and is starting`;
  if (state === 'sharing') {
    const who = endpoint === null ? 'that user' : 'that endpoint';
    return `A busy worker of ${whose} holds one; ${who} has no more than its share of the GPUs`;
  }
  const who = state === 'idle' ? 'An idle worker' : 'A busy worker';
  if (until === null) {
    return `${who} of ${whose} holds one and keeps it, because workersMin of that endpoint is above 0 and yields is off`;
  }
  if (state === 'idle') return `${who} of ${whose} holds one until ${isoTime(until)}`;
  return `${who} of ${whose} holds one; its turn ends at ${isoTime(until)}, and then it finishes its jobs`;
}

function describeMissingVersion(
  { since, starting, unversioned }: ScalingFacts,
  now: number,
): WaitReason {
  const rollout = unversioned?.rollout;
  if (!rollout) {
    const message = 'No version of the handler is deployed, so no worker starts. Deploy one.';
    return { code: 'no_version', message, since };
  }
  const { isFailed, reason, version } = rollout;
  if (isFailed) {
    const message = `Version ${version} of the handler did not load, and no other one is deployed: ${endSentence(reason ?? 'reason unknown')}`;
    return { code: 'handler_not_loaded', message, since };
  }
  if (starting) return describeStart(starting, now);
  const detail =
    reason === null ? 'Its first worker starts soon.' : endSentence(capitalize(reason));
  return { code: 'no_version', message: `Version ${version} is being deployed. ${detail}`, since };
}

function describeCrashes({ crashes, since }: ScalingFacts, now: number): WaitReason {
  const { isHandler, notBefore, reason, streak } = crashes;
  const what = isHandler ? 'could not load the handler' : 'failed before it was ready';
  const who = streak === 1 ? 'A worker' : `${streak} workers in a row; the last one`;
  const message = `${who} ${what}: ${endSentence(reason ?? 'reason unknown')} ${describeRetry(notBefore, now)}`;
  const code = isHandler ? 'handler_not_loaded' : 'crashed';
  return {
    code,
    message,
    since,
    ...(notBefore !== null && notBefore > now && { until: notBefore }),
  };
}

function describeRetry(notBefore: number | null, now: number): string {
  if (notBefore === null) return 'The next one starts when the handler changes.';
  if (notBefore <= now) return 'The next one is being tried.';
  return `The next one starts at ${isoTime(notBefore)} at the earliest.`;
}

function describeStart(
  { isPulling, isWaking, lacksRoom, reason, since }: NonNullable<ScalingFacts['starting']>,
  now: number,
): WaitReason {
  if (isWaking) {
    return {
      code: 'worker_starting',
      message: 'A parked worker is waking: its model returns to the GPU.',
    };
  }
  const detail = reason === null ? '' : `: ${reason}`;
  const message = `A worker is starting (${describeSpan(now - since)} so far)${detail}.`;
  if (lacksRoom) return { code: 'no_capacity', message, since };
  return { code: isPulling ? 'image_pull' : 'worker_starting', message, since };
}

function tellBusy({ alive, suspended }: WorkerFacts): string {
  if (alive === 0) {
    const [verb, whose] = suspended === 1 ? ['is', 'its GPU'] : ['are', 'their GPUs'];
    return `${count(suspended, 'worker')} ${verb} suspended: urgent jobs of other endpoints have ${whose}`;
  }
  return alive === 1 ? 'The only worker runs other jobs' : `All ${alive} workers run other jobs`;
}

function count(number: number, noun: string, nouns = `${noun}s`): string {
  return `${number} ${number === 1 ? noun : nouns}`;
}

function describeSpan(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  return seconds < 120 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`;
}

function endSentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function isoTime(at: number): string {
  return new Date(at).toISOString();
}
