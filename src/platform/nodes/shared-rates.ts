// One count of calls over all nodes: a node spends slices of limits, asks the leader for more ahead of need, admits its fair
// share while no leader answers, and answers other nodes while it leads.
import type { CreateRateCounter, RateCount } from '../../api/limits/rate-limit.ts';
import type { ClusterView } from '../../cluster/cluster-rows.ts';
import { ProblemError } from '../../wire/problem.ts';
import { NODE_CALLS, type NodeCalls } from './node-calls.ts';
import {
  MAX_REPORTS,
  RateCounts,
  type RateGrant,
  type RateReport,
  type RatesAnswer,
  type RatesBody,
} from './rate-counts.ts';

/** Longest wait of a request for the leader's answer, ms. */
const WAIT_MS = 250;

export interface SharedRatesOptions {
  cluster: { readonly id: string; readonly view: ClusterView };
  calls: NodeCalls;
}

interface Waiter {
  subject: RateSubject;
  resolve: (count: RateCount) => void;
  timer: NodeJS.Timeout;
}

export class SharedRates {
  readonly #options: SharedRatesOptions;
  readonly #slices: RateSlices;
  #waiters: Waiter[] = [];
  #isCalling = false;
  /** While this node leads. */
  #counts: RateCounts | undefined;

  constructor(options: SharedRatesOptions) {
    this.#options = options;
    const countNodes = () => this.#listLive().length;
    this.#slices = new RateSlices({ node: options.cluster.id, countNodes });
    options.calls.answerAsLeader(NODE_CALLS.rates, async (body) => this.#answer(body));
  }

  readonly createCounter: CreateRateCounter = ({ limit, name, seconds }) => {
    const window = { window: name, limit, ms: seconds * 1_000 };
    return {
      take: (key, calls = 1) => this.#take({ ...window, key, calls }),
      giveBack: async (key, calls = 1) =>
        this.#slices.giveBack({ ...window, key, calls }, performance.now()),
    };
  };

  /** The leader may have changed, which then needs the counts of this node. */
  follow(): void {
    const term = this.#findTerm();
    if (term) this.#slices.noteTerm(term.name);
    void this.#call();
  }

  /** @throws ProblemError `unavailable` if this node no longer owns shard 0 */
  #answer(body: RatesBody): RatesAnswer {
    const term = this.#findTerm();
    if (term?.owner !== this.#options.cluster.id) {
      throw new ProblemError('unavailable', 'this node does not lead', { retryAfterMs: 1_000 });
    }
    const now = performance.now();
    const nodes = this.#listLive();
    if (this.#counts?.term !== term.name) {
      this.#counts = new RateCounts({ term: term.name, nodes, now });
    }
    return this.#counts.answer(body, { live: nodes, now });
  }

  async #take(subject: RateSubject): Promise<RateCount> {
    const count = this.#slices.take(subject, performance.now());
    const waiting = count ?? this.#wait(subject);
    void this.#call();
    return waiting;
  }

  #wait(subject: RateSubject): Promise<RateCount> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#waiters = this.#waiters.filter((each) => each !== waiter);
        resolve(this.#slices.giveUp(subject, performance.now()));
      }, WAIT_MS);
      const waiter = { subject, resolve, timer };
      this.#waiters.push(waiter);
    });
  }

  /** One call at a time; wants that arrive meanwhile share the next one. Never rejects. */
  async #call(): Promise<void> {
    if (this.#isCalling) return;
    this.#isCalling = true;
    try {
      for (;;) {
        const body = this.#slices.report(performance.now());
        if (!body) return;
        await this.#options.calls.askLeader(NODE_CALLS.rates, body).then(
          (answer) => this.#slices.learn(answer, performance.now()),
          () => this.#slices.fail(performance.now()),
        );
        this.#retryWaiters();
      }
    } finally {
      this.#isCalling = false;
    }
  }

  #retryWaiters(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    const now = performance.now();
    for (const waiter of waiters) {
      const count = this.#slices.retry(waiter.subject, now);
      if (!count) {
        this.#waiters.push(waiter);
        continue;
      }
      clearTimeout(waiter.timer);
      waiter.resolve(count);
    }
  }

  #listLive(): string[] {
    return this.#options.cluster.view.nodes.filter(({ isLive }) => isLive).map(({ id }) => id);
  }

  #findTerm(): { name: string; owner: string } | undefined {
    const shard = this.#options.cluster.view.shards.find(({ id }) => id === 0);
    if (!shard?.owner) return undefined;
    return { name: `${shard.owner} ${shard.epoch}`, owner: shard.owner };
  }
}

