// Endpoints that share GPUs, in simulated time: planGpus plans, and this world carries its moves out as slowly as real workers
// would, with jobs that come and take as long as the seed says.
import { expect } from 'vitest';
import {
  type GpuMove,
  type GpuPlanInput,
  planGpus,
  type Tenant,
} from '../../../../src/control/tenancy/gpu-plan.ts';
import { GpuShares } from '../../../../src/control/tenancy/gpu-shares.ts';

export const STEP_MS = 250;

export interface Guest {
  id: string;
  userId: string;
  weight: number;
  minResidenceMs: number;
  workersMin: number;
  workersMax: number;
  yields: boolean;
  startMs: number;
  canPark: boolean;
  moveMs: number;
  bytes: number;
  parkMs: number;
  /** Workers that it keeps parked. Default: none. */
  spares?: number;
  /** How long a job takes, and when the next one comes, ms. */
  jobMs: () => number;
  everyMs: () => number;
  /** Jobs come until then. */
  until: number;
}

interface Worker extends Tenant {
  /** When it is ready, parked or awake. */
  changesAt: number;
  jobEndsAt: number | null;
}

interface Wait {
  endpointId: string;
  ms: number;
}

export interface WorldOptions {
  /** GPUs by type; every guest may use all types. */
  gpus: Readonly<Record<string, number>>;
  guests: readonly Guest[];
  /** Host memory of each machine for parked models. */
  memory: number;
  /** Machines, over which the GPUs are spread. Default 1. */
  machines?: number;
  /** Draws from 0 to 1 what fails: a park, which ends the model, a wake, which starts it anew, a worker. Default: nothing fails. */
  fail?: (what: 'park' | 'wake' | 'worker') => boolean;
}

export class GpuWorld {
  now = 0;
  readonly moves: (GpuMove & { at: number; residedMs: number; wasSpare: boolean })[] = [];
  /** Waits for a first GPU. */
  readonly waits: Wait[] = [];
  /** GPU time by endpoint, ms. */
  readonly held = new Map<string, number>();
  /** Spare workers started. */
  spares = 0;
  readonly jobs = { come: 0, done: 0 };
  readonly #options: WorldOptions;
  readonly #shares = new GpuShares();
  readonly #devices: { gpu: string; gpuType: string; node: string | null }[];
  readonly #queues = new Map<string, number>();
  readonly #nextAt = new Map<string, number>();
  readonly #since = new Map<string, number>();
  #workers: Worker[] = [];
  #started = 0;

