// Decides who holds the GPUs: which workers give way to endpoints whose jobs wait for one, which attempts are suspended for more
// urgent jobs, and who gets the free GPUs. A pure function; gpu-tenants.ts collects its input, and fleet.ts carries the moves out.

/** All times are Unix ms. */
export interface GpuPlanInput {
  now: number;
  /** GPUs that no pod has or waits for, by type. */
  free: readonly { gpuType: string; gpus: readonly string[] }[];
  endpoints: readonly TenantEndpoint[];
  tenants: readonly Tenant[];
  waiters: readonly GpuWaiter[];
  /** Of those who have GPUs or wait for some. */
  users: readonly GpuUser[];
  /** Host memory for parked tenants, by machine; one that is missing has not told yet. */
  memory: readonly { node: string | null; bytes: number }[];
}

/** Users have equal shares of contended GPUs. */
export interface GpuUser {
  userId: string;
  gpuType: string;
  /** Time that they had GPUs of this type; only differences between users count, ms. */
  usedMs: number;
}

/** An endpoint that has tenants or waits. */
export interface TenantEndpoint {
  id: string;
  userId: string;
  /** Its share of its user's GPUs is its weight, divided by the sum of the weights of the user's endpoints. */
  weight: number;
  minResidenceMs: number;
  /** Tenants that do not give way: `workersMin`, or 0 if the endpoint yields. */
  kept: number;
  /** Jobs wait for its workers: they are idle only for the moment. */
  hasWork: boolean;
  /** GPU time that it had, divided by its weight; only differences between endpoints of a user count, ms. */
  usedMs: number;
  /** How long its last worker took to become ready, ms; 0 if that is not known. */
  startMs: number;
  /** The same for the wake of a parked worker. */
  wakeMs: number;
  /** A worker is parked for at most so long, ms. */
  parkMs: number;
  /** So many parked workers stay longer. */
  spares: number;
  /** Of the most urgent job that waits, if it may suspend attempts of lower priority. */
  urgentPriority?: number | undefined;
  /** Its attempts may be suspended. */
  isPreemptible?: boolean;
}

/** A worker with GPUs, or one that is parked and comes back to its GPUs. */
export interface Tenant {
  podId: string;
  endpointId: string;
  node: string | null;
  gpuType: string;
  /** UUIDs of the GPUs that it has; of a parked one, that it is bound to. */
  gpus: readonly string[];
  /**
   * `leaving`: drains or ends. `parking`, `waking`: its memory is on its way to the host or back. `spare`: starts to be parked, so
   * nobody waits for it. `suspending`, `suspended`: the same as `parking`, `parked`, in the middle of its attempts.
   */
  state:
    | 'starting'
    | 'spare'
    | 'resident'
    | 'leaving'
    | 'parking'
    | 'parked'
    | 'waking'
    | 'suspending'
    | 'suspended';
  /** Since when it has been in this state; of a resident, since it was ready. */
  since: number;
  /** Null if it has jobs. */
  idleSince: number | null;
  canPark: boolean;
  /** Memory on the GPUs; of a parked one, on the host. */
  bytes: number;
  /** Of its attempts: the highest priority, and when the first one began. Undefined: none. */
  attempts?: { priority: number; startedAt: number } | undefined;
  /** Its attempts may be suspended. */
  canSuspend?: true | undefined;
  /** Of a suspended one: when it may no longer wait for more urgent jobs. */
  suspendedUntil?: number | undefined;
}

/** An endpoint with jobs that lack GPUs. */
export interface GpuWaiter {
  endpointId: string;
  /** Types that would do, the preferred one first. */
  gpuTypes: readonly string[];
  /** GPUs that it lacks, at least 1. */
  count: number;
  since: number;
  /** Its worker exists and waits for its machine: free GPUs on our books do not help it. */
  isPlaced?: true;
  /** So many of the GPUs may come from attempts of a lower priority than the endpoint's `urgentPriority`. */
  urgent?: number | undefined;
}

export type GpuMove =
  | {
      kind: 'drain' | 'park';
      podId: string;
      endpointId: string;
      /** Endpoint that gets the GPU. */
      to: string;
      since: number;
      /** It has jobs, and its turn is over. */
      isTurnOver: boolean;
    }
  /** For a job of this priority. */
  | {
      kind: 'suspend';
      podId: string;
      endpointId: string;
      to: string;
      since: number;
      priority: number;
    }
  | { kind: 'resume'; podId: string; endpointId: string }
  | { kind: 'wake'; podId: string; endpointId: string }
  | { kind: 'end'; podId: string; endpointId: string };

