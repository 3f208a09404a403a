// The shared limits of a queue: how many jobs of an endpoint may start now within them. Those that belong to this shard are kept
// here, with rows in the store; of the others, the queue borrows starts from the queue of their shard.
import type { ResumableClock } from '../../../base/clock.ts';
import {
  ENDING,
  logLevelOf,
  OWNER,
  type Reader,
  type StoredEndpoint,
  type StoredJob,
  type Transaction,
} from '../../../store/store.ts';
import { ProblemError } from '../../../wire/problem.ts';
import type { QueueParts } from '../../queue-parts.ts';
import { BorrowedLimit } from './borrowed.ts';
import { Borrowing } from './borrowing.ts';
import {
  type Bucket,
  Buckets,
  countRunning,
  type SharedLimit,
  type SharedLimitSource,
} from './buckets.ts';
import { LimitLedger, storedLedger } from './ledger.ts';
import type { LoanAnswer, LoanMessage } from './loans.ts';

const KIND = 'sharedLimitUse';
/** What was used stays so long in memory: if it is used again soon, it needs no new row. */
const KEPT_MS = 60_000;
/** Buckets that one timer looks at. */
const AT_ONCE = 1_000;
/** Shortest time between two looks at a bucket, ms. */
const STEP_MS = 10;

/** What one search may take, and what it has asked. */
export interface SharedSearch {
  endpointId: string;
  isTake: boolean;
  /** Jobs that may start. */
  free: number;
  /** Jobs of a group that may start. Undefined: no limit holds for groups. */
  freeOf: ((group: string) => number) | undefined;
  /** The limits of groups. */
  terms: string;
  asked: Map<Bucket, number>;
}

interface Outcome {
  /** Jobs that start. */
  jobs: readonly StoredJob[];
  /** Jobs that the search wanted. */
  wanted: number;
  /** It has found jobs that shared limits hold back. */
  isHeldBack: boolean;
}

/** One of the limits that a handler names. */
interface NamedLimit {
  /** Those of the endpoint. */
  ids: readonly string[];
  name: string;
  /** Of the job. */
  group: string | null;
}

/** What holds a job back. */
export interface SharedHold {
  limit: SharedLimit;
  isPaused: boolean;
  /** Unix ms; undefined: when a job ends, or it is not known. */
  until: number | undefined;
}

type SharedLimitsOptions = Pick<QueueParts, 'closing' | 'log' | 'ranMs' | 'signals' | 'store'> & {
  clock: ResumableClock;
  source: SharedLimitSource | undefined;
};

export class SharedLimits {
  readonly #options: SharedLimitsOptions;
  readonly #buckets = new Buckets();
  readonly #borrowing: Borrowing | undefined;
  /** The limits of each endpoint that has had a take. */
  readonly #named = new Map<string, readonly string[]>();
  /** By endpoint: groups that may start more jobs since its last take. */
  readonly #grown = new Map<string, Set<string>>();
  /** Buckets that had nothing for an endpoint in a search that is not settled: if it runs again, it does not ask for their groups. */
  readonly #refused = new Map<string, Set<Bucket>>();
  /** The last message of each shard. */
  readonly #heard = new Map<number, Pick<LoanMessage, 'seq' | 'session'>>();
  /** How often groups could be counted again after there were too many. */
  #recounts = 0;
  /** When the queue started: another one of the shard is another session. */
  #session = 0;
  #timer: { at: number; cancel: () => void } | undefined;

