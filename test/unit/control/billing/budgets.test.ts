// Budgets: what is spent, and what is refused once it is too much.
import { expect, it, onTestFinished } from 'vitest';
import type { z } from 'zod';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { addToBill, type BilledResource } from '../../../../src/control/billing/bill-rows.ts';
import { Billing, type BillingOptions } from '../../../../src/control/billing/billing.ts';
import {
  BudgetFindings,
  endPeriod,
  judgeState,
  startPeriod,
} from '../../../../src/control/billing/budget-judge.ts';
import { Budgets, type NewBudget } from '../../../../src/control/billing/budgets.ts';
import { Spending } from '../../../../src/control/billing/spending.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { budgetCreation } from '../../../../src/wire/resources/budget.ts';
import { PodWorld } from '../../../support/containers/pod-world.ts';

const HOUR_MS = 3_600_000;

function raise(error: unknown): never {
  throw error;
}

const START = Date.UTC(2026, 2, 30, 12);

function newBudget(given: z.input<typeof budgetCreation>): NewBudget {
  return { ...budgetCreation.parse(given), setBy: 'user' };
}

async function openBudgets(given: Pick<BillingOptions, 'maxRows'> = {}) {
  const clock = new ManualClock(START);
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const billing = new Billing({
    ...{ store, clock, ...given, pods: undefined, nameOf: () => undefined },
  });
  const spending = new Spending({ store, billing });
  const options = {
    ...{ store, clock, log: silentLog, spending },
    findEndpoint: (userId: string, id: string) => (userId === 'ada' ? `ep_${id}` : undefined),
  };
  const open = () => Budgets.open({ ...options, findings: new BudgetFindings() });
  const budgets = await open();
  const spend = (resource: Partial<BilledResource>, usd: number) => {
    const interval = { from: START, to: START + HOUR_MS, price: usd * 1_000_000, gpus: 1 };
    const usual = { kind: 'endpoint', id: 'ep_a', userId: 'ada', name: null } as const;
    return store.write((tx) => addToBill(tx, { ...usual, ...resource }, [interval]));
  };
  const create = (given: Partial<z.input<typeof budgetCreation>>) =>
    budgets.create('ada', newBudget({ name: 'b', limit: 10, ...given }));
  return {
    billing,
    budgets,
    clock,
    create,
    open,
    options,
    spend,
    store,
  };
}

it('warns, and then refuses new workers of its endpoint', async () => {
  const { budgets, create, spend } = await openBudgets();
  const { id } = await create({ endpointId: 'a' });
  expect(await budgets.get('ada', id)).toMatchObject({ endpointId: 'ep_a', spent: '0.000000' });
  await spend({}, 8);
  await spend({ kind: 'pod', id: 'pod_1' }, 100);
  expect(await budgets.get('ada', id)).toMatchObject({ spent: '8.000000', state: 'warning' });
  expect(budgets.findObstacle('ada', 'ep_a')).toBeUndefined();
  await spend({}, 2);
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', 'ep_a')).toMatch(
    /"b" is used up: 10\.000000 of 10 USD.*; raise its limit, or wait for the next month$/,
  );
  expect(budgets.findObstacle('ada', 'ep_b')).toBeUndefined();
  expect(budgets.findObstacle('ada', null)).toBeUndefined();
  await budgets.update('ada', id, { limit: 20 });
  expect(budgets.findObstacle('ada', 'ep_a')).toBeUndefined();
});

it('limits all pods and endpoints of one user, and no other user', async () => {
  const { budgets, create, open, spend } = await openBudgets();
  await create({});
  await spend({ userId: 'bob' }, 50);
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toBeUndefined();
  await spend({ kind: 'pod', id: 'pod_1' }, 50);
  // A platform that has just started knows after its first look.
  const next = await open();
  await next.observe(raise);
  expect(next.findObstacle('ada', null)).toBeTypeOf('string');
  expect(next.findObstacle('ada', 'ep_x')).toBeTypeOf('string');
  expect(next.findObstacle('bob', null)).toBeUndefined();
});

it('begins anew with each period', async () => {
  const { budgets, clock, create, spend } = await openBudgets();
  await create({ name: 'day', period: 'day' });
  await create({ name: 'month', limit: 30 });
  await spend({}, 20);
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toContain('"day"');
  await clock.advance(24 * HOUR_MS);
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toBeUndefined();
  await spend({}, 20);
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toContain('"month"');
  await clock.advance(24 * HOUR_MS);
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toBeUndefined();
});

it('counts more rows than an answer may have', async () => {
  const { billing, budgets, create, store } = await openBudgets({ maxRows: 1_000 });
  const { id } = await create({});
  const interval = { from: START, to: START + HOUR_MS, price: 10_000, gpus: 1 };
  await store.write((tx) => {
    const ids = Array.from({ length: 1_500 }, (_, index) => `pod_${index}`);
    tx.each(ids, (id) => addToBill(tx, { kind: 'pod', id, userId: 'ada', name: null }, [interval]));
  });
  const range = { userId: 'ada', step: 'day', from: START, to: START + 24 * HOUR_MS } as const;
  await expect(billing.rows({ ...range })).rejects.toMatchObject({ code: 'invalid' });
  expect(await budgets.get('ada', id)).toMatchObject({ spent: '15.000000', state: 'used_up' });
});

