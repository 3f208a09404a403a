// Repeats what the bill needs while this process manages pods: looks at budgets, posts their notices, removes old rows, and adds
// the GPU time in which workers ran attempts.
import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import { createUuidV7 } from '../../base/id.ts';
import type { Log } from '../../base/log.ts';
import { Loop, NEVER, RETRY_MS } from '../../base/loop.ts';
import { ENDING, logLevelOf, type Store } from '../../store/store.ts';
import { type BudgetNotice, type BudgetRecord, noticeTypes } from '../../wire/resources/budget.ts';
import { addBusyTime } from './bill-rows.ts';
import type { Billing } from './billing.ts';
import { endPeriod, startPeriod } from './budget-judge.ts';
import type { Budgets } from './budgets.ts';

/** Time between two looks at budgets, ms: by so much of its cost a budget may be passed before starts are refused. */
const OBSERVED_MS = 10_000;
/** Looks take long if the bill has many rows: this many times as long, nothing is looked at. */
const PAUSE_SHARE = 9;
const MAX_PAUSE_MS = 300_000;
const REMOVED_MS = 3_600_000;

export interface BillingKeeperOptions {
  store: Store;
  billing: Pick<Billing, 'removeOld'>;
  budgets: Pick<Budgets, 'observe' | 'webhookOf'>;
  /** Undefined: notices are not posted. */
  noticeSender: NoticeSender | undefined;
  clock: Clock;
  log: Log;
}

/** @returns the function that stops it */
export function keepBilling(options: BillingKeeperOptions): () => void {
  const { billing, budgets, clock, log } = options;
  const closing = new AbortController();
  let removesAt = clock.now();
  let notices: BudgetNotices | undefined;
  const loop = new Loop({
    clock,
    closing: closing.signal,
    pass: async () => {
      const beganAt = clock.now();
      const errors: unknown[] = [];
      try {
        notices ??= await openNotices(options, closing.signal);
        const found = await budgets.observe((error) => errors.push(error));
        await notices?.note(found);
      } finally {
        if (clock.now() >= removesAt) {
          await billing.removeOld();
          removesAt = clock.now() + REMOVED_MS;
        }
      }
      if (errors.length > 0) throw errors[0];
      const now = clock.now();
      const pauseMs = Math.max(OBSERVED_MS, (now - beganAt) * PAUSE_SHARE);
      return now + Math.min(pauseMs, MAX_PAUSE_MS);
    },
    onError: (err) => log[logLevelOf(err)]({ err }, 'keeping the bill failed, retrying'),
  });
  void loop.run();
  return () => closing.abort();
}

async function openNotices(
  { budgets, clock, log, noticeSender: sender, store }: BillingKeeperOptions,
  closing: AbortSignal,
): Promise<BudgetNotices | undefined> {
  if (!sender) return undefined;
  const webhookOf = (id: string) => budgets.webhookOf(id);
  const notices = new BudgetNotices({ store, clock, log, sender, webhookOf, closing });
  await notices.start();
  return notices;
}

const KIND = 'budget-notice';
/** Attempts under way: of all users, and of one. A receiver that hangs must not delay other users' notices. */
const MAX_CONCURRENT = 16;
const MAX_OF_USER = 2;

/** A notice to post. */
interface OutgoingNotice {
  /** The same in every attempt. */
  id: string;
  budgetId: string;
  userId: string;
  url: string;
  body: string;
  /** Failed attempts so far. */
  attempts: number;
}

type AfterNotice =
  | { kind: 'delivered' }
  | { kind: 'postponed'; nextAt: number; reason: string }
  | { kind: 'given_up'; reason: string };

/** Posts notices, signed, to permitted addresses only. */
export interface NoticeSender {
  /** Why the platform may not call the URL; undefined: it may, or only a DNS lookup can tell. */
  judge(url: string): string | undefined;
  /** Never rejects. Undefined: the signal aborted the attempt. */
  send(notice: OutgoingNotice, signal: AbortSignal): Promise<AfterNotice | undefined>;
  close(): Promise<void>;
}

const storedNotice = z.object({
  noticeId: z.string(),
  body: z.string(),
  attempts: z.int().min(0),
  /** Unix ms; null: delivered or given up. */
  nextAt: z.number().nullable(),
  /** End of the period: the row prevents a second notice until then. Unix ms. */
  until: z.number(),
});

