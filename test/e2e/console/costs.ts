// Tests of the page of the bill and of budgets.
import { describe, expect, it } from 'vitest';
import { createPlatform } from '../../../src/client.ts';
import { expectAccessible, expectNoSidewaysScroll, visit, type World } from './world.ts';

export function describeCosts(world: () => World): void {
  const admin = () => createPlatform({ url: world().platform.url, key: world().platform.adminKey });

  describe.concurrent('the bill', () => {
    it('has what a pod cost to the last digit, by time and by resource', async () => {
      const { id } = await admin().pods.create({
        ...{ name: 'billed', image: 'none', args: 'sleep 600' },
        cpu: { id: 'cpu', vcpuCount: 2, memory: 1 },
      });
      const readCost = async () => (await admin().billing.get({ id })).total.cost;
      await expect.poll(readCost, { timeout: 60_000 }).not.toMatch(/^0\.000000$/);
      await admin().pods.terminate(id);
      await visit(world(), '/billing', async (page) => {
        const copy = page.getByRole('button', { name: `Copy ${id}` });
        const row = page.getByRole('row').filter({ has: copy });
        const shown = row.getByRole('cell').last();
        // The bill grows until the container has ended.
        const compare = async () => {
          await page.reload();
          return (await shown.textContent()) === (await readCost());
        };
        await expect.poll(compare, { timeout: 60_000, interval: 500 }).toBe(true);
        const cost = await readCost();
        await row.getByRole('cell', { name: 'Pod', exact: true }).waitFor();
        expect(await page.getByLabel('Total, USD').textContent()).toMatch(/^\d+\.\d{6}$/);
        await page
          .getByRole('figure')
          .filter({ hasText: 'USD by hour' })
          .locator('canvas')
          .waitFor();
        await expectAccessible(page);
        await page.getByLabel('Time').selectOption('30 days');
        await page.getByRole('figure').filter({ hasText: 'USD by day (UTC)' }).waitFor();
        await row.getByRole('cell', { name: cost, exact: true }).waitFor();
        await page.getByLabel('Users').selectOption('All users');
        await row.getByRole('cell', { name: 'owner', exact: true }).waitFor();
        await page.getByLabel('Kind').selectOption('Network volumes');
        await page.getByText('Nothing ran in this time').waitFor();
        await expectAccessible(page);
      });
    });

    it('has budgets, which the user creates, changes and deletes', async () => {
      const use = async (page: Parameters<Parameters<typeof visit>[2]>[0]) => {
        const budgets = page.getByRole('region', { name: 'Budgets', exact: true }).first();
        await budgets.getByText('No budgets yet').waitFor();
        await budgets.getByRole('button', { name: 'Create a budget' }).click();
        await page.getByLabel('Name').fill('much');
        await page.getByLabel('Limit, USD').fill('1000000');
        await page.getByLabel('Warn at, %').fill('50');
        await page.getByLabel('Endpoint').fill('quiet');
        await page.getByLabel('Period').selectOption('Day');
        await expectAccessible(page);
        await expectNoSidewaysScroll(page);
        await page.getByRole('button', { name: 'Create', exact: true }).click();
        const row = budgets.getByRole('row').filter({ hasText: 'much' });
        await row.getByText('OK').waitFor();
        await row.getByRole('meter', { name: 'Spent of much' }).waitFor();
        await row.getByRole('button', { name: 'Change much' }).click();
        expect(await page.getByLabel('Warn at, %').inputValue()).toBe('50');
        await page.getByLabel('Limit, USD').fill('2.5');
        await page.getByRole('button', { name: 'Save' }).click();
        await row.getByText(/of 2\.5/).waitFor();
        expect((await admin().budgets.page()).items).toMatchObject([
          { name: 'much', limit: 2.5, warnAt: 0.5, period: 'day' },
        ]);
        await row.getByRole('button', { name: 'Delete' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
        await budgets.getByText('No budgets yet').waitFor();
      };
      await visit(world(), '/billing', use, { viewport: { width: 360, height: 740 } });
    });
  });
}
