// The leader's counts of calls over all nodes: it never grants more than a limit, and holds back slices as it fills. Also
// the messages of the call `rates`.
import { z } from 'zod';

/** Share of a limit that all nodes together may hold ahead of need. */
const AHEAD_SHARE = 0.05;
/** A new leader grants nothing until all nodes have reported, but waits no longer than this, ms. */
const SETTLE_MS = 3_000;
const SWEEP_MS = 60_000;

interface Counter {
  id: number;
  endsAt: number;
  /** Calls that each node may admit, those that it has admitted included. */
  granted: Map<string, number>;
  /** Granted to nodes that have forgotten it. */
  lost: number;
  /** Of windows that began under another leader: what that one had granted, and what this one has added. */
  before: number;
  added: number;
}

/** Calls that a node may hold ahead of need. */
export function sliceOf(limit: number, free: number, nodes: number): number {
  return Math.floor(Math.min((limit * AHEAD_SHARE) / nodes, free / (2 * nodes)));
}

export interface RateCountsOptions {
  term: string;
  /** Nodes that may know counts of the leader before. */
  nodes: readonly string[];
  now: number;
}

export class RateCounts {
  readonly term: string;
  readonly #settleAt: number;
  readonly #silent: Set<string>;
  readonly #counters = new Map<string, Counter>();
  readonly #seqs = new Map<string, number>();
  #lastId = 0;
  #sweepAt: number;

  constructor({ nodes, now, term }: RateCountsOptions) {
    this.term = term;
    this.#silent = new Set(nodes);
    this.#settleAt = now + SETTLE_MS;
    this.#sweepAt = now + SWEEP_MS;
  }

  /** `live`: the IDs of all live nodes. */
  answer(body: RatesBody, { live, now }: { live: readonly string[]; now: number }): RatesAnswer {
    const { term } = this;
    const isOld = body.seq <= (this.#seqs.get(body.node) ?? -1);
    if (isOld) return { term, isSettled: false, grants: [] };
    this.#seqs.set(body.node, body.seq);
    this.#sweep(live, now);
    if (body.isComplete && body.term === term) this.#silent.delete(body.node);
    const isSettled = now >= this.#settleAt || !live.some((id) => this.#silent.has(id));
    const nodes = Math.max(1, live.length);
    const grants = body.reports.map((report) => {
      const known = body.term === term ? report : { ...report, id: 0 };
      const counter = this.#note(body.node, known, now);
      return grant(counter, known, { node: body.node, isSettled, nodes, now });
    });
    return { term, isSettled, grants };
  }

  /** Takes over what the node says it may admit. */
  #note(node: string, report: RateReport, now: number): Counter {
    const { endsIn, granted, id, used } = report;
    const name = `${report.window} ${report.key}`;
    const isCarried = id === 0 && endsIn > 0;
    let counter = this.#counters.get(name);
    if (!counter || counter.endsAt <= now) {
      const endsAt = now + (isCarried ? endsIn : report.ms);
      this.#lastId += 1;
      counter = { id: this.#lastId, endsAt, granted: new Map(), lost: 0, before: 0, added: 0 };
      this.#counters.set(name, counter);
    }
    if (id === counter.id) {
      counter.granted.set(node, granted);
      return counter;
    }
    counter.lost += counter.granted.get(node) ?? 0;
    counter.granted.set(node, isCarried ? granted : 0);
    if (isCarried) counter.before = Math.max(counter.before, used);
    return counter;
  }

  #sweep(live: readonly string[], now: number): void {
    if (now < this.#sweepAt) return;
    this.#sweepAt = now + SWEEP_MS;
    for (const [name, { endsAt }] of this.#counters) if (endsAt <= now) this.#counters.delete(name);
    for (const node of this.#seqs.keys()) if (!live.includes(node)) this.#seqs.delete(node);
  }
}

interface GrantContext {
  node: string;
  isSettled: boolean;
  nodes: number;
  now: number;
}

function grant(
  counter: Counter,
  { granted, id, limit, spent, waiting }: RateReport,
  { isSettled, node, nodes, now }: GrantContext,
): RateGrant {
  const free = Math.max(0, limit - sumOf(counter));
  // A window that has ended leaves nothing to spend.
  const held = id === 0 || id === counter.id ? Math.max(0, granted - spent) : 0;
  const needed = Math.min(free, Math.max(0, waiting - held));
  const slice = sliceOf(limit, free - needed, nodes);
  const ahead = Math.max(0, slice - Math.max(0, held - waiting));
  const extra = isSettled ? needed + ahead : 0;
  counter.granted.set(node, (counter.granted.get(node) ?? 0) + extra);
  counter.added += extra;
  return { id: counter.id, extra, left: free - extra, slice, endsIn: counter.endsAt - now };
}

function sumOf({ added, before, granted, lost }: Counter): number {
  let sum = lost;
  for (const each of granted.values()) sum += each;
  return before === 0 ? sum : Math.max(sum, before + added);
}

// The call `rates`: a node reports what it has spent of limits, and the leader grants it more.

/** Limits of one call. At most 64 KiB with names of 128 bytes. */
export const MAX_REPORTS = 128;

const count = z.number().int().nonnegative();

const report = z.object({
  window: z.string(),
  /** User or worker key. */
  key: z.string(),
  limit: count,
  /** Length of the window, ms. */
  ms: z.number().positive(),
  /** The window as the leader named it; 0 if this leader has not named it. */
  id: count,
  /** Calls that the node has admitted, and those that it may admit in all. */
  spent: count,
  granted: count,
  /** Calls that wait for the answer. */
  waiting: count,
  /** Until the window ends, ms; 0 if it has not begun. */
  endsIn: z.number().nonnegative(),
  /** Calls of all nodes that the previous answer said were granted. */
  used: count,
});
export type RateReport = z.infer<typeof report>;

export const ratesBody = z.object({
  node: z.string(),
  /** Rises with each call of the node; the leader ignores a call that another has overtaken. */
  seq: count,
  /** The leader's term that the node knows. */
  term: z.string(),
  /** The node has reported all of its windows in this term. */
  isComplete: z.boolean(),
  reports: z.array(report).max(MAX_REPORTS),
});
export type RatesBody = z.infer<typeof ratesBody>;

const rateGrant = z.object({
  id: count,
  /** Calls that the node may admit beyond those it knew of. */
  extra: count,
  /** Calls that nobody has been granted yet. */
  left: count,
  /** Calls that a node may hold ahead of need. */
  slice: count,
  endsIn: z.number().nonnegative(),
});
export type RateGrant = z.infer<typeof rateGrant>;

export const ratesAnswer = z.object({
  term: z.string(),
  /** False: the leader is new, and does not know all counts yet. */
  isSettled: z.boolean(),
  /** In the order of the reports. */
  grants: z.array(rateGrant),
});
export type RatesAnswer = z.infer<typeof ratesAnswer>;
