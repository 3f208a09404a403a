// Notices of budgets are posted by the sender of webhooks to a real receiver.
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { verifyWebhook } from '../../../../src/client.ts';
import { addToBill } from '../../../../src/control/billing/bill-rows.ts';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { keepBilling } from '../../../../src/control/billing/billing-keeper.ts';
import { BudgetFindings } from '../../../../src/control/billing/budget-judge.ts';
import { Budgets } from '../../../../src/control/billing/budgets.ts';
import { Spending } from '../../../../src/control/billing/spending.ts';
import { createNoticeSender } from '../../../../src/platform/create-queue.ts';
import {
  deriveEndpointSecret,
  generatePlatformSecret,
  HttpWebhookSender,
} from '../../../../src/queue/webhooks/webhook-sender.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { budgetCreation } from '../../../../src/wire/resources/budget.ts';
import { WebhookReceiver } from '../../../support/network/webhook-receiver.ts';
import { until } from '../../../support/until.ts';

const HOUR_MS = 3_600_000;
/** An hour before the next period. */
const START = Date.UTC(2026, 2, 30, 23);

async function openWorld(addresses: 'any' | 'public' = 'any') {
  const clock = new ManualClock(START);
  const store = openSqliteStore({ path: ':memory:' });
  const receiver = await WebhookReceiver.start();
  const secret = generatePlatformSecret();
  const webhooks = new HttpWebhookSender({ secrets: [secret], addresses, version: '1.0.0' });
  const noticeSender = createNoticeSender(webhooks, clock);
  const billing = new Billing({ store, clock, pods: undefined, nameOf: () => undefined });
  const spending = new Spending({ store, billing });
  const open = async () => {
    const judgeWebhook = (url: string) => noticeSender.judge(url);
    const findings = new BudgetFindings();
    const options = { store, clock, log: silentLog, findings, spending, judgeWebhook };
    const budgets = await Budgets.open({ ...options, findEndpoint: () => undefined });
    const close = keepBilling({
      ...{ store, clock, log: silentLog },
      billing,
      budgets,
      noticeSender,
    });
    return { budgets, close };
  };
  let platform = await open();
  onTestFinished(async () => {
    platform.close();
    await noticeSender.close();
    await receiver[Symbol.asyncDispose]();
    await store.close();
  });
  return {
    ...{ clock, receiver, secret },
    budgets: () => platform.budgets,
    restart: async () => {
      platform.close();
      platform = await open();
    },
    spend: (usd: number) => {
      const from = clock.now();
      const interval = { from, to: from + HOUR_MS / 60, price: usd * 60_000_000, gpus: 1 };
      const resource = { kind: 'pod', id: 'pod_1', userId: 'ada', name: null } as const;
      return store.write((tx) => addToBill(tx, resource, [interval]));
    },
    create: (webhook = receiver.url) =>
      platform.budgets.create('ada', {
        ...budgetCreation.parse({ name: 'b', limit: 10, period: 'day', webhook }),
        setBy: 'user',
      }),
    /** Passes until the receiver has got so many notices. */
    until: (count: number) =>
      until(async () => {
        if (receiver.posted.length >= count) return true;
        await clock.advance(10_000);
        return false;
      }),
    /** Several passes, in which nothing should come. */
    pass: async () => {
      for (let times = 0; times < 20; times++) {
        await clock.advance(10_000);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
  };
}

describe('notices of budgets', () => {
  it('are posted once for each state and period, also over restarts', async () => {
    const world = await openWorld();
    const { create, pass, receiver, restart, spend, until } = world;
    const { id } = await create();
    await pass();
    expect(receiver.posted).toEqual([]);
    await spend(8);
    await until(1);
    await restart();
    await pass();
    await spend(2);
    await until(2);
    await restart();
    await pass();
    const bodies = receiver.posted.map(({ body }) => JSON.parse(body));
    expect(bodies).toMatchObject([
      { type: 'budget.warning', data: { id, name: 'b', spent: '8.000000', state: 'warning' } },
      { type: 'budget.used_up', data: { id, limit: 10, spent: '10.000000', state: 'used_up' } },
    ]);
    expect(receiver.posted[0]?.body).not.toContain('webhook');
    await world.clock.advance(HOUR_MS);
    await spend(20);
    await until(3);
    await pass();
    expect(receiver.posted).toHaveLength(3);
  });

  it('are signed with the secret of their budget', async () => {
    const { create, receiver, secret, spend, until } = await openWorld();
    const { id } = await create();
    await spend(10);
    await until(1);
    const [posted] = receiver.posted;
    expect(posted?.endpoint).toBe(id);
    const { body = '', headers = {} } = posted ?? {};
    await verifyWebhook({ body, headers, secret: deriveEndpointSecret(secret, id) });
    const other = deriveEndpointSecret(secret, 'bud_other');
    await expect(verifyWebhook({ body, headers, secret: other })).rejects.toThrow();
  });

  it('are repeated with the same ID until the receiver accepts them, also after a restart', async () => {
    const { create, pass, receiver, restart, spend, until } = await openWorld();
    receiver.answer((response) => response.writeHead(500).end());
    await create();
    await spend(10);
    await until(2);
    await restart();
    await until(3);
    receiver.answer((response) => response.end());
    await until(4);
    const count = receiver.posted.length;
    await pass();
    expect(receiver.posted.length).toBeLessThanOrEqual(count + 1);
    expect(new Set(receiver.posted.map(({ delivery }) => delivery)).size).toBe(1);
    expect(receiver.posted.map(({ attempt }) => attempt).slice(0, 3)).toEqual([1, 2, 3]);
  });

  it('are not posted any more once the budget has no webhook', async () => {
    const { budgets, create, pass, receiver, spend, until } = await openWorld();
    receiver.answer((response) => response.writeHead(500).end());
    const { id } = await create();
    await spend(10);
    await until(1);
    await budgets().update('ada', id, { webhook: null });
    await pass();
    const count = receiver.posted.length;
    await pass();
    expect(receiver.posted).toHaveLength(count);
  });

  it('go to public addresses only', async () => {
    const { budgets, create, receiver } = await openWorld('public');
    await expect(create()).rejects.toMatchObject({
      code: 'invalid',
      errors: [expect.stringMatching(/^webhook: 127/)],
    });
    const { id } = await create('https://example.com/');
    await expect(budgets().update('ada', id, { webhook: receiver.url })).rejects.toMatchObject({
      code: 'invalid',
    });
  });
});
