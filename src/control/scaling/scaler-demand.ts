// What a load requires of an endpoint's workers: the workers by state, the number of them, and the order in which
// they are drained. And the sentence that explains a decision, with the numbers that led to it.
import type { ScaledWorker, ScalerCause, ScalerInput } from '../../wire/resources/scaling.ts';

/** The number of workers that the load alone requires. */
export interface Demand {
  /** Workers. */
  need: number;
  cause: ScalerCause;
}

/** The workers as the rules see them. */
export interface WorkerGroups {
  /** All except draining, parked and suspended workers. */
  alive: readonly ScaledWorker[];
  starting: readonly ScaledWorker[];
  busy: readonly ScaledWorker[];
  /** Alive, with the endpoint's current template and GPU types. */
  current: readonly ScaledWorker[];
  /** Alive, but with an old template or GPU type: due for replacement. */
  stale: readonly ScaledWorker[];
  draining: readonly ScaledWorker[];
  /** The oldest first. */
  parked: readonly ScaledWorker[];
}

export function groupWorkers(workers: readonly ScaledWorker[]): WorkerGroups {
  const alive = workers.filter(({ state }) => state === 'starting' || state === 'ready');
  const parked = workers.filter(({ state }) => state === 'parked');
  return {
    alive,
    starting: alive.filter(({ state }) => state === 'starting'),
    busy: alive.filter(({ jobs }) => jobs > 0),
    current: alive.filter(({ isCurrent }) => isCurrent),
    stale: alive.filter(({ isCurrent }) => !isCurrent),
    draining: workers.filter(({ state }) => state === 'draining'),
    parked: parked.sort((a, b) => (a.parking?.since ?? 0) - (b.parking?.since ?? 0)),
  };
}

/** A parked worker counts towards the maximum only when it is awake, and until its last job has ended. */
export function countWorkers(workers: readonly ScaledWorker[]): number {
  return workers.filter(({ jobs, state }) => state !== 'parked' || jobs > 0).length;
}

export function measureDemand(input: ScalerInput, groups: WorkerGroups): Demand {
  const { load, scaler } = input;
  if (scaler.type === 'REQUEST_COUNT') {
    const need = Math.ceil((load.waiting + load.running) / scaler.perWorker);
    return { need, cause: need > 0 && groups.alive.length === 0 ? 'first' : 'count' };
  }
  if (load.waiting === 0) return { need: 0, cause: 'enough' };
  if (groups.alive.length === 0) return { need: 1, cause: 'first' };
  const have = countStanding(input, groups);
  const waitedMs = input.now - (load.oldestQueuedAt ?? input.now);
  const isLate = waitedMs > scaler.seconds * 1_000;
  if (!isLate || !hasLastArrived(input, groups)) return { need: have, cause: 'enough' };
  // More workers than jobs would leave some of them idle.
  const useful = Math.min(2 * have, load.waiting + groups.busy.length);
  return { need: Math.max(have, useful), cause: useful > have ? 'delay' : 'enough' };
}

/** During a replacement the endpoint has more workers than the load has asked for. */
function countStanding({ lastWant }: ScalerInput, { alive, stale }: WorkerGroups): number {
  if (stale.length === 0 || lastWant === null) return alive.length;
  return Math.max(1, Math.min(lastWant, alive.length));
}

/** Starting workers may be enough, but the decision waits for them only `seconds`. */
function hasLastArrived(
  { lastStartAt, now, scaler }: ScalerInput,
  { starting }: WorkerGroups,
): boolean {
  if (starting.length === 0 || lastStartAt === null) return true;
  return scaler.type === 'QUEUE_DELAY' && now - lastStartAt >= scaler.seconds * 1_000;
}

/** One more than the maximum, so that a new worker is ready before an old one drains. */
export function maximumOf({ workers, workersMax }: ScalerInput): number {
  const isRolling = workers.some(({ isCurrent }) => !isCurrent);
  return isRolling && workersMax > 0 ? workersMax + 1 : workersMax;
}

/**
 * Picks those whose loss costs least: starting, then idle for longest, then with the fewest jobs.
 */
export function pick(workers: readonly ScaledWorker[], count: number): ScaledWorker[] {
  if (count <= 0) return [];
  return [...workers].sort(compareUse).slice(0, count);
}