/** The tenant that gives a GPU up first. */
export interface GpuHolder {
  podId: string;
  endpointId: string;
  /** `sharing`: it is busy, and has no more than its share. */
  state: 'idle' | 'busy' | 'sharing' | 'leaving' | 'suspending' | 'starting';
  /** When it gives way at the earliest; null: it does not, or nobody knows when. */
  until: number | null;
}

export interface PlannedWait {
  endpointId: string;
  /** Types of the free GPUs that are kept for it. */
  granted: string[];
  /** Undefined if it waits for none. */
  holder?: GpuHolder;
}

export interface GpuPlan {
  moves: GpuMove[];
  waits: PlannedWait[];
}

/** An idle worker stays for this share of the time that a switch costs. */
const IDLE_SHARE = 0.25;
/** The turn of a busy worker, in times of the cost of a switch: at most a fifth of the time goes into switches. */
const TURN_FACTOR = 4;
/** Longest turn, ms, unless `minResidenceMs` is longer; while another user waits, the longest residence of all. */
export const MAX_TURN_MS = 60_000;
/** A waiter that waits for longer comes first among its user's, ms: whoever has had its turn gives way, whatever the weights are. */
export const PATIENCE_MS = 120_000;

export function planGpus(input: GpuPlanInput): GpuPlan {
  const planner = new Planner(input);
  const waiters = rankWaiters(input);
  planner.returnSuspended(waiters);
  for (const waiter of waiters) planner.serve(waiter);
  planner.endParked();
  return planner.plan;
}

/** By what their users had; of one user, urgent ones first, then those without any GPU who lost patience, then those who had least. */
function rankWaiters({ endpoints, now, tenants, users, waiters }: GpuPlanInput): GpuWaiter[] {
  const known = new Map(endpoints.map((each) => [each.id, each]));
  const usedByUsers = new Map(users.map((each) => [keyOf(each), each.usedMs]));
  const served = new Set(
    tenants.flatMap(({ endpointId, state }) => (hasLeft(state) ? [] : [endpointId])),
  );
  const ranked = waiters.map((waiter) => {
    const { endpointId, gpuTypes, since } = waiter;
    const { urgentPriority = -1, usedMs = 0, userId = '' } = known.get(endpointId) ?? {};
    const isLate = now - since >= PATIENCE_MS && !served.has(endpointId);
    const ofUser = usedByUsers.get(keyOf({ userId, gpuType: gpuTypes[0] ?? '' })) ?? 0;
    return { waiter, rank: [ofUser, -urgentPriority, isLate ? 0 : 1, isLate ? 0 : usedMs, since] };
  });
  return ranked
    .toSorted((one, other) => {
      const index = one.rank.findIndex((value, at) => value !== other.rank[at]);
      if (index >= 0) return (one.rank[index] ?? 0) - (other.rank[index] ?? 0);
      return one.waiter.endpointId < other.waiter.endpointId ? -1 : 1;
    })
    .map(({ waiter }) => waiter);
}

interface Candidate {
  tenant: Tenant;
  holder: GpuHolder;
}

class Planner {
  readonly plan: GpuPlan = { moves: [], waits: [] };
  readonly #input: GpuPlanInput;
  readonly #endpoints: ReadonlyMap<string, TenantEndpoint>;
  readonly #free: ReadonlyMap<string, string[]>;
  /** Tenants of an endpoint that may still give way. */
  readonly #spare = new Map<string, number>();
  /** Pods that somebody gets the GPUs of, or that wake. */
  readonly #taken = new Set<string>();
  /** GPUs of each endpoint, as they will be after the moves of this plan. */
  readonly #gpus = new Map<string, number>();
  /** The same of each user, by type. */
  readonly #gpusOfUsers = new Map<string, number>();
  readonly #usedByUsers: ReadonlyMap<string, number>;
  /** Endpoints whose workers can be parked: they come back in the time of a wake. */
  readonly #wakeful: ReadonlySet<string>;
  /** Parked pods that end. */
  readonly #ended = new Set<string>();
  /** Bytes of the tenants that this plan parks, by machine. */
  readonly #parkedBytes = new Map<string | null, number>();
  /** GPUs that an urgent waiter has from suspended tenants. */
  readonly #served = new Map<GpuWaiter, PlannedWait>();

