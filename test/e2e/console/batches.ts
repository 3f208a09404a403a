// Tests of the lists of batches and of the page of one batch.
import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import {
  clientOf,
  ENDPOINT,
  expectAccessible,
  expectNoSidewaysScroll,
  visit,
  type World,
} from './world.ts';

const LINES = [
  { id: 'good', input: { act: 'say', count: 1 } },
  { id: 'bad', input: { act: 'fail', text: 'no such picture' } },
  { id: 'long', input: { act: 'sleep', ms: 600_000 } },
];

export function describeBatches(world: () => World): void {
  describe('the pages of batches', () => {
    it('show a batch as it goes on, lead to its jobs, cancel it, and save its results', async () => {
      const { batches } = clientOf(world());
      const { id } = await batches.submit(LINES.map((line) => JSON.stringify(line)).join('\n'));
      await visit(world(), '/batches?ended=false', async (page) => {
        const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: id }) });
        await row.getByRole('link', { name: ENDPOINT, exact: true }).waitFor();
        await row.getByText('Running').waitFor();
        await expectAccessible(page);
        await row.getByRole('link', { name: id }).click();
        await page.getByRole('heading', { name: 'Batch', exact: true }).waitFor();
        await page.getByText('2 of 3').waitFor();
        await expectAccessible(page);

        await page.getByRole('link', { name: 'Failed jobs of the batch' }).click();
        const jobs = page.getByRole('region', { name: 'Jobs' });
        await jobs.getByText('no such picture').first().waitFor();
        expect(await jobs.getByRole('row').count()).toBe(2);
        await page.goBack();

        await page.getByRole('button', { name: 'Cancel' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
        await page.locator('.badge', { hasText: 'Cancelled' }).waitFor();
        const failed = page.getByRole('region', { name: 'Failed lines' }).first();
        await failed
          .getByRole('row')
          .filter({ hasText: 'bad' })
          .getByText(/no such/)
          .waitFor();
        await failed
          .getByRole('row')
          .filter({ hasText: 'long' })
          .getByText(/cancelled/)
          .waitFor();
        await expectAccessible(page);
        const saving = page.waitForEvent('download');
        await page.getByRole('link', { name: 'Download results' }).click();
        const saved = JSON.parse(await readFile(await (await saving).path(), 'utf8'));
        expect(saved).toMatchObject({ id: 'good', job: { status: 'COMPLETED' } });
        await page.getByRole('link', { name: 'Batches' }).last().click();
      });
      const viewport = { width: 390, height: 780 };
      const use: Parameters<typeof visit>[2] = async (page) => {
        await page.getByRole('link', { name: id }).waitFor();
        await expectNoSidewaysScroll(page);
        await page.getByLabel('Batches', { exact: true }).first().selectOption('false');
        await page.getByText('No batch runs').waitFor();
      };
      await visit(world(), `/endpoints/${ENDPOINT}/batches`, use, { viewport });
    });
  });
}