function compareUse(one: ScaledWorker, other: ScaledWorker): number {
  const rank = ({ idleSince, isCurrent, state }: ScaledWorker) =>
    (isCurrent ? 4 : 0) + (state === 'starting' ? 0 : idleSince !== null ? 1 : 2);
  return (
    rank(one) - rank(other) ||
    (one.idleSince ?? 0) - (other.idleSince ?? 0) ||
    one.jobs - other.jobs ||
    (one.id < other.id ? -1 : 1)
  );
}

interface LoadSample {
  at: number;
  value: number;
}

/** Tracks the greatest load within a sliding time window. */
export class LoadPeak {
  /** Decreasing values: one that is followed by a greater one can never be the peak again. */
  #samples: LoadSample[] = [];

  /** @returns the greatest value of the last `windowMs`, this one included */
  note(value: number, now: number, windowMs: number): number {
    while ((this.#samples.at(-1)?.value ?? Number.POSITIVE_INFINITY) <= value) this.#samples.pop();
    this.#samples.push({ at: now, value });
    while ((this.#samples[0]?.at ?? now) < now - windowMs) this.#samples.shift();
    return this.#samples[0]?.value ?? value;
  }
}

interface DecisionFacts {
  input: ScalerInput;
  /** Workers that are not draining. */
  alive: number;
  want: number;
  start: number;
  drains: number;
  /** Workers after the drains. Default: none drains. */
  left?: number;
  /** Default: none. */
  parks?: number;
  wakes?: number;
}

function describeWindow({ raisedUntil }: ScalerInput): string {
  return raisedUntil === undefined
    ? ''
    : ` by workersSchedule until ${new Date(raisedUntil).toISOString()}`;
}

export function describeCause(cause: ScalerCause, facts: DecisionFacts): string {
  const { alive, drains, input, left = alive, parks = 0, start, wakes = 0, want } = facts;
  const { crashes, workersMax, workersMin } = input;
  const idleSeconds = seconds(input.idleTimeoutMs);
  const waking = wakes === 0 ? [] : [`waking ${count(wakes, 'worker')}`];
  const starting = start === 0 && wakes > 0 ? [] : [`starting ${count(start, 'worker')}`];
  const parking = parks === 0 ? [] : [`parking ${count(parks, 'worker')}`];
  const draining = drains === 0 && parks > 0 ? [] : [`draining ${count(drains, 'worker')}`];
  const more = `${[...waking, ...starting, alive + start + wakes].join(', ')} of at most ${workersMax}`;
  const fewer = `${[...parking, ...draining, left].join(', ')} of at most ${workersMax}`;
  switch (cause) {
    case 'first':
      return `${describeLoad(input)}, no worker: ${more}`;
    case 'delay':
      return `${describeWait(input)}: ${more}`;
    case 'count':
      return `${describeLoad(input)}, ${describeShare(input)}: ${more}`;
    case 'next_gpu':
      return `jobs need a later GPU type: ${more}`;
    case 'minimum':
      return `workersMin is ${workersMin}${describeWindow(input)}: ${more}`;
    case 'rolling':
      return describeRolling(facts);
    case 'idle':
      return `idle for ${idleSeconds} s: ${fewer}`;
    case 'surplus':
      return `at most ${count(input.load.peak, 'request')} at a time for ${idleSeconds} s, ${describeShare(input)}: ${fewer}`;
    case 'above_maximum':
      return `workersMax is ${workersMax}: ${fewer}`;
    case 'parked_ends':
      return `ending ${count(drains, 'parked worker')}: ${describeParkedEnd(input)}`;
    case 'spare':
      return `${describeSpares(input)}: starting 1 spare worker`;
    case 'no_spare':
      return `${describeSpares(input)}, and none starts: ${describeSpareObstacle(input)}`;
    case 'gives_way':
      return `${describeWaiters(input)}: ${fewer}`;
    case 'preempted':
      return describePreempted(input);
    case 'resumed':
      return `no more urgent job waits for its GPU: ${count(input.resumed?.length ?? 0, 'suspended worker')} goes on`;
    case 'at_maximum':
      if (workersMax === 0) {
        return `${describeLoad(input)}; the endpoint is switched off (workersMax is 0)`;
      }
      return `${describeLoad(input)}, but the endpoint has its maximum of workers: ${describePlaces(input)}`;
    case 'no_gpu':
      return `${count(want - alive, 'more worker')} needed, but no GPU of the endpoint's types is free`;
    case 'no_capacity':
      return `${count(want - alive, 'more worker')} needed, but the machine is full: ${input.headroom?.shortage ?? 'resource unknown'}`;
    case 'budget':
      return `${count(want - alive, 'more worker')} needed, but ${input.headroom?.shortage ?? 'a budget is used up'}`;
    case 'crashed':
      return `${describeStreak(crashes.streak)} failed: ${crashes.reason ?? 'reason unknown'}; ${describeRetry(input)}`;
    case 'enough':
      return `${describeLoad(input)}: ${describeAlive(alive)}`;
  }
}

function describeLoad({ load: { running, waiting } }: ScalerInput): string {
  if (waiting === 0 && running === 0) return 'no load';
  const waits = waiting === 0 ? [] : [`${count(waiting, 'job')} waiting`];
  const runs = running === 0 ? [] : [`${running} running`];
  return [...waits, ...runs].join(', ');
}

function describeWait({ load, now, scaler }: ScalerInput): string {
  const waited = seconds(now - (load.oldestQueuedAt ?? now));
  const limit = scaler.type === 'QUEUE_DELAY' ? `, over ${scaler.seconds} s` : '';
  return `${count(load.waiting, 'job')} waiting, the oldest for ${waited} s${limit}`;
}

function describeShare({ scaler }: ScalerInput): string {
  return scaler.type === 'REQUEST_COUNT' ? `${scaler.perWorker} per worker` : 'scaled by wait';
}

function describeRolling({ drains, input, start }: DecisionFacts): string {
  const old = input.workers.filter(({ isCurrent }) => !isCurrent).length;
  const what = `${count(old, 'outdated worker')}`;
  if (start > 0) return `${what}: starting ${count(start, 'replacement')}`;
  return drains > 0
    ? `${what}: draining ${drains}`
    : `${what}: waiting until replacements are ready`;
}

function describeParkedEnd({ parkMs = 0, workers }: ScalerInput): string {
  const isShort = workers.some(({ parking }) => parking?.lacksMemory);
  if (isShort) return 'the host has too little memory';
  return `parked for ${seconds(parkMs)} s, outdated, or beyond workersMax`;
}

function describeWaiters({ giveWay = [], workers }: ScalerInput): string {
  const names = new Set(
    giveWay.map(({ to }) => (to === null ? 'an endpoint of another user' : `endpoint ${to}`)),
  );
  const isBusy = giveWay.some(({ isTurnOver }) => isTurnOver);
  const isSpare = workers.some(
    ({ id, parking }) => parking?.isStarting && giveWay.some(({ worker }) => worker === id),
  );
  const idle = isSpare
    ? 'this endpoint has a spare worker that starts'
    : 'this endpoint has idle workers';
  const why = isBusy ? 'the turn of this endpoint is over' : idle;
  return `jobs of ${[...names].join(' and ')} wait for a GPU, and ${why}`;
}

function describeSpares({ spares, workers }: ScalerInput): string {
  const parked = workers.filter(({ isCurrent, state }) => state === 'parked' && isCurrent);
  return `spareWorkers is ${spares?.count ?? 0}, ${parked.length} parked`;
}

function describeSpareObstacle({ headroom, spares }: ScalerInput): string {
  if (spares?.obstacle !== undefined) return spares.obstacle;
  const isFull = headroom?.places === 0 || headroom?.budget === true;
  return isFull ? headroom.shortage : "no GPU of the endpoint's types is free";
}

function describePreempted({ preempted = [] }: ScalerInput): string {
  const jobs = preempted.map(({ priority, to }) => `priority ${priority} of endpoint ${to}`);
  const all = [...new Set(jobs)].join(' and ');
  return `jobs of ${all} wait for a GPU: suspending the jobs of ${count(preempted.length, 'worker')}`;
}

function describePlaces({ workers, workersMax }: ScalerInput): string {
  const draining = workers.filter(({ state }) => state === 'draining').length;
  return draining === 0 ? `${workersMax}` : `${workersMax}, ${draining} of them draining`;
}

function describeStreak(streak: number): string {
  return streak === 1 ? 'a worker' : `${streak} workers in a row`;
}

function describeRetry({ crashes, now }: ScalerInput): string {
  return now < crashes.notBefore
    ? `next start in ${seconds(crashes.notBefore - now)} s`
    : 'one worker is on trial';
}

function describeAlive(alive: number): string {
  if (alive === 0) return 'no worker is needed';
  return alive === 1 ? '1 worker is enough' : `${alive} workers are enough`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** Rounded to one decimal. */
function seconds(ms: number): string {
  return String(Math.round(ms / 100) / 10);
}
