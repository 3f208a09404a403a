// Borrows starts of shared limits from the shards that the limits belong to: one message at a time to each shard, for all limits
// that need one.
import type { Clock } from '../../../base/clock.ts';
import { DueHeap } from '../../../base/due-heap.ts';
import { ENDING, type Transaction } from '../../../store/store.ts';
import type { QueueParts } from '../../queue-parts.ts';
import { BorrowedLimit, type BorrowedReport } from './borrowed.ts';
import { type Bucket, type Buckets, countRunning, type SharedLimitSource } from './buckets.ts';
import { type LoanAnswer, type LoanMessage, type LoanReport, MAX_REPORTS } from './loans.ts';

const RETRY_MS = 500;
/** Shortest time between two messages to a shard, ms: what comes meanwhile is in the next one. */
const STEP_MS = 5;

type BorrowingOptions = Pick<QueueParts, 'closing' | 'log' | 'store'> & {
  clock: Clock;
  source: SharedLimitSource;
  buckets: Buckets;
  /** The time of the buckets. */
  now: () => number;
  /** The bucket has more than before, or others do not need it. */
  onGrant: (bucket: Bucket) => void;
};

interface Lender {
  home: number;
  /** By the time of their next report. */
  due: DueHeap<Bucket>;
  /** Ran jobs when the queue started, and no answer says that the lender knows it. */
  untold: Set<Bucket>;
  /** Of its queue; null: not known yet. */
  term: number | null;
  seq: number;
  /** It knows what runs here. */
  stage: LoanMessage['stage'];
  isAsking: boolean;
  timer: { at: number; cancel: () => void } | undefined;
}

interface Asked {
  bucket: Bucket;
  state: BorrowedLimit;
  report: BorrowedReport;
}

export class Borrowing {
  readonly #options: BorrowingOptions;
  readonly #lenders = new Map<number, Lender>();
  /** Of this queue: a later one of the shard has a later session. */
  #session = 0;

  constructor(options: BorrowingOptions) {
    this.#options = options;
    options.closing.addEventListener('abort', () => {
      for (const { timer } of this.#lenders.values()) timer?.cancel();
    });
  }

  /** Tells the shards of all limits what runs here. */
  async begin(session: number): Promise<void> {
    this.#session = session;
    const { source, store } = this.#options;
    const homes = source.homes().filter((home) => home !== source.shard);
    if (homes.length === 0) return;
    const running = await store.read((tx) =>
      tx.leasedJobs().map((job) => ({ job, limits: tx.endpoint(job.endpointId)?.settings.limits })),
    );
    for (const { job, limits = [] } of running) {
      for (const id of limits) {
        const limit = source.find(id);
        if (!limit || limit.home === source.shard) continue;
        if (limit.key === 'group' && job.group === null) continue;
        const group = limit.key === null ? null : job.group;
        const bucket = this.#options.buckets.open(limit, group, source.shard);
        if (bucket?.state instanceof BorrowedLimit) this.#open(limit.home).untold.add(bucket);
      }
    }
    for (const home of homes) this.#arm(this.#open(home));
  }

  /** The bucket reports when it wants to. */
  follow(bucket: Bucket): void {
    const { buckets, source } = this.#options;
    const limit = source.find(bucket.limitId);
    if (!limit || !(bucket.state instanceof BorrowedLimit)) return;
    const lender = this.#open(limit.home);
    if (buckets.find(bucket) !== bucket || bucket.state.askAt === Number.POSITIVE_INFINITY) {
      lender.due.delete(bucket);
    } else lender.due.set(bucket, bucket.state.askAt);
    this.#arm(lender);
  }

  #open(home: number): Lender {
    const known = this.#lenders.get(home);
    if (known) return known;
    const lender: Lender = {
      ...{
        home,
        due: new DueHeap<Bucket>(),
        untold: new Set<Bucket>(),
        seq: 0,
        term: null,
        isAsking: false,
        timer: undefined,
      },
      stage: 'begin',
    };
    this.#lenders.set(home, lender);
    return lender;
  }

  #arm(lender: Lender, atLeastMs = STEP_MS): void {
    const { clock, closing, now } = this.#options;
    if (closing.aborted || lender.isAsking) return;
    const at = Math.max(now() + atLeastMs, lender.stage === 'on' ? lender.due.firstAt : 0);
    if (at === Number.POSITIVE_INFINITY || (lender.timer && lender.timer.at <= at)) return;
    lender.timer?.cancel();
    const cancel = clock.after(Math.max(0, at - now()), () => {
      lender.timer = undefined;
      if (lender.stage === 'on' && lender.due.firstAt > now()) this.#arm(lender);
      else void this.#ask(lender);
    });
    lender.timer = { at, cancel };
  }

  /** Never rejects. */
  async #ask(lender: Lender): Promise<void> {
    const { closing, log, now, onGrant, source, store } = this.#options;
    lender.isAsking = true;
    let asked: Asked[] = [];
    let restMs = STEP_MS;
    try {
      // Its commit has all jobs that have started before, and none that has ended is not on disk.
      await store.write((tx) => {
        asked = this.#report(tx, lender);
      }, ENDING);
      const { home } = lender;
      const isLast = lender.untold.size <= MAX_REPORTS;
      const stage = lender.stage === 'begin' && isLast ? 'rest' : lender.stage;
      lender.seq += 1;
      const reports = asked.map(({ bucket, report }): LoanReport => {
        const { group, limitId } = bucket;
        return { limitId, group, ...report };
      });
      const ofShard = { home, shard: source.shard, session: this.#session, seq: lender.seq };
      const sentAt = now();
      const { term } = lender;
      const answer = await source.lend({ ...ofShard, term, stage, reports });
      lender.term = answer.term;
      const isFor = answer.term === term;
      if (isFor && stage === 'rest') lender.stage = 'on';
      if (isFor) this.#apply(asked, answer, sentAt);
      if (isFor) for (const { bucket } of asked) lender.untold.delete(bucket);
      else for (const { state } of asked) state.fail(now(), 0);
    } catch (error) {
      restMs = RETRY_MS;
      for (const { state } of asked) state.fail(now(), RETRY_MS);
      if (!closing.aborted) {
        log.debug(
          { err: error, shard: lender.home },
          'borrowing of a shared limit failed, retrying',
        );
      }
    }
    lender.isAsking = false;
    for (const { bucket } of asked) {
      this.follow(bucket);
      onGrant(bucket);
    }
    this.#arm(lender, restMs);
  }

  #report(tx: Transaction, lender: Lender): Asked[] {
    const { now, source } = this.#options;
    const time = now();
    // The last message of the beginning must have all that no message before has told: the home takes other jobs for ended.
    const due = [...new Set([...lender.untold, ...lender.due.list(time, MAX_REPORTS)])];
    const counted = due.slice(0, MAX_REPORTS).map((bucket) => {
      const running = countRunning(tx, source, bucket);
      return { bucket, running, terms: source.find(bucket.limitId) };
    });
    return counted.flatMap(({ bucket, running, terms }) => {
      const { state } = bucket;
      lender.due.delete(bucket);
      if (!terms) lender.untold.delete(bucket);
      if (!terms || !(state instanceof BorrowedLimit)) return [];
      bucket.running = running;
      return { bucket, state, report: state.report({ terms, running, now: time }) };
    });
  }

  #apply(asked: readonly Asked[], { grants }: LoanAnswer, sentAt: number): void {
    const now = this.#options.now();
    for (const [index, { report, state }] of asked.entries()) {
      const grant = grants[index];
      if (grant) state.grant(report, grant, { now, sentAt });
      else state.fail(now, RETRY_MS);
    }
  }
}