interface Row extends z.infer<typeof storedNotice> {
  /** Names budget, period and state. */
  key: string;
  budgetId: string;
  userId: string;
  createdAt: number;
}

export interface BudgetNoticesOptions {
  store: Store;
  clock: Clock;
  log: Log;
  sender: NoticeSender;
  /** Undefined: the budget is gone, or no longer has a webhook. */
  webhookOf: (budgetId: string) => string | undefined;
  closing: AbortSignal;
}

/**
 * Posts a notice to a budget's webhook when the budget is nearly used up, and when it is: once in a period each, also
 * over restarts. At least once: a platform that dies between the answer and the commit posts again, with the same ID.
 */
class BudgetNotices {
  readonly #options: BudgetNoticesOptions;
  readonly #loop: Loop;
  readonly #rows = new Map<string, Row>();
  readonly #underWay = new Map<string, string>();

  constructor(options: BudgetNoticesOptions) {
    const { clock, closing, log } = options;
    this.#options = options;
    this.#loop = new Loop({
      clock,
      closing,
      pass: async () => this.#serve(),
      onError: (err) => log.error({ err }, 'posting budget notices failed, retrying'),
    });
  }

  /** Continues where an earlier process stopped. */
  async start(): Promise<void> {
    const listing = { kind: KIND, limit: Number.MAX_SAFE_INTEGER };
    const stored = await this.#options.store.read((tx) => tx.resources(listing));
    for (const { body, id: key, parent: budgetId, position: createdAt, userId } of stored) {
      const row = storedNotice.parse(JSON.parse(body));
      this.#rows.set(key, { ...row, key, budgetId, userId, createdAt });
    }
    void this.#loop.run();
  }

  /** Stores the notices that are due by what was found; each is posted once it is on disk. */
  async note(found: readonly { record: BudgetRecord; userId: string }[]): Promise<void> {
    for (const { record, userId } of found) {
      const row = this.#compose(record, userId);
      if (!row || this.#rows.has(row.key)) continue;
      await this.#put(row);
      this.#rows.set(row.key, row);
    }
    await this.#removeOld();
    this.#loop.wake();
  }

  #compose(record: BudgetRecord, userId: string): Row | undefined {
    const { id: budgetId, period, state, webhook, ...shown } = record;
    if (webhook === null || state === 'ok') return undefined;
    const now = this.#options.clock.now();
    const notice: BudgetNotice = {
      type: noticeTypes[state],
      timestamp: new Date(now).toISOString(),
      data: { id: budgetId, period, state, ...shown },
    };
    return {
      key: `${budgetId}/${startPeriod(period, now)}/${state}`,
      budgetId,
      userId,
      createdAt: now,
      until: endPeriod(period, now),
      noticeId: createUuidV7(now),
      body: JSON.stringify(notice),
      attempts: 0,
      nextAt: now,
    };
  }

  /** A row ends with its period, once it has been dealt with. */
  async #removeOld(): Promise<void> {
    const { clock, store } = this.#options;
    const now = clock.now();
    for (const { key, nextAt, until } of [...this.#rows.values()]) {
      if (nextAt !== null || until > now) continue;
      await store.write((tx) => tx.removeResource({ kind: KIND, id: key }), ENDING);
      this.#rows.delete(key);
    }
  }

  /** Starts the attempts that are due. @returns when the next one is due, Unix ms */
  #serve(): number {
    const now = this.#options.clock.now();
    let next = NEVER;
    for (const row of this.#rows.values()) {
      if (row.nextAt === null || this.#underWay.has(row.key)) continue;
      if (row.nextAt > now) next = Math.min(next, row.nextAt);
      else if (this.#hasCapacity(row.userId)) void this.#attempt(row);
    }
    return next;
  }

  #hasCapacity(userId: string): boolean {
    const ofUser = [...this.#underWay.values()].filter((each) => each === userId).length;
    return this.#underWay.size < MAX_CONCURRENT && ofUser < MAX_OF_USER;
  }

  /** Never rejects. */
  async #attempt(row: Row): Promise<void> {
    const { clock, closing, log, sender, webhookOf } = this.#options;
    const { attempts, body, budgetId, key, noticeId: id, userId } = row;
    this.#underWay.set(key, userId);
    try {
      const url = webhookOf(budgetId);
      const after: AfterNotice | undefined =
        url === undefined
          ? { kind: 'given_up', reason: 'the budget has no webhook any more' }
          : await sender.send({ id, budgetId, userId, url, body, attempts }, closing);
      if (after) await this.#settle(row, after);
    } catch (err) {
      log[logLevelOf(err)]({ err, budget: budgetId }, 'storing a budget notice failed, retrying');
      this.#rows.set(key, { ...row, nextAt: clock.now() + RETRY_MS });
    }
    this.#underWay.delete(key);
    this.#loop.wake();
  }

  async #settle(row: Row, after: AfterNotice): Promise<void> {
    const { log } = this.#options;
    const nextAt = after.kind === 'postponed' ? after.nextAt : null;
    const settled = { ...row, attempts: row.attempts + 1, nextAt };
    await this.#put(settled);
    this.#rows.set(row.key, settled);
    const note = { budget: row.budgetId, notice: row.noticeId, attempt: settled.attempts };
    if (after.kind === 'delivered') log.debug(note, 'budget notice delivered');
    else if (after.kind === 'given_up') {
      log.warn({ ...note, reason: after.reason }, 'budget notice given up');
    } else {
      log.info({ ...note, reason: after.reason, nextAt }, 'budget notice failed, retrying');
    }
  }

  async #put({ budgetId, createdAt, key, userId, ...row }: Row): Promise<void> {
    const stored = { kind: KIND, id: key, userId, parent: budgetId, position: createdAt };
    await this.#options.store.write(
      (tx) => tx.putResource({ ...stored, body: JSON.stringify(row) }),
      ENDING,
    );
  }
}

