// Judges budgets: compares what was spent in the current period, by UTC, with the limit. The findings are remembered:
// whether somebody may start something is decided by the last one.
import type { Clock } from '../../base/clock.ts';
import type { BudgetRecord, StoredBudget } from '../../wire/resources/budget.ts';
import { formatUsd, STEP_MS, UNITS_PER_USD } from './bill-rows.ts';
import type { Spending, SpendingScope, Spent } from './spending.ts';

type BudgetState = BudgetRecord['state'];

export interface UserBudget {
  userId: string;
  budget: StoredBudget;
}

/** What was found of a budget. */
export interface Judged {
  record: BudgetRecord;
  userId: string;
  /** Start of the period, Unix ms. */
  from: number;
  billed: bigint;
  /** Used up only if containers still run that this process has not observed yet. */
  mayBeUsedUp: boolean;
}

/** What was found last, by user and budget. */
export class BudgetFindings {
  readonly #judged = new Map<string, Map<string, Judged>>();

  find(userId: string, id: string): Judged | undefined {
    return this.#judged.get(userId)?.get(id);
  }

  all(): Judged[] {
    return [...this.#judged.values()].flatMap((ofUser) => [...ofUser.values()]);
  }

  /** Forgets all but these. */
  retain(ids: ReadonlySet<string>): void {
    for (const { record, userId } of this.all()) {
      if (!ids.has(record.id)) this.forget(userId, record.id);
    }
  }

  forget(userId: string, id: string): void {
    const ofUser = this.#judged.get(userId);
    ofUser?.delete(id);
    if (ofUser?.size === 0) this.#judged.delete(userId);
  }

  /** Why the user may start no pod, or no worker of the endpoint; undefined: they may. Up to the last judgement. */
  findObstacle(userId: string, endpointId: string | null): string | undefined {
    for (const { mayBeUsedUp, record } of this.#judged.get(userId)?.values() ?? []) {
      if (record.endpointId !== null && record.endpointId !== endpointId) continue;
      if (record.state === 'used_up') return describeUse(record);
      if (mayBeUsedUp) return describeDoubt(record);
    }
    return undefined;
  }

  note(judged: Judged): void {
    const { record, userId } = judged;
    const ofUser = this.#judged.get(userId) ?? new Map<string, Judged>();
    this.#judged.set(userId, ofUser.set(record.id, judged));
  }
}

export interface BudgetJudgeOptions {
  clock: Clock;
  findings: BudgetFindings;
  spending: Pick<Spending, 'read'>;
  nameOfEndpoint?: ((id: string) => string | undefined) | undefined;
}

export class BudgetJudge {
  readonly #options: BudgetJudgeOptions;

  constructor(options: BudgetJudgeOptions) {
    this.#options = options;
  }

  /** In the order of the budgets; an error for each that cannot be read. */
  async judge(budgets: readonly UserBudget[]): Promise<(Judged | Error)[]> {
    const { clock, findings, spending } = this.#options;
    const now = clock.now();
    const scopes = budgets.map((each) => scopeOf(each, now));
    const spent = await spending.read(scopes);
    return budgets.map((each, index) => {
      const [found, scope] = [spent[index], scopes[index]];
      if (!found || !scope) throw new Error('nothing was read of a budget');
      if (found instanceof Error) return found;
      const judged = this.#judgeOne(each, scope, found);
      findings.note(judged);
      return judged;
    });
  }

  #judgeOne({ budget, userId }: UserBudget, { from }: SpendingScope, spent: Spent): Judged {
    const before = this.#options.findings.find(userId, budget.id);
    // What was found in a period is never less later: an interval that ended meanwhile may be missing from what was read.
    const billed =
      before?.from === from && before.billed > spent.billed ? before.billed : spent.billed;
    const state = judgeState(budget, billed);
    const { endpointId } = budget;
    const { nameOfEndpoint = () => undefined } = this.#options;
    const endpointName = endpointId === null ? null : (nameOfEndpoint(endpointId) ?? null);
    const record = { ...budget, userId, endpointName, spent: formatUsd(billed), state };
    const mayBeUsedUp =
      state !== 'used_up' && judgeState(budget, billed + spent.unseen) === 'used_up';
    return { userId, from, billed, record, mayBeUsedUp };
  }
}

function scopeOf({ budget, userId }: UserBudget, now: number): SpendingScope {
  const { endpointId, period } = budget;
  const to = startPeriod('day', now) + STEP_MS.day;
  return { userId, endpointId, from: startPeriod(period, now), to };
}

function describeUse({ limit, name, period, setBy, spent }: BudgetRecord): string {
  const who = setBy === 'operator' ? 'ask the operator to raise' : 'raise';
  const remedy = `${who} its limit, or wait for the next ${period}`;
  return `the budget ${JSON.stringify(name)} is used up: ${spent} of ${limit} USD of this ${period} are spent; ${remedy}`;
}

function describeDoubt({ name }: BudgetRecord): string {
  return `the budget ${JSON.stringify(name)} may be used up: the platform has just started and does not know yet how long its containers ran; try again in a few seconds`;
}

export function judgeState(
  { limit, warnAt }: Pick<StoredBudget, 'limit' | 'warnAt'>,
  units: bigint,
): BudgetState {
  const share = Number(units) / (limit * UNITS_PER_USD);
  if (share >= 1) return 'used_up';
  return share >= warnAt ? 'warning' : 'ok';
}

type Period = StoredBudget['period'];

/** Start of the period that `now` is in, Unix ms. */
export function startPeriod(period: Period, now: number): number {
  return shiftPeriod(period, now, 0);
}

/** Start of the next period, Unix ms. */
export function endPeriod(period: Period, now: number): number {
  return shiftPeriod(period, now, 1);
}

function shiftPeriod(period: Period, now: number, by: number): number {
  const date = new Date(now);
  const [month, day] =
    period === 'day' ? [date.getUTCMonth(), date.getUTCDate() + by] : [date.getUTCMonth() + by, 1];
  return Date.UTC(date.getUTCFullYear(), month, day);
}