  constructor(input: GpuPlanInput) {
    this.#input = input;
    this.#endpoints = new Map(input.endpoints.map((each) => [each.id, each]));
    this.#usedByUsers = new Map(input.users.map((each) => [keyOf(each), each.usedMs]));
    this.#free = new Map(input.free.map(({ gpuType, gpus }) => [gpuType, [...gpus]]));
    const wakeful = input.tenants.filter(({ canPark, state }) => canPark || state === 'parked');
    this.#wakeful = new Set(wakeful.map(({ endpointId }) => endpointId));
    for (const { id, kept } of input.endpoints) this.#spare.set(id, -kept);
    for (const tenant of input.tenants) {
      const { endpointId, gpuType, gpus, state } = tenant;
      if (state === 'resident' && this.#endpoints.has(endpointId)) add(this.#spare, endpointId, 1);
      if (!hasLeft(state) && !isLeaving(tenant)) this.#move(endpointId, gpuType, gpus.length);
    }
  }

  /**
   * The GPUs of suspended tenants are for urgent jobs of their user, and then theirs again. Whoever has them gives way when it is
   * idle. It gives way after its job if the next one would not be urgent, or the suspended attempts have waited for long enough.
   */
  returnSuspended(waiters: readonly GpuWaiter[]): void {
    for (const tenant of this.#listSuspended()) {
      const { endpointId, gpuType, gpus, podId } = tenant;
      const free = this.#free.get(gpuType) ?? [];
      const isFree = gpus.every((gpu) => free.includes(gpu));
      for (const gpu of gpus) if (free.includes(gpu)) free.splice(free.indexOf(gpu), 1);
      const urgent = this.#findUrgent(tenant, waiters);
      if (!isFree) this.#callBack(tenant, urgent);
      else if (urgent) {
        this.#waitOf(urgent).granted.push(gpuType);
        this.#move(urgent.endpointId, gpuType, 1);
      } else this.plan.moves.push({ kind: 'resume', podId, endpointId });
    }
  }

  /** The most urgent first, then the one that waits for longest. */
  #listSuspended(): Tenant[] {
    return this.#input.tenants
      .filter(({ state }) => state === 'suspended')
      .sort(
        (one, other) =>
          (other.attempts?.priority ?? 0) - (one.attempts?.priority ?? 0) ||
          one.since - other.since ||
          (one.podId < other.podId ? -1 : 1),
      );
  }