/** After an answer without calls left, a full window is not asked for again in this time, ms. */
const FULL_MS = 100;
/** After a failed call the leader is left alone for this time, ms. */
const OUTAGE_MS = 250;
const SWEEP_MS = 60_000;

/** A limit for one user or key. */
interface RateWindow {
  window: string;
  key: string;
  limit: number;
  /** Length of the window, ms. */
  ms: number;
}

/** Calls of one user or key, which are admitted together. */
interface RateSubject extends RateWindow {
  calls: number;
}

interface Slice extends RateWindow {
  /** The leader's name of the window; 0: unknown. */
  id: number;
  /** 0: the window has not begun. */
  endsAt: number;
  spent: number;
  granted: number;
  waiting: number;
  /** Calls that the leader has granted nobody, by its last answer. */
  left: number;
  /** Calls of all nodes, by its last answer. */
  used: number;
  /** Calls to hold ahead of need. */
  ahead: number;
  fullUntil: number;
}

interface RateSlicesOptions {
  node: string;
  /** Number of live nodes. */
  countNodes: () => number;
}

/** A node's part of the count. */
export class RateSlices {
  readonly #options: RateSlicesOptions;
  readonly #slices = new Map<string, Slice>();
  /** To be reported. */
  readonly #wanting = new Set<Slice>();
  #sent: Slice[] | undefined;
  #seq = 0;
  #term = '';
  #isComplete = false;
  #outageUntil = 0;
  #sweepAt = 0;

  constructor(options: RateSlicesOptions) {
    this.#options = options;
  }

  /** Undefined: the calls wait for an answer of the leader. Then call `retry`, or `giveUp`. */
  take(subject: RateSubject, now: number): RateCount | undefined {
    const { calls } = subject;
    const slice = this.#find(subject, now);
    const isOutage = now < this.#outageUntil;
    if (!hasCalls(slice, calls) && isOutage) this.#lend(slice, now);
    if (hasCalls(slice, calls)) return this.#admit(slice, calls, now);
    if (isOutage || now < slice.fullUntil) {
      // What was granted, but is too little for all of the calls, goes back: other nodes can spend it.
      if (slice.granted - slice.spent > slice.ahead) this.#wanting.add(slice);
      return refuse(slice, now, { isOutage });
    }
    slice.waiting += calls;
    this.#wanting.add(slice);
    return undefined;
  }

  /** Waiting calls take again. */
  retry(subject: RateSubject, now: number): RateCount | undefined {
    const slice = this.#find(subject, now);
    slice.waiting = Math.max(0, slice.waiting - subject.calls);
    return this.take(subject, now);
  }

  /** Waiting calls wait no longer. */
  giveUp(subject: RateSubject, now: number): RateCount {
    const { calls } = subject;
    const slice = this.#find(subject, now);
    slice.waiting = Math.max(0, slice.waiting - calls);
    if (!hasCalls(slice, calls)) this.#lend(slice, now);
    if (hasCalls(slice, calls)) return this.#admit(slice, calls, now);
    return refuse(slice, now, { isOutage: true });
  }

  /** Takes back admitted calls. */
  giveBack(subject: RateSubject, now: number): RateCount {
    const slice = this.#find(subject, now);
    // Unless their window has ended meanwhile.
    slice.spent = Math.max(0, slice.spent - subject.calls);
    return describe(slice, now);
  }