it('looks at the others if one cannot be read', async () => {
  const { create, options, spend } = await openBudgets();
  await create({ name: 'first' });
  await create({ name: 'second', endpointId: 'a' });
  await spend({}, 50);
  const { read }: Pick<Spending, 'read'> = {
    read: async (scopes) => {
      const spent = await options.spending.read(scopes);
      const fault = new Error('a damaged row');
      return spent.map((each, index) => (scopes[index]?.endpointId === null ? fault : each));
    },
  };
  const budgets = await Budgets.open({
    ...options,
    findings: new BudgetFindings(),
    spending: { read },
  });
  const errors: unknown[] = [];
  await budgets.observe((error) => errors.push(error));
  expect(errors).toEqual([new Error('a damaged row')]);
  expect(budgets.findObstacle('ada', 'ep_a')).toContain('"second"');
});

it('refuses an endpoint that is not the user’s', async () => {
  const { budgets } = await openBudgets();
  const creation = newBudget({ name: 'b', limit: 1, endpointId: 'a' });
  await expect(budgets.create('bob', creation)).rejects.toMatchObject({ code: 'invalid' });
});

it('is judged to the last unit, and begins at midnight in UTC', () => {
  const limit = { limit: 10, warnAt: 0.5 };
  const usd = 3_600_000_000_000n;
  expect(judgeState(limit, 5n * usd)).toBe('warning');
  expect(judgeState(limit, 4n * usd)).toBe('ok');
  expect(judgeState(limit, 10n * usd)).toBe('used_up');
  expect(startPeriod('day', START)).toBe(Date.UTC(2026, 2, 30));
  expect(startPeriod('month', START)).toBe(Date.UTC(2026, 2, 1));
  expect(endPeriod('day', Date.UTC(2026, 2, 31, 5))).toBe(Date.UTC(2026, 3, 1));
  expect(endPeriod('month', Date.UTC(2026, 11, 3))).toBe(Date.UTC(2027, 0, 1));
});

it('tells a user to ask the operator if the operator has set the budget', async () => {
  const { budgets, spend } = await openBudgets();
  const creation = newBudget({ name: 'cap', limit: 1, period: 'day' });
  await budgets.create('ada', { ...creation, setBy: 'operator' });
  await spend({}, 2);
  await budgets.observe(raise);
  const remedy = /; ask the operator to raise its limit, or wait for the next day$/;
  expect(budgets.findObstacle('ada', null)).toMatch(remedy);
});

it('refuses to create and to start pods, and leaves running ones alone', async () => {
  let obstacle: string | undefined;
  const world = await PodWorld.open({ pods: { findObstacle: () => obstacle } });
  onTestFinished(() => world.close());
  const running = await world.create();
  const stopped = await world.create();
  await world.settle();
  await world.pods.act('owner', stopped.id, 'stop');
  await world.settle();
  obstacle = 'the budget "b" is used up';
  await expect(world.create()).rejects.toMatchObject({ code: 'over_budget' });
  await expect(world.pods.act('owner', stopped.id, 'start')).rejects.toMatchObject({
    code: 'over_budget',
    message: obstacle,
  });
  await world.settle(60_000);
  expect(world.pods.live.get(running.id)?.status).toBe('RUNNING');
});

it('refuses while only containers that were not observed yet may have used the budget up', async () => {
  const { create, options } = await openBudgets();
  await create({ name: 'small' });
  await create({ name: 'large', limit: 1_000 });
  const usd = 3_600_000_000_000n;
  let spent = { billed: 9n * usd, unseen: 2n * usd };
  const read = async (scopes: readonly unknown[]) => scopes.map(() => spent);
  const budgets = await Budgets.open({
    ...options,
    findings: new BudgetFindings(),
    spending: { read },
  });
  const found = await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toMatch(
    /"small" may be used up.*; try again in a few seconds$/,
  );
  // Neither log nor notice says what may turn out to be wrong.
  expect(found.map(({ record }) => record.state)).toEqual(['warning', 'ok']);
  spent = { billed: 9n * usd, unseen: 0n };
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toBeUndefined();
});

it('never takes back what was spent in a period', async () => {
  const { create, options } = await openBudgets();
  await create({});
  const usd = 3_600_000_000_000n;
  let billed = 10n * usd;
  const read = async (scopes: readonly unknown[]) => scopes.map(() => ({ billed, unseen: 0n }));
  const budgets = await Budgets.open({
    ...options,
    findings: new BudgetFindings(),
    spending: { read },
  });
  await budgets.observe(raise);
  // An interval ended between the read of the rows and of the running containers.
  billed = 9n * usd;
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toContain('10.000000 of 10 USD');
  await options.clock.advance(48 * HOUR_MS);
  await budgets.observe(raise);
  expect(budgets.findObstacle('ada', null)).toBeUndefined();
});
