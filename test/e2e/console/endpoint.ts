// Tests of the overview and of the pages of one endpoint.
import { describe, expect, it } from 'vitest';
import { createClient, createPlatform } from '../../../src/client.ts';
import { clientOf, ENDPOINT, expectAccessible, visit, type World } from './world.ts';

export function describeEndpoint(world: () => World): void {
  describe('the pages of endpoints', () => {
    it('list endpoints, those with trouble first, and find one by name', async () => {
      const { platform } = world();
      const quiet = createClient({ url: platform.url, key: platform.adminKey, endpoint: 'quiet' });
      const { id } = await quiet.run({});
      await visit(world(), '/', async (page) => {
        const first = page.getByRole('row').nth(1);
        await first.getByText('No workers', { exact: true }).waitFor();
        expect(await first.getByRole('link').textContent()).toBe('quiet');
        await page.getByRole('searchbox').fill(ENDPOINT);
        await page.getByRole('link', { name: 'quiet' }).waitFor({ state: 'detached' });
        await expectAccessible(page);

        await page.getByRole('searchbox').fill('');
        await page.getByRole('link', { name: 'quiet' }).click();
        await page.getByText('Why jobs wait').waitFor();
        await page.getByText(/No worker is connected/).waitFor();
        await expectAccessible(page);
      });
      await quiet.cancel(id);
    });

    it('count jobs and workers as they change', async () => {
      await visit(world(), `/endpoints/${ENDPOINT}`, async (page) => {
        const completed = page.locator('dl div', { hasText: 'Completed' }).locator('dd');
        await completed.waitFor();
        const before = Number(await completed.textContent());
        await clientOf(world()).runsync({ act: 'say' });
        await expect.poll(async () => Number(await completed.textContent())).toBe(before + 1);
      });
    });

    it('draw what happened, for a time that the user chooses', async () => {
      await clientOf(world()).runsync({ act: 'say' });
      await visit(world(), `/endpoints/${ENDPOINT}`, async (page) => {
        const charts = page.getByRole('region', { name: 'Charts' });
        await expect.poll(() => charts.getByRole('figure').count()).toBe(5);
        const plot = charts.locator('canvas').first();
        await plot.waitFor();
        await charts.locator('.u-over').first().hover();
        await charts.locator('.tip strong').waitFor();
        expect(await charts.getByRole('listitem').first().textContent()).toMatch(/ [\d.]+$/);
        const asked = page.waitForRequest((request) => request.url().includes('/series?from='));
        await charts.getByLabel('Time').selectOption('7 days');
        const from = Number(new URL((await asked).url()).searchParams.get('from'));
        expect(Date.now() - from).toBeGreaterThan(6 * 86_400_000);
        await plot.waitFor();
        await expectAccessible(page);
      });
    });

    it('do not offer what the key may not do', async () => {
      const { platform } = world();
      const { keys } = createPlatform({ url: platform.url, key: platform.adminKey });
      const scopes = [`jobs:read:${ENDPOINT}`, `endpoints:read:${ENDPOINT}`];
      const { key } = await keys.create({ name: 'reader', scopes });
      await visit(
        world(),
        `/endpoints/${ENDPOINT}`,
        async (page) => {
          await page.getByText('Completed', { exact: true }).waitFor();
          const tabs = await page
            .getByLabel('Endpoint', { exact: true })
            .getByRole('link')
            .allTextContents();
          expect(tabs).toEqual(['State', 'Jobs', 'Flows', 'Batches', 'Versions', 'Settings']);
          await page.getByRole('link', { name: 'Settings' }).click();
          await page.getByLabel('Attempts').waitFor();
          expect(await page.getByRole('button', { name: 'Save' }).count()).toBe(0);
        },
        { key },
      );
    });
  });
}