  /** Another leader has begun: it needs all counts of this node. */
  noteTerm(term: string): void {
    if (term === this.#term) return;
    this.#term = term;
    this.#isComplete = false;
    this.#outageUntil = 0;
    for (const slice of this.#slices.values()) {
      slice.id = 0;
      if (slice.granted > 0) this.#wanting.add(slice);
    }
  }

  /** The next call to the leader; undefined if there is none to make now. Then call `learn` or `fail`. */
  report(now: number): RatesBody | undefined {
    if (this.#sent || now < this.#outageUntil) return undefined;
    if (this.#wanting.size === 0 && this.#isComplete) return undefined;
    const batch: Slice[] = [];
    for (const slice of this.#wanting) {
      if (batch.length === MAX_REPORTS) break;
      this.#wanting.delete(slice);
      if (slice.endsAt > 0 && slice.endsAt <= now) restart(slice);
      if (slice.waiting > 0 || slice.granted > 0) batch.push(slice);
    }
    this.#sent = batch;
    this.#seq += 1;
    return {
      node: this.#options.node,
      seq: this.#seq,
      term: this.#term,
      isComplete: this.#wanting.size === 0,
      reports: batch.map((slice) => toReport(slice, now)),
    };
  }

  /** The leader has answered. */
  learn({ grants, isSettled, term }: RatesAnswer, now: number): void {
    const batch = this.#sent ?? [];
    this.#sent = undefined;
    const isNews = term !== this.#term;
    this.noteTerm(term);
    for (const [index, slice] of batch.entries()) {
      const grant = grants[index];
      if (grant) apply(slice, grant, { isSettled, now });
      if (isSettled && grant) this.#wanting.delete(slice);
      else this.#wanting.add(slice);
    }
    if (!isNews) this.#isComplete = this.#wanting.size === 0 || this.#isComplete;
    if (!isSettled) this.#outageUntil = now + FULL_MS;
  }

  /** The leader has not answered, or there is none. */
  fail(now: number): void {
    for (const slice of this.#sent ?? []) this.#wanting.add(slice);
    this.#sent = undefined;
    this.#outageUntil = now + OUTAGE_MS;
  }

  #find(subject: RateSubject, now: number): Slice {
    const { key, limit, ms, window } = subject;
    const name = `${window} ${key}`;
    const found = this.#slices.get(name);
    if (found) {
      if (found.endsAt > 0 && found.endsAt <= now) restart(found);
      return found;
    }
    this.#sweep(now);
    const slice: Slice = {
      window,
      key,
      limit,
      ms,
      id: 0,
      endsAt: 0,
      spent: 0,
      granted: 0,
      waiting: 0,
      used: 0,
      ahead: 0,
      left: limit,
      fullUntil: 0,
    };
    this.#slices.set(name, slice);
    return slice;
  }

  #admit(slice: Slice, calls: number, now: number): RateCount {
    slice.spent += calls;
    if ((slice.granted - slice.spent) * 2 < slice.ahead) this.#wanting.add(slice);
    return describe(slice, now);
  }

  /** The node's fair share of what was left. The other nodes take the rest. */
  #lend(slice: Slice, now: number): void {
    if (slice.endsAt === 0) slice.endsAt = now + slice.ms;
    if (slice.left === 0) return;
    slice.granted += Math.max(1, Math.floor(slice.left / Math.max(1, this.#options.countNodes())));
    slice.left = 0;
    this.#wanting.add(slice);
  }

  #sweep(now: number): void {
    if (now < this.#sweepAt) return;
    this.#sweepAt = now + SWEEP_MS;
    for (const [name, slice] of this.#slices) {
      if (slice.endsAt > now || slice.waiting > 0 || this.#sent?.includes(slice)) continue;
      this.#slices.delete(name);
      this.#wanting.delete(slice);
    }
  }
}

function hasCalls({ granted, spent }: Slice, calls: number): boolean {
  return spent + calls <= granted;
}

/** The window has ended; the next one has not begun. */
function restart(slice: Slice): void {
  const begun = { id: 0, endsAt: 0, spent: 0, granted: 0, used: 0, ahead: 0, fullUntil: 0 };
  Object.assign(slice, begun, { left: slice.limit });
}

/** Hands back what exceeds the need. */
function toReport(slice: Slice, now: number): RateReport {
  const { endsAt, id, key, limit, ms, spent, used, waiting, window } = slice;
  slice.granted = Math.min(slice.granted, spent + Math.max(slice.ahead, waiting));
  const endsIn = Math.max(0, endsAt - now);
  const known = { window, key, limit, ms, id, spent, granted: slice.granted };
  return { ...known, waiting, endsIn, used };
}

function apply(
  slice: Slice,
  { endsIn, extra, id, left, slice: ahead }: RateGrant,
  { isSettled, now }: { isSettled: boolean; now: number },
): void {
  if (slice.id !== 0 && slice.id !== id) restart(slice);
  slice.id = id;
  slice.endsAt = now + endsIn;
  slice.granted += extra;
  if (!isSettled) return;
  slice.ahead = ahead;
  slice.left = left;
  slice.used = Math.max(0, slice.limit - left);
  if (left === 0) slice.fullUntil = now + FULL_MS;
}

function describe({ endsAt, granted, left, ms, spent }: Slice, now: number): RateCount {
  const remaining = left + Math.max(0, granted - spent);
  return { isAdmitted: true, remaining, msBeforeNext: endsAt === 0 ? ms : endsAt - now };
}

function refuse(slice: Slice, now: number, { isOutage }: { isOutage: boolean }): RateCount {
  const { msBeforeNext } = describe(slice, now);
  const wait = isOutage ? Math.min(msBeforeNext, 1_000) : msBeforeNext;
  return { isAdmitted: false, remaining: 0, msBeforeNext: wait };
}
