// Who may start the next jobs of a shared limit. Those who wait stand in a line; what is free is offered to them in its order,
// to each as much as to the others. What nobody waits for is free for all.

/** Default for those of this shard: they are woken and come at once. */
export const OFFER_MS = 200;
/** Who has waited for so long keeps an offer that it cannot use yet, because another limit holds it back, for HOLD_MS. */
const PATIENCE_MS = 5_000;
const HOLD_MS = 10_000;
/** Of one participant: takes may have come several times. */
const MAX_DEMAND = 10_000;

interface Waiting {
  /** Jobs that it would start. */
  demand: number;
  /** Number of endpoints that it stands for. */
  weight: number;
  /** Starts that are kept for it, until when, and for how long an offer lasts. */
  offered: number;
  until: number;
  offerMs: number;
  /** Since when it waits for its next start. */
  since: number;
  /** Another limit held it back when it asked since the offer. */
  isHeldBack: boolean;
  /** It gets no offer before: it could not use the last one, because another limit holds it back. */
  restsUntil: number;
}

export interface Offer {
  who: string;
  count: number;
}

interface Wish extends Partial<Pick<Waiting, 'offerMs' | 'weight'>> {
  demand: number;
  now: number;
}

export class Turns {
  /** In the order of the line. */
  readonly #line = new Map<string, Waiting>();

  get size(): number {
    return this.#line.size;
  }

  /** Jobs that wait, as far as is known. */
  get demand(): number {
    return sum([...this.#line.values()].map(({ demand }) => demand));
  }

  /** Endpoints that wait. */
  get weight(): number {
    return sum([...this.#line.values()].map(({ weight }) => weight));
  }

  /** When an offer or a rest ends; Infinity without one. */
  get nextEndAt(): number {
    let at = Number.POSITIVE_INFINITY;
    for (const { offered, restsUntil, until } of this.#line.values()) {
      if (offered > 0) at = Math.min(at, until);
      else if (restsUntil > Number.NEGATIVE_INFINITY) at = Math.min(at, restsUntil);
    }
    return at;
  }

  has(who: string): boolean {
    return this.#line.has(who);
  }

  /** Offers what is free and not offered. @returns the new offers */
  offer(free: number, now: number): Offer[] {
    this.#endOffers(now);
    let left = free - this.#offered();
    const made = new Map<string, number>();
    while (left > 0) {
      const open = [...this.#line].filter(
        ([, each]) => each.offered < each.demand && each.restsUntil <= now,
      );
      if (open.length === 0) break;
      const step = Math.max(1, Math.floor(left / sum(open.map(([, { weight }]) => weight))));
      for (const [who, each] of open) {
        const count = Math.min(each.weight * step, each.demand - each.offered, left);
        if (count === 0) break;
        left -= count;
        if (each.offered === 0) each.isHeldBack = false;
        each.offered += count;
        each.until = now + each.offerMs;
        made.set(who, (made.get(who) ?? 0) + count);
      }
    }
    return [...made].map(([who, count]) => ({ who, count }));
  }

  /** How much of what is free it may use now. Call `offer` before. */
  shareOf(who: string, free: number): number {
    const waiting = this.#line.get(who);
    const own = waiting?.offered ?? 0;
    return Math.max(0, Math.min(free, own + Math.max(0, free - this.#offered())));
  }

  /** It got less than it wanted: it stands in the line, at its end if it did not. */
  wait(who: string, { demand, now, offerMs = OFFER_MS, weight = 1 }: Wish): void {
    const known = this.#line.get(who);
    const waiting = known ?? {
      ...{ demand: 0, weight, offered: 0, until: 0, offerMs, since: now },
      ...{ isHeldBack: false, restsUntil: Number.NEGATIVE_INFINITY },
    };
    waiting.demand = Math.min(MAX_DEMAND, Math.max(demand, waiting.offered));
    waiting.weight = weight;
    if (!known) this.#line.set(who, waiting);
  }

  /** It cannot use its offer, because another limit holds it back. */
  noteHeldBack(who: string, now: number): void {
    const waiting = this.#line.get(who);
    if (!waiting || waiting.offered === 0 || waiting.isHeldBack) return;
    waiting.isHeldBack = true;
    if (now - waiting.since > PATIENCE_MS) waiting.until = now + HOLD_MS;
  }

  /** It has started jobs: it goes to the end of the line once its offer is used up, unless it wants no more. */
  took(who: string, count: number, now: number): void {
    const waiting = this.#line.get(who);
    if (!waiting || count === 0) return;
    waiting.since = now;
    waiting.offered = Math.max(0, waiting.offered - count);
    waiting.demand -= count;
    if (waiting.offered > 0) return;
    this.#line.delete(who);
    if (waiting.demand > 0) this.#line.set(who, waiting);
  }

  leave(who: string): void {
    this.#line.delete(who);
  }

  #endOffers(now: number): void {
    for (const [who, each] of this.#line) {
      if (each.restsUntil <= now) each.restsUntil = Number.NEGATIVE_INFINITY;
      if (each.offered === 0 || each.until > now) continue;
      // Whoever does not come wants it no longer.
      if (each.isHeldBack) each.restsUntil = now + each.offerMs;
      else each.demand -= each.offered;
      each.offered = 0;
      if (each.demand <= 0) this.#line.delete(who);
    }
  }

  #offered(): number {
    return sum([...this.#line.values()].map(({ offered }) => offered));
  }
}

export function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, each) => all + each, 0);
}