  constructor(options: WorldOptions) {
    this.#options = options;
    const { gpus, machines = 1 } = options;
    const nodeOf = (n: number) => (machines === 1 ? null : `n${n % machines}`);
    this.#devices = Object.entries(gpus).flatMap(([gpuType, count]) =>
      Array.from({ length: count }, (_, n) => ({
        gpu: `${gpuType}-${n}`,
        gpuType,
        node: nodeOf(n),
      })),
    );
    for (const { everyMs, id } of options.guests) this.#nextAt.set(id, everyMs());
  }

  get workers(): readonly Tenant[] {
    return this.#workers;
  }

  /** How long those have waited that still wait for a first GPU, ms. */
  listOpenWaits(): number[] {
    return [...this.#since].flatMap(([id, since]) =>
      this.#own(id, 'held').length === 0 ? [this.now - since] : [],
    );
  }

  play(until: number): this {
    while (this.now < until) this.#step();
    return this;
  }

  #step(): void {
    this.now += STEP_MS;
    for (const guest of this.#options.guests) this.#receive(guest);
    for (const worker of this.#workers) this.#work(worker);
    this.#workers = this.#workers.filter(({ endpointId, jobEndsAt, state }) => {
      const isDead = this.#fails('worker');
      // Its job waits in its place.
      if (isDead && jobEndsAt !== null)
        this.#queues.set(endpointId, (this.#queues.get(endpointId) ?? 0) + 1);
      return !isDead && (state !== 'leaving' || jobEndsAt !== null);
    });
    const plan = planGpus(this.#describe());
    for (const { holder } of plan.waits) {
      expect(Number.isInteger(holder?.until ?? 0), 'a time in whole ms').toBe(true);
    }
    for (const move of plan.moves) this.#carryOut(move);
    for (const { endpointId, granted } of plan.waits) {
      for (const type of granted) this.#start(endpointId, type);
    }
    const granted = plan.waits.flatMap((wait) => wait.granted).length;
    this.#startMinimum(granted);
    this.#startSpares(granted);
    this.#check();
  }

  #receive({ everyMs, id, until }: Guest): void {
    while ((this.#nextAt.get(id) ?? 0) <= this.now && this.now < until) {
      this.#nextAt.set(id, (this.#nextAt.get(id) ?? 0) + everyMs());
      this.#queues.set(id, (this.#queues.get(id) ?? 0) + 1);
      this.jobs.come++;
    }
  }

  #work(worker: Worker): void {
    const guest = this.#guest(worker.endpointId);
    if (worker.changesAt <= this.now) {
      if (worker.state === 'spare') {
        Object.assign(worker, { state: 'parking', changesAt: this.now + guest.moveMs });
        return;
      }
      const isUp = worker.state === 'starting' || worker.state === 'waking';
      if (worker.state === 'parking' && this.#fails('park')) worker.bytes = 0;
      if (isUp) worker.bytes = guest.bytes;
      if (isUp) Object.assign(worker, { state: 'resident', since: this.now, idleSince: this.now });
      if (worker.state === 'parking') Object.assign(worker, { state: 'parked', since: this.now });
    }
    if (worker.state !== 'parked') {
      this.held.set(guest.id, (this.held.get(guest.id) ?? 0) + STEP_MS);
    }
    if (worker.jobEndsAt !== null && worker.jobEndsAt <= this.now) {
      Object.assign(worker, { jobEndsAt: null, idleSince: this.now });
      this.jobs.done++;
    }
    const queued = this.#queues.get(guest.id) ?? 0;
    if (worker.state !== 'resident' || worker.jobEndsAt !== null || queued === 0) return;
    this.#queues.set(guest.id, queued - 1);
    Object.assign(worker, { jobEndsAt: this.now + guest.jobMs(), idleSince: null });
  }

  #describe(): GpuPlanInput {
    const { guests, memory } = this.#options;
    const held = new Set(
      this.#workers.filter(({ state }) => state !== 'parked').flatMap(({ gpus }) => gpus),
    );
    const types = Object.keys(this.#options.gpus);
    const waiters = guests.flatMap((guest) => this.#listWait(guest, types));
    const active = guests.flatMap(({ id: endpointId, userId, weight }) => {
      const has = this.#own(endpointId, 'held').map(({ gpuType }) => ({ gpuType, gpus: 1 }));
      const isWaiting = waiters.some((waiter) => waiter.endpointId === endpointId);
      const wants = isWaiting ? types.map((gpuType) => ({ gpuType, gpus: 0 })) : [];
      return [...has, ...wants].map((use) => ({ userId, endpointId, weight, ...use }));
    });
    this.#shares.count(this.now, active);
    return {
      now: this.now,
      free: types.map((gpuType) => ({
        gpuType,
        gpus: this.#devices.flatMap((each) =>
          each.gpuType === gpuType && !held.has(each.gpu) ? [each.gpu] : [],
        ),
      })),
      endpoints: guests.map((guest) => ({
        ...{ id: guest.id, userId: guest.userId, weight: guest.weight },
        minResidenceMs: guest.minResidenceMs,
        kept: guest.yields ? 0 : guest.workersMin,
        hasWork: (this.#queues.get(guest.id) ?? 0) > 0,
        usedMs: this.#shares.ofEndpoint(guest.userId, guest.id),
        ...{ startMs: guest.startMs, wakeMs: guest.moveMs, parkMs: guest.parkMs },
        spares: guest.spares ?? 0,
      })),
      tenants: this.#workers.map(({ changesAt: _, jobEndsAt: __, ...tenant }) => tenant),
      waiters,
      users: this.#shares.listUsers(),
      memory: [...this.#listNodes()].map((node) => ({ node, bytes: memory })),
    };
  }

  #listWait(guest: Guest, gpuTypes: readonly string[]) {
    const { id, workersMax } = guest;
    const queued = this.#queues.get(id) ?? 0;
    const alive = this.#own(id, 'alive');
    const busy = alive.filter(({ jobEndsAt }) => jobEndsAt !== null).length;
    const all = this.#own(id, 'held').length;
    const count = Math.min(queued + busy, workersMax) - Math.max(alive.length, 0);
    const since = this.#since.get(id);
    if (count <= 0 || all >= workersMax) {
      this.#since.delete(id);
      return [];
    }
    this.#since.set(id, since ?? this.now);
    return [{ endpointId: id, gpuTypes, count, since: since ?? this.now }];
  }

  /** `alive`: that work or will, `held`: that have GPUs. */
  #own(id: string, which: 'alive' | 'held'): Worker[] {
    return this.#workers.filter(({ endpointId, state }) => {
      if (endpointId !== id || state === 'parked') return false;
      return which === 'held' || (state !== 'leaving' && state !== 'parking');
    });
  }

  #carryOut(move: GpuMove): void {
    const worker = this.#workers.find(({ podId }) => podId === move.podId);
    if (!worker) throw new Error(`${move.podId} does not exist`);
    const wasSpare = worker.state === 'spare';
    this.moves.push({ ...move, at: this.now, residedMs: this.now - worker.since, wasSpare });
    const { moveMs, startMs } = this.#guest(worker.endpointId);
    const isCold = move.kind === 'wake' && (worker.bytes === 0 || this.#fails('wake'));
    const changesAt = this.now + (isCold ? startMs : moveMs);
    if (move.kind === 'end') {
      const isOver = this.now - worker.since >= this.#guest(worker.endpointId).parkMs;
      const parked = this.#workers.filter(({ state }) => state === 'parked');
      const there = parked.filter(({ node }) => node === worker.node);
      const oldest = Math.min(...there.map(({ since }) => since));
      expect(isOver || oldest === worker.since, 'the oldest ends first').toBe(true);
      const own = parked.filter(({ endpointId }) => endpointId === worker.endpointId);
      const isKept = own.length <= (this.#guest(worker.endpointId).spares ?? 0);
      const onHost = this.#workers.filter((each) => each.node === worker.node && isOnHost(each));
      const isFull = onHost.reduce((sum, { bytes }) => sum + bytes, 0) > 0;
      if (isKept)
        expect(isFull && oldest === worker.since, 'spares end only for others').toBe(true);
      this.#workers = this.#workers.filter((each) => each !== worker);
    } else if (move.kind === 'wake') {
      this.#endWait(worker.endpointId);
      Object.assign(worker, { state: 'waking', since: this.now, changesAt });
    } else {
      // A busy one is parked when its job has ended; here it ends instead.
      const parks = move.kind === 'park' && worker.jobEndsAt === null;
      const state = parks ? 'parking' : 'leaving';
      Object.assign(worker, { state, since: this.now, changesAt });
    }
  }

  #start(endpointId: string, gpuType: string): void {
    const held = new Set(
      this.#workers.filter(({ state }) => state !== 'parked').flatMap(({ gpus }) => gpus),
    );
    const free = this.#devices.find((each) => each.gpuType === gpuType && !held.has(each.gpu));
    if (!free) throw new Error(`${endpointId} was granted a GPU that is not free`);
    const { bytes, canPark, startMs } = this.#guest(endpointId);
    this.#endWait(endpointId);
    this.#workers.push({
      ...{ podId: `p${this.#started++}`, endpointId, node: free.node, gpuType, gpus: [free.gpu] },
      ...{ state: 'starting', since: this.now, idleSince: null, canPark, bytes },
      ...{ changesAt: this.now + startMs, jobEndsAt: null },
    });
  }

  #endWait(endpointId: string): void {
    const since = this.#since.get(endpointId);
    const isFirst = this.#own(endpointId, 'held').length === 0;
    if (since !== undefined && isFirst) this.waits.push({ endpointId, ms: this.now - since });
    // Whoever lacks more waits anew.
    this.#since.delete(endpointId);
  }

  /** Minimums get what nobody waits for. */
  #startMinimum(granted: number): void {
    if (granted > 0 || this.#since.size > 0) return;
    for (const { id, workersMin } of this.#options.guests) {
      const held = new Set(
        this.#workers.filter(({ state }) => state !== 'parked').flatMap(({ gpus }) => gpus),
      );
      const free = this.#devices.find(({ gpu }) => !held.has(gpu));
      if (free && this.#own(id, 'held').length < workersMin) this.#start(id, free.gpuType);
    }
  }

  /** One at a time, on what nobody waits for, if the host has the memory. */
  #startSpares(granted: number): void {
    if (granted > 0 || this.#since.size > 0) return;
    for (const { bytes, canPark, id, spares = 0 } of this.#options.guests) {
      const own = this.#workers.filter(({ endpointId }) => endpointId === id);
      const there = own.filter(({ state }) => ['spare', 'parking', 'parked'].includes(state));
      const isStarting = own.some(({ state }) => state === 'spare' || state === 'starting');
      const holding = this.#workers.filter(({ state }) => state !== 'parked');
      const held = new Set(holding.flatMap(({ gpus }) => gpus));
      const free = this.#devices.find(({ gpu }) => !held.has(gpu));
      const onHost = this.#workers.filter((each) => isOnHost(each) || each.state === 'spare');
      const used = onHost.reduce((sum, each) => sum + each.bytes, 0);
      if (!free || !canPark || isStarting || there.length >= spares) continue;
      if (used + bytes > this.#options.memory) continue;
      this.#start(id, free.gpuType);
      Object.assign(this.#workers.at(-1) ?? {}, { state: 'spare' });
      this.spares++;
    }
  }

  #check(): void {
    const holding = this.#workers.filter(({ state }) => state !== 'parked');
    const gpus = holding.flatMap((each) => each.gpus);
    expect(new Set(gpus).size, 'a GPU has one holder').toBe(gpus.length);
    const onHost = this.#workers.filter((each) => isOnHost(each));
    for (const node of this.#listNodes()) {
      const there = onHost.filter((each) => each.node === node);
      const bytes = there.reduce((sum, each) => sum + each.bytes, 0);
      expect(bytes, 'parked memory').toBeLessThanOrEqual(this.#options.memory);
    }
  }

  #fails(what: 'park' | 'wake' | 'worker'): boolean {
    return this.#options.fail?.(what) ?? false;
  }

  #listNodes(): Set<string | null> {
    return new Set(this.#devices.map(({ node }) => node));
  }

  #guest(id: string): Guest {
    const guest = this.#options.guests.find((each) => each.id === id);
    if (!guest) throw new Error(`${id} is no guest`);
    return guest;
  }
}

function isOnHost({ state }: Tenant): boolean {
  return state === 'parked' || state === 'parking' || state === 'waking';
}