  constructor(options: SharedLimitsOptions) {
    const { clock, closing, log, source, store } = options;
    this.#options = options;
    if (!source) return;
    this.#borrowing = new Borrowing({
      ...{ clock, closing, log, source, store },
      buckets: this.#buckets,
      now: () => this.#now,
      onGrant: (bucket) => this.#serve(bucket),
    });
    closing.addEventListener('abort', () => this.#timer?.cancel());
  }

  /** Reads what an earlier run has kept, and tells the shards of other limits what runs here. */
  async load(): Promise<void> {
    const { clock, store } = this.#options;
    this.#session = clock.now();
    const rows = await store.read((tx) =>
      tx.resources({ kind: KIND, limit: Number.MAX_SAFE_INTEGER }),
    );
    for (const { body, parent: limitId } of rows) {
      const stored = storedLedger.parse(JSON.parse(body));
      const state = new LimitLedger(stored, this.#now);
      const bucket = { limitId, group: stored.group, state, running: 0, hasRow: true };
      this.#schedule(this.#buckets.put({ ...bucket, passed: new Set() }));
    }
    await this.#borrowing?.begin(this.#session);
  }

  /** Undefined: no shared limit holds for the endpoint. */
  open(
    tx: Reader,
    { id: endpointId, settings }: Pick<StoredEndpoint, 'id' | 'settings'>,
    isTake: boolean,
  ): SharedSearch | undefined {
    if (settings.limits.length === 0) return undefined;
    this.#named.set(endpointId, settings.limits);
    this.#options.signals.onLeaseEnd ??= this.#noteEnd;
    const limits = settings.limits.map((id) => this.#options.source?.find(id));
    const asked = new Map<Bucket, number>();
    const search: SharedSearch = {
      endpointId,
      isTake,
      free: 0,
      freeOf: undefined,
      terms: '',
      asked,
    };
    // This node has not read the limit yet.
    if (limits.includes(undefined)) return search;
    search.free = Number.POSITIVE_INFINITY;
    const keyed: SharedLimit[] = [];
    for (const limit of limits) {
      if (limit?.key === 'group') keyed.push(limit);
      else if (limit) search.free = Math.min(search.free, this.#ask(tx, search, limit, null));
    }
    if (keyed.length === 0) return search;
    search.terms = JSON.stringify([this.#recounts, keyed]);
    search.freeOf = (group) =>
      Math.min(...keyed.map((limit) => this.#ask(tx, search, limit, group)));
    return search;
  }

  /** Groups that may start jobs again. `settle` forgets them. */
  grown(endpointId: string): ReadonlySet<string> {
    return this.#grown.get(endpointId) ?? NONE;
  }

  /** Counts jobs that start with the operation. Call it at the end of a take, when it cannot run again. */
  settle(tx: Transaction, search: SharedSearch, { isHeldBack, jobs, wanted }: Outcome): void {
    const { endpointId } = search;
    this.#grown.delete(endpointId);
    for (const bucket of this.#refused.get(endpointId) ?? []) {
      if (!search.asked.has(bucket)) search.asked.set(bucket, 0);
    }
    this.#refused.delete(endpointId);
    const now = this.#now;
    const isShort = isHeldBack || jobs.length > 0;
    for (const [bucket, share] of search.asked) {
      const limit = this.#options.source?.find(bucket.limitId);
      if (!limit) continue;
      const { group, state } = bucket;
      const { turns } = state;
      const count = group === null ? jobs.length : jobs.filter((job) => job.group === group).length;
      if (count > 0) {
        state.start(limit, count, now);
        bucket.running += count;
        turns.took(endpointId, count, now);
        if (limit.rateLimit) this.#store(tx, bucket);
      }
      const takers = Math.max(1, this.#options.signals.countTakers(endpointId));
      if (count === share && isShort && count < wanted) {
        turns.wait(endpointId, { demand: takers * (wanted - count), now });
      } else if (count < share) {
        if (isHeldBack && isHeldElsewhere(search, bucket)) turns.noteHeldBack(endpointId, now);
        else turns.leave(endpointId);
      }
      this.#serve(bucket);
    }
  }

  forgetEndpoint(endpointId: string): void {
    this.#named.delete(endpointId);
    this.#grown.delete(endpointId);
    this.#refused.delete(endpointId);
  }

  /** What holds back a job whose endpoint names these limits. */
  explain({ group }: StoredJob, limitIds: readonly string[]): SharedHold | undefined {
    for (const id of limitIds) {
      const limit = this.#options.source?.find(id);
      if (!limit || (limit.key === 'group' && group === null)) continue;
      const bucket = this.#buckets.find({ limitId: id, group: limit.key === null ? null : group });
      if (!bucket) continue;
      const { running, state } = bucket;
      const now = this.#now;
      if (state.free({ terms: limit, running, now }) > 0) continue;
      const at = state.freeAt(limit, now);
      const until = at === undefined ? undefined : Math.round(this.#options.clock.now() + at - now);
      return { limit, isPaused: state.pausedUntil > now, until };
    }
    return undefined;
  }

  /**
   * No endpoint of the limit starts jobs for so long; other shards learn of it within a second. `name`: that of one of the limits,
   * or its ID. @returns false if none of them has it
   */
  async pause({ group, ids, name }: NamedLimit, forMs: number): Promise<boolean> {
    const { source, store } = this.#options;
    const limits = ids.flatMap((id) => source?.find(id) ?? []);
    const limit = limits.find((each) => each.id === name || each.name === name);
    if (!source || !limit) return false;
    if (limit.key === 'group' && group === null) return true;
    const bucket = this.#buckets.open(limit, limit.key === null ? null : group, source.shard);
    if (!bucket) return true;
    const { state } = bucket;
    if (state instanceof BorrowedLimit) state.pause(this.#now + forMs, this.#now);
    else {
      state.pause(this.#now + forMs);
      await store.write((tx) => this.#store(tx, bucket), ENDING);
    }
    this.#schedule(bucket);
    return true;
  }

  /** Lends starts of limits of this shard to another shard. @throws ProblemError `conflict` for a message of the past */
  async lend(message: LoanMessage): Promise<LoanAnswer> {
    const { source, store } = this.#options;
    if (!source) throw new ProblemError('conflict', 'no limits are shared here');
    const { reports, seq, session, shard, stage, term } = message;
    const ofHere = this.#session;
    // It was made for an earlier queue of this shard, and may have been overtaken there.
    if (term !== ofHere) return { term: ofHere, grants: [] };
    const heard = this.#heard.get(shard);
    const isOld =
      heard && (session < heard.session || (session === heard.session && seq <= heard.seq));
    if (isOld) throw new ProblemError('conflict', `shard ${shard} has sent a later message`);
    this.#heard.set(shard, { session, seq });
    return store.write((tx) => {
      // Lists first, because the operation may run again.
      const asked = reports.map((report) => {
        const limit = source.find(report.limitId);
        const running = limit ? countRunning(tx, source, report) : 0;
        return { report, limit, running };
      });
      const borrower = { shard, session };
      const grants = asked.map(({ limit, report, running }) => {
        const bucket = limit && this.#buckets.open(limit, report.group, source.shard);
        if (!bucket || !(bucket.state instanceof LimitLedger)) return null;
        if ((bucket.state.sessionOf(shard) ?? session) > session) return null;
        bucket.running = running;
        const grant = bucket.state.lend(borrower, report, {
          terms: limit,
          running,
          now: this.#now,
        });
        this.#store(tx, bucket);
        this.#serve(bucket);
        return grant;
      });
      if (stage === 'rest') this.#endEarlier(tx, borrower);
      return { term: ofHere, grants };
    }, ENDING);
  }

  /** The shard has reported all that runs there: what it had before, it has no longer. */
  #endEarlier(tx: Transaction, borrower: { shard: number; session: number }): void {
    const { source } = this.#options;
    for (const bucket of this.#buckets.all()) {
      const { state } = bucket;
      const limit = source?.find(bucket.limitId);
      if (!(state instanceof LimitLedger) || !limit) continue;
      if ((state.sessionOf(borrower.shard) ?? borrower.session) >= borrower.session) continue;
      state.begin(borrower, 0, { terms: limit, running: bucket.running, now: this.#now });
      this.#store(tx, bucket);
      this.#serve(bucket);
    }
  }

  /** How many jobs of the search may start by this limit. */
  #ask(tx: Reader, search: SharedSearch, limit: SharedLimit, group: string | null): number {
    const { source } = this.#options;
    if (!source || group === '') return Number.POSITIVE_INFINITY;
    const { endpointId, isTake } = search;
    if (!isTake) return this.#look(tx, source, limit, group);
    const bucket = this.#buckets.open(limit, group, source.shard);
    if (!bucket) return 0;
    const known = search.asked.get(bucket);
    if (known !== undefined) return known;
    bucket.running = countRunning(tx, source, bucket);
    const { state } = bucket;
    const moment = { terms: limit, running: bucket.running, now: this.#now };
    const free = state.free(moment);
    this.#offer(bucket, free);
    const share = state.turns.shareOf(endpointId, free);
    if (group !== null && share < Number.POSITIVE_INFINITY) bucket.passed.add(endpointId);
    search.asked.set(bucket, share);
    if (group !== null && share === 0) {
      const refused = this.#refused.get(endpointId) ?? new Set();
      this.#refused.set(endpointId, refused.add(bucket));
    }
    this.#schedule(bucket);
    return share;
  }

  /** For the scaler: whoever waits may need a worker, and one that has borrowed nothing may get it. */
  #look(tx: Reader, source: SharedLimitSource, limit: SharedLimit, group: string | null): number {
    const bucket = this.#buckets.find({ limitId: limit.id, group });
    const running = countRunning(tx, source, { limitId: limit.id, group });
    const { concurrency, rateLimit } = limit;
    const now = this.#now;
    const isUnknown = !bucket || (bucket.state instanceof BorrowedLimit && !bucket.state.isRefused);
    if (!isUnknown) return bucket.state.free({ terms: limit, running, now });
    if ((bucket?.state.pausedUntil ?? now) > now) return 0;
    const slots = concurrency === null ? Number.POSITIVE_INFINITY : concurrency - running;
    return Math.max(0, Math.min(slots, rateLimit?.max ?? Number.POSITIVE_INFINITY));
  }

  /** A lease of the job has ended. */
  readonly #noteEnd = ({ endpointId, group }: StoredJob): void => {
    const { source } = this.#options;
    for (const limitId of this.#named.get(endpointId) ?? []) {
      const key = source?.find(limitId)?.key ?? null;
      const bucket = this.#buckets.find({ limitId, group: key === null ? null : group });
      if (!bucket) continue;
      bucket.running = Math.max(0, bucket.running - 1);
      this.#serve(bucket);
    }
  };

  /** Offers what is free to those who wait. */
  #serve(bucket: Bucket): void {
    const limit = this.#options.source?.find(bucket.limitId);
    const { running, state } = bucket;
    if (limit) this.#offer(bucket, state.free({ terms: limit, running, now: this.#now }));
    this.#schedule(bucket);
  }

  #offer({ group, passed, state }: Bucket, free: number): void {
    const { signals } = this.#options;
    if (group !== null && free > 0) {
      for (const endpointId of passed) {
        const groups = this.#grown.get(endpointId) ?? new Set<string>();
        this.#grown.set(endpointId, groups.add(group));
      }
      passed.clear();
    }
    for (const { count, who } of state.turns.offer(free, this.#now)) signals.wakeTakers(who, count);
  }

  #schedule(bucket: Bucket): void {
    const { passed, state } = bucket;
    const limit = this.#options.source?.find(bucket.limitId);
    const now = this.#now;
    if (state instanceof BorrowedLimit) {
      if (limit) state.noteChange({ terms: limit, running: bucket.running, now });
      this.#borrowing?.follow(bucket);
    }
    const isWanted = state.turns.size > 0 || passed.size > 0;
    const freeAt = (isWanted && limit && state.freeAt(limit, now)) || Number.POSITIVE_INFINITY;
    const chargeAt = state instanceof LimitLedger ? state.nextChargeAt : Number.POSITIVE_INFINITY;
    const overAt = Math.max(now, this.#emptyAt(bucket) + KEPT_MS);
    const at = Math.min(state.turns.nextEndAt, freeAt, chargeAt, overAt);
    this.#buckets.due.set(bucket, Math.max(at, now + STEP_MS));
    this.#arm();
  }

  /** Since when nothing of it counts. */
  #emptyAt({ limitId, running, state }: Bucket): number {
    const limit = this.#options.source?.find(limitId);
    if (!limit) return Number.NEGATIVE_INFINITY;
    if (running > 0) return Number.POSITIVE_INFINITY;
    return state instanceof LimitLedger ? state.emptyAt(limit) : state.emptyAt;
  }

  #arm(): void {
    const { clock, closing } = this.#options;
    const at = this.#buckets.due.firstAt;
    if (at === Number.POSITIVE_INFINITY || closing.aborted) return;
    if (this.#timer && this.#timer.at <= at) return;
    this.#timer?.cancel();
    const cancel = clock.after(Math.max(0, at - this.#now), () => {
      this.#timer = undefined;
      void this.#pass();
    });
    this.#timer = { at, cancel };
  }

  /** Serves those whose time has come, and forgets what is over. Never rejects. */
  async #pass(): Promise<void> {
    const { log, store } = this.#options;
    const now = this.#now;
    const due = this.#buckets.due.list(now, AT_ONCE);
    const over = due.filter((bucket) => this.#emptyAt(bucket) + KEPT_MS <= now);
    for (const bucket of over) this.#buckets.delete(bucket);
    if (over.length > 0) this.#recounts += 1;
    for (const bucket of due) if (!over.includes(bucket)) this.#serve(bucket);
    this.#arm();
    const stored = over.filter(({ hasRow }) => hasRow);
    if (stored.length === 0) return;
    try {
      await store.write((tx) => {
        for (const bucket of stored) {
          // It may be in use again.
          if (!this.#buckets.find(bucket)) tx.removeResource({ kind: KIND, id: nameRow(bucket) });
        }
      }, LATER);
    } catch (error) {
      log[logLevelOf(error)]({ err: error }, 'could not remove the rows of idle shared limits');
    }
  }

  #store(tx: Transaction, bucket: Bucket): void {
    const { group, limitId: parent, state } = bucket;
    if (!(state instanceof LimitLedger)) return;
    const body = JSON.stringify(state.toStored(group, this.#now));
    bucket.hasRow = true;
    const id = nameRow(bucket);
    const position = this.#options.clock.now();
    tx.putResource({ kind: KIND, id, userId: OWNER, parent, position, body });
  }

  /**
   * Run time of the platform: a wall clock that is set forward ends no window early, neither now nor before the next start. Time in
   * which no platform runs is left out.
   */
  get #now(): number {
    return this.#options.ranMs();
  }
}

/** Another limit lets none of the jobs start that this one would. */
function isHeldElsewhere({ asked }: SharedSearch, { group }: Bucket): boolean {
  const others = [...asked].filter(([, share]) => share === 0).map(([other]) => other.group);
  return others.some((other) => other === null || group === null || other === group);
}

const LATER = { onDisk: 'later' } as const;

function nameRow({ group, limitId }: Pick<Bucket, 'group' | 'limitId'>): string {
  return group === null ? limitId : `${limitId}/${group}`;
}

const NONE: ReadonlySet<string> = new Set();