const GPU_USE = 'gpu_use';
/** Time between two writes for an endpoint with work, ms. */
const WRITTEN_MS = 60_000;

/** What a queue has counted. */
export interface GpuCount {
  /** When it began to count, Unix ms: another one begins at 0 again. */
  since: number;
  /** GPUs × ms of attempts that ended. */
  ms: number;
}

const storedCount = z.object({ since: z.number(), ms: z.number() });

export interface GpuUseOptions {
  store: Store;
  clock: Clock;
  log: Log;
}

interface CountedLoad {
  gpuCount?: GpuCount | undefined;
  waiting: number;
  running: number;
}

/**
 * Adds the GPU time in which workers ran attempts to the bill of their endpoint, beside the time for which their containers had
 * the GPUs. The queue of the endpoint counts it; the scaler asks for the count.
 */
export class GpuUse {
  readonly #options: GpuUseOptions;
  /** What is on the bill, by endpoint. */
  readonly #written = new Map<string, GpuCount & { at: number }>();

  constructor(options: GpuUseOptions) {
    this.#options = options;
  }

  /** Adds what the count has grown by. Never rejects: what is missing is added by a later call. */
  async note({ id, userId }: { id: string; userId: string }, load: CountedLoad): Promise<void> {
    const { gpuCount: count, running, waiting } = load;
    if (!count || count.ms === 0) return;
    const { clock, log, store } = this.#options;
    const now = clock.now();
    const written = this.#written.get(id);
    if (written?.since === count.since && written.ms === count.ms) return;
    const isBusy = running > 0 || waiting > 0;
    if (written && isBusy && now - written.at < WRITTEN_MS) return;
    try {
      await store.write((tx) => {
        const endpoint = tx.endpoint(id);
        if (!endpoint || endpoint.deleted) return;
        const row = tx.resource({ kind: GPU_USE, id });
        const before = row && storedCount.parse(JSON.parse(row.body));
        const ms = count.ms - (before?.since === count.since ? before.ms : 0);
        if (ms <= 0) return;
        addBusyTime(tx, { kind: 'endpoint', id, userId, name: null }, { now, ms });
        const body = JSON.stringify(count);
        tx.putResource({ kind: GPU_USE, id, userId, parent: id, position: 0, body });
      });
      this.#written.set(id, { ...count, at: now });
    } catch (err) {
      log[logLevelOf(err)]({ err, endpoint: id }, 'adding GPU time to the bill failed, retrying');
    }
  }

  /** The endpoint was deleted. */
  forget(endpointId: string): void {
    this.#written.delete(endpointId);
  }
}