  /** A waiter that still lacks GPUs, and before which the tenant must wait. */
  #findUrgent(tenant: Tenant, waiters: readonly GpuWaiter[]): GpuWaiter | undefined {
    return waiters.find((waiter) => {
      const { granted } = this.#served.get(waiter) ?? { granted: [] };
      const isOpen = granted.length < Math.min(waiter.urgent ?? 0, waiter.count);
      const fits = waiter.gpuTypes.includes(tenant.gpuType);
      return isOpen && fits && this.#isBefore(waiter.endpointId, tenant);
    });
  }

  /** Whether a job of the endpoint that waits goes before the attempts of the suspended tenant. */
  #isBefore(endpointId: string, { attempts, endpointId: own, suspendedUntil }: Tenant): boolean {
    const other = this.#endpoints.get(endpointId);
    const isOwn = other?.userId === this.#endpoints.get(own)?.userId;
    const isOver = this.#input.now >= (suspendedUntil ?? Number.POSITIVE_INFINITY);
    return isOwn && !isOver && (other?.urgentPriority ?? -1) > (attempts?.priority ?? 0);
  }

  /** Those that have the GPUs of a suspended tenant leave, after the jobs that run there. */
  #callBack(suspended: Tenant, urgent: GpuWaiter | undefined): void {
    const { endpointId: to, gpus, since } = suspended;
    const holders = this.#input.tenants.filter(
      (tenant) => tenant.state === 'resident' && tenant.gpus.some((gpu) => gpus.includes(gpu)),
    );
    for (const holder of holders) {
      const { endpointId, gpuType, idleSince, podId } = holder;
      if (this.#taken.has(podId)) continue;
      // It serves the next urgent job, or another endpoint's urgent job gets its GPU.
      const isNeeded = urgent !== undefined || this.#isBefore(endpointId, suspended);
      if (isNeeded || (idleSince === null && !this.#endpoints.get(endpointId)?.hasWork)) {
        const state = idleSince === null ? 'busy' : 'idle';
        const next = { podId, endpointId, state, until: null } as const;
        this.plan.waits.push({ endpointId: to, granted: [], holder: next });
        continue;
      }
      this.#taken.add(podId);
      add(this.#spare, endpointId, -1);
      this.#move(endpointId, gpuType, -holder.gpus.length);
      const kind = this.#park(holder) ? 'park' : 'drain';
      this.plan.moves.push({ kind, podId, endpointId, to, since, isTurnOver: true });
    }
  }

  #waitOf(waiter: GpuWaiter): PlannedWait {
    const wait = this.#served.get(waiter) ?? { endpointId: waiter.endpointId, granted: [] };
    this.#served.set(waiter, wait);
    return wait;
  }

  serve(waiter: GpuWaiter): void {
    const { endpointId } = waiter;
    const wait = this.#waitOf(waiter);
    this.plan.waits.push(wait);
    for (let n = wait.granted.length; n < waiter.count; n++) {
      const free = waiter.isPlaced ? undefined : (this.#wake(waiter) ?? this.#grant(waiter, wait));
      if (free !== undefined) {
        this.#move(endpointId, free, 1);
        continue;
      }
      const chosen = this.#choose(waiter);
      if (n < (waiter.urgent ?? 0) && this.#preempt(waiter, wait, chosen)) continue;
      const holder = chosen?.holder ?? this.#findHolder(waiter);
      if (holder) wait.holder ??= holder;
      // One whose time has not come may go to another waiter first.
      if (!chosen || (chosen.holder.until ?? 0) > this.#input.now) return;
      const { gpuType, gpus } = chosen.tenant;
      this.#taken.add(chosen.tenant.podId);
      this.#move(endpointId, gpuType, 1);
      const { state } = chosen.holder;
      if (state === 'leaving') continue;
      const owner = chosen.tenant.endpointId;
      if (chosen.tenant.state === 'resident') add(this.#spare, owner, -1);
      this.#move(owner, gpuType, -gpus.length);
      this.plan.moves.push({
        kind: chosen.tenant.state !== 'spare' && this.#park(chosen.tenant) ? 'park' : 'drain',
        podId: chosen.tenant.podId,
        endpointId: owner,
        to: endpointId,
        since: waiter.since,
        isTurnOver: state === 'busy',
      });
    }
  }

  /** Suspends the attempts of the lowest priority, of those the youngest, unless somebody idle gives way. */
  #preempt(waiter: GpuWaiter, wait: PlannedWait, chosen: Candidate | undefined): boolean {
    const isEnding = chosen?.holder.state === 'leaving' && chosen.tenant.idleSince !== null;
    if (isEnding || chosen?.holder.state === 'idle') return false;
    const { endpointId, since } = waiter;
    const tenants = this.#input.tenants.filter(
      (tenant) => this.#holdsFor(waiter, tenant) && !this.#taken.has(tenant.podId),
    );
    const going = tenants.find(
      (tenant) => tenant.state === 'suspending' && this.#isBefore(endpointId, tenant),
    );
    const lower = tenants.filter(
      (tenant) =>
        tenant.state === 'resident' &&
        tenant.canSuspend &&
        tenant.attempts !== undefined &&
        this.#isBefore(endpointId, tenant),
    );
    const ranked = lower.sort(
      (one, other) =>
        (one.attempts?.priority ?? 0) - (other.attempts?.priority ?? 0) ||
        (other.attempts?.startedAt ?? 0) - (one.attempts?.startedAt ?? 0) ||
        (one.podId < other.podId ? -1 : 1),
    );
    const victim = going ?? ranked.find((tenant) => this.#makeSpace(tenant));
    if (!victim) return false;
    const { endpointId: owner, gpuType, gpus, podId } = victim;
    this.#taken.add(podId);
    this.#move(endpointId, gpuType, 1);
    wait.holder ??= { podId, endpointId: owner, state: 'suspending', until: null };
    if (going) return true;
    add(this.#spare, owner, -1);
    this.#move(owner, gpuType, -gpus.length);
    const priority = this.#endpoints.get(endpointId)?.urgentPriority ?? 0;
    this.plan.moves.push({
      kind: 'suspend',
      podId,
      endpointId: owner,
      to: endpointId,
      since,
      priority,
    });
    return true;
  }

  /** Parked tenants whose time is over, and the oldest ones while the machine has too little memory for all. */
  endParked(): void {
    const { now } = this.#input;
    for (const tenant of this.#listParked()) {
      const { endpointId, since } = tenant;
      // After a start of the platform, no pass over its endpoint may have told of it yet.
      const { parkMs = Number.POSITIVE_INFINITY, spares = 0 } =
        this.#endpoints.get(endpointId) ?? {};
      const own = this.#listParked().filter((each) => each.endpointId === endpointId);
      const isOver = now - since >= parkMs && own.length > spares;
      if (isOver || this.#lacksMemory(tenant.node, 0)) this.#end(tenant);
    }
  }

  #move(endpointId: string, gpuType: string, gpus: number): void {
    add(this.#gpus, endpointId, gpus);
    const userId = this.#endpoints.get(endpointId)?.userId ?? '';
    add(this.#gpusOfUsers, keyOf({ userId, gpuType }), gpus);
  }

  /** Its parked tenant comes back if its GPUs are free. @returns their type */
  #wake({ endpointId, gpuTypes }: GpuWaiter): string | undefined {
    const found = this.#listParked().findLast((tenant) => {
      if (tenant.endpointId !== endpointId || !gpuTypes.includes(tenant.gpuType)) return false;
      const free = this.#free.get(tenant.gpuType) ?? [];
      return tenant.gpus.every((gpu) => free.includes(gpu));
    });
    if (!found) return undefined;
    const free = this.#free.get(found.gpuType) ?? [];
    for (const gpu of found.gpus) free.splice(free.indexOf(gpu), 1);
    this.#taken.add(found.podId);
    this.plan.moves.push({ kind: 'wake', podId: found.podId, endpointId });
    return found.gpuType;
  }

  #grant({ gpuTypes }: GpuWaiter, { granted }: PlannedWait): string | undefined {
    const gpuType = gpuTypes.find((type) => (this.#free.get(type)?.length ?? 0) > 0);
    if (gpuType === undefined) return undefined;
    this.#free.get(gpuType)?.shift();
    granted.push(gpuType);
    return gpuType;
  }

  /** The tenant whose GPU the waiter gets: it leaves, or is idle, or has had its turn. Undefined: nobody gives way. */
  #choose(waiter: GpuWaiter): Candidate | undefined {
    const open = this.#input.tenants.filter(
      (tenant) => this.#holdsFor(waiter, tenant) && !this.#taken.has(tenant.podId),
    );
    // One that hangs, or whose job takes very long, must not hold up everything.
    const leaving = open
      .filter((each) => isLeaving(each) && this.#input.now - each.since < PATIENCE_MS)
      .map((each) => leave(each));
    const ending = leaving.find(({ tenant }) => tenant.idleSince !== null);
    if (ending) return ending;
    const spare = open.find(({ state }) => state === 'spare');
    if (spare) return { tenant: spare, holder: giveUp(spare) };
    const giving = open.filter(
      ({ endpointId, state }) => state === 'resident' && (this.#spare.get(endpointId) ?? 0) > 0,
    );
    const candidates = giving.map((tenant) => this.#judge(waiter, tenant));
    const idle = candidates.filter(({ holder }) => holder.state === 'idle');
    if (idle.length > 0) return this.#pickIdle(waiter, idle);
    const busy = candidates.filter(({ holder }) => holder.state === 'busy');
    return leaving[0] ?? minBy(busy, ({ holder }) => holder.until ?? 0);
  }

  /** Of those that may give way now, the one on which the waiter's parked tenant waits, then the longest idle one. */
  #pickIdle({ endpointId }: GpuWaiter, idle: readonly Candidate[]): Candidate | undefined {
    const { now, tenants } = this.#input;
    const due = idle.filter(({ holder }) => (holder.until ?? 0) <= now);
    if (due.length === 0) return minBy(idle, ({ holder }) => holder.until ?? 0);
    const bound = new Set(
      tenants
        .filter((tenant) => tenant.endpointId === endpointId && tenant.state === 'parked')
        .flatMap(({ gpus }) => gpus),
    );
    const own = due.filter(({ tenant }) => tenant.gpus.some((gpu) => bound.has(gpu)));
    return minBy(own.length > 0 ? own : due, ({ tenant }) => tenant.idleSince ?? 0);
  }

  #judge(waiter: GpuWaiter, tenant: Tenant): Candidate {
    const { endpointId, podId, since } = tenant;
    const owner = this.#endpoints.get(endpointId);
    const isOwn = owner?.userId === this.#endpoints.get(waiter.endpointId)?.userId;
    const costMs = Math.max(this.#costOf(endpointId), this.#costOf(waiter.endpointId));
    const { minResidenceMs = 0 } = owner ?? {};
    const mostMs = isOwn ? Number.POSITIVE_INFINITY : MAX_TURN_MS;
    const leastMs = Math.min(minResidenceMs, mostMs);
    if (tenant.idleSince !== null && !owner?.hasWork) {
      const until = since + Math.ceil(Math.min(mostMs, Math.max(leastMs, IDLE_SHARE * costMs)));
      return { tenant, holder: { podId, endpointId, state: 'idle', until } };
    }
    const turnMs = Math.max(leastMs, Math.min(MAX_TURN_MS, TURN_FACTOR * costMs));
    const fairAt = this.#findFairTime(waiter, tenant, turnMs);
    if (fairAt === null) {
      return { tenant, holder: { podId, endpointId, state: 'sharing', until: null } };
    }
    // The next urgent job would suspend what the waiter begins.
    const isFutile = isOwn && this.#isMoreUrgent(endpointId, waiter.endpointId);
    const urgentMs = isFutile ? waiter.since + PATIENCE_MS : 0;
    const until = Math.ceil(Math.max(since + turnMs, fairAt, urgentMs));
    return { tenant, holder: { podId, endpointId, state: 'busy', until } };
  }

  #isMoreUrgent(endpointId: string, otherId: string): boolean {
    const other = this.#endpoints.get(otherId);
    const priority = this.#endpoints.get(endpointId)?.urgentPriority ?? -1;
    return other?.isPreemptible === true && priority > (other.urgentPriority ?? -1);
  }

  /**
   * When the holder has had half a turn more than the waiter: so they do not change places without need. A waiter that has its
   * share of GPUs, and wants more, gets one only to make up for much time without it. Null: nobody knows when. Between users,
   * all their endpoints count together: nobody gets more by more endpoints.
   */
  #findFairTime(
    { endpointId, since }: GpuWaiter,
    { endpointId: holderId, gpuType }: Tenant,
    turnMs: number,
  ): number | null {
    const { now } = this.#input;
    const holding = this.#endpoints.get(holderId);
    const waiting = this.#endpoints.get(endpointId);
    if (!holding || !waiting) return now;
    const isOwn = holding.userId === waiting.userId;
    const holder = this.#stand(holding, gpuType, isOwn);
    const waiter = this.#stand(waiting, gpuType, isOwn);
    const lead = holder.usedMs - waiter.usedMs;
    const weight = Math.max(holder.weight, waiter.weight);
    if (waiter.gpus / waiter.weight >= holder.gpus / holder.weight) {
      return lead >= (2 * MAX_TURN_MS) / weight ? now : null;
    }
    const missingMs = Math.max(0, turnMs / 2 / weight - lead);
    const at = now + (missingMs * holder.weight) / holder.gpus;
    return isOwn ? Math.min(at, since + PATIENCE_MS) : at;
  }

  /** What the endpoint has and had, or all those of its user. */
  #stand({ id, usedMs, userId, weight }: TenantEndpoint, gpuType: string, isOwn: boolean) {
    if (isOwn) return { usedMs, weight, gpus: this.#gpus.get(id) ?? 0 };
    const key = keyOf({ userId, gpuType });
    const used = this.#usedByUsers.get(key) ?? 0;
    return { usedMs: used, weight: 1, gpus: this.#gpusOfUsers.get(key) ?? 0 };
  }

  /** What it takes to get a worker of the endpoint back, ms. */
  #costOf(endpointId: string): number {
    const owner = this.#endpoints.get(endpointId);
    if (!owner) return 0;
    return this.#wakeful.has(endpointId) ? owner.wakeMs : owner.startMs;
  }

  /** For the reason why the waiter waits: who holds a GPU, if nobody else gives way to it. */
  #findHolder(waiter: GpuWaiter): GpuHolder | undefined {
    const holders = this.#input.tenants
      .filter((tenant) => this.#holdsFor(waiter, tenant))
      .map((tenant): GpuHolder => {
        const { endpointId, podId, state } = tenant;
        if (state === 'suspending') return { podId, endpointId, state, until: null };
        if (isLeaving(tenant)) return leave(tenant).holder;
        if (state === 'spare') return giveUp(tenant);
        if (state !== 'resident') return { podId, endpointId, state: 'starting', until: null };
        const { holder } = this.#judge(waiter, tenant);
        const isKept = (this.#spare.get(endpointId) ?? 0) <= 0 && !this.#taken.has(podId);
        if (!isKept) return holder;
        return { ...holder, state: holder.state === 'idle' ? 'idle' : 'busy', until: null };
      });
    return minBy(holders, ({ until }) => until ?? Number.POSITIVE_INFINITY);
  }

  /** Whether it has a GPU that the waiter could use, and is another endpoint's. */
  #holdsFor(waiter: GpuWaiter, { endpointId, gpuType, state }: Tenant): boolean {
    const isOther = endpointId !== waiter.endpointId;
    return isOther && !hasLeft(state) && waiter.gpuTypes.includes(gpuType);
  }

  /** Makes space in the host's memory. Returns false if the tenant must end instead. */
  #park(tenant: Tenant): boolean {
    if (!tenant.canPark || (this.#endpoints.get(tenant.endpointId)?.parkMs ?? 0) <= 0) return false;
    return this.#makeSpace(tenant);
  }

  #makeSpace({ bytes, node }: Tenant): boolean {
    const limit = this.#input.memory.find((each) => each.node === node)?.bytes ?? 0;
    if (bytes > limit) return false;
    for (const tenant of this.#listParked().filter((each) => each.node === node)) {
      if (!this.#lacksMemory(node, bytes)) break;
      this.#end(tenant);
    }
    if (this.#lacksMemory(node, bytes)) return false;
    this.#parkedBytes.set(node, (this.#parkedBytes.get(node) ?? 0) + bytes);
    return true;
  }

  #lacksMemory(node: string | null, more: number): boolean {
    const limit =
      this.#input.memory.find((each) => each.node === node)?.bytes ?? Number.POSITIVE_INFINITY;
    const there = this.#input.tenants.filter(
      (tenant) => tenant.node === node && isOnHost(tenant) && !this.#ended.has(tenant.podId),
    );
    const bytes = there.reduce((sum, tenant) => sum + tenant.bytes, 0);
    return bytes + (this.#parkedBytes.get(node) ?? 0) + more > limit;
  }

  /** The oldest first, without those that wake or end. */
  #listParked(): Tenant[] {
    return this.#input.tenants
      .filter(
        ({ podId, state }) =>
          state === 'parked' && !this.#taken.has(podId) && !this.#ended.has(podId),
      )
      .sort((one, other) => one.since - other.since || (one.podId < other.podId ? -1 : 1));
  }

  #end({ endpointId, podId }: Tenant): void {
    this.#ended.add(podId);
    this.plan.moves.push({ kind: 'end', podId, endpointId });
  }
}

function keyOf({ gpuType, userId }: { userId: string; gpuType: string }): string {
  return `${userId}\n${gpuType}`;
}

function add(counts: Map<string, number>, id: string, count: number): void {
  counts.set(id, (counts.get(id) ?? 0) + count);
}

/** Somebody else gets its GPU. That of a suspended one is for urgent jobs. */
function isLeaving({ state }: Tenant): boolean {
  return state === 'leaving' || state === 'parking';
}

/** It is in the host's memory. */
function hasLeft(state: Tenant['state']): boolean {
  return state === 'parked' || state === 'suspended';
}

/** Its memory is on the host, or will be. */
function isOnHost({ state }: Tenant): boolean {
  return hasLeft(state) || ['parking', 'suspending', 'waking'].includes(state);
}

/** A spare worker gives its GPU up at once. */
function giveUp({ endpointId, podId, since }: Tenant): GpuHolder {
  return { podId, endpointId, state: 'idle', until: since };
}

function leave(tenant: Tenant): Candidate {
  const { endpointId, podId } = tenant;
  return { tenant, holder: { podId, endpointId, state: 'leaving', until: null } };
}

/** The first one wins a tie. */
function minBy<T>(all: readonly T[], rankOf: (each: T) => number): T | undefined {
  return all.reduce<T | undefined>(
    (least, each) => (least === undefined || rankOf(each) < rankOf(least) ? each : least),
    undefined,
  );
}
