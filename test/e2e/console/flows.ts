// Tests of the list of flows and of the page of one flow.
import { describe, expect, it } from 'vitest';
import type { FlowJobRequest } from '../../../src/client.ts';
import {
  clientOf,
  ENDPOINT,
  expectAccessible,
  expectNoSidewaysScroll,
  visit,
  type World,
} from './world.ts';

const PATH = `/endpoints/${ENDPOINT}/flows`;
const SAY = { act: 'say', count: 1 };

export function describeFlows(world: () => World): void {
  describe('the pages of flows', () => {
    it('draw a graph with its states as they change, and lead to its jobs and back', async () => {
      const { flows } = clientOf(world());
      const { id, jobs } = await flows.run({
        jobs: [
          { name: 'first', input: { act: 'sleep', ms: 600_000 } },
          { name: 'second', input: SAY, after: [{ job: 'first', onFailure: 'run' }] },
          { name: 'third', input: SAY, after: [{ job: 'second', onFailure: 'skip', as: 'text' }] },
        ],
      });
      await visit(world(), PATH, async (page) => {
        await page.getByRole('link', { name: id }).click();
        const drawing = page.locator('.flow-frame');
        const box = (name: string) => drawing.locator('.box', { hasText: name });
        const state = (name: string, text: string) =>
          box(name).locator('.state', { hasText: text }).waitFor();
        await state('first', 'Running');
        await state('second', 'Waits');
        await page.getByText('runs in any case').waitFor();
        await page.getByText('is skipped with its parent').waitFor();
        const row = page.getByRole('row').filter({ hasText: 'third' });
        await row.getByText('second (output as text; if it fails: skip)').waitFor();
        await expectAccessible(page);

        await page.getByLabel('Select first').check();
        await page.getByRole('button', { name: 'Cancel', exact: true }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
        await state('first', 'Cancelled');
        await state('second', 'Completed');

        await box('second').click();
        await page.getByRole('heading', { name: 'Job', exact: true }).waitFor();
        const links = page.getByRole('region', { name: 'Flow', exact: true });
        await links.getByRole('row').filter({ hasText: 'first' }).getByText('Cancelled').waitFor();
        await expectAccessible(page);
        await links.getByRole('link', { name: jobs[0]?.id ?? '' }).waitFor();
        await links.getByRole('link', { name: id }).click();
        await page.getByRole('heading', { name: 'Flow', exact: true }).waitFor();
      });
    });

    it('retry the failed jobs, and cancel all that have not ended', async () => {
      const { flows } = clientOf(world());
      const { id } = await flows.run({
        jobs: [
          { name: 'broken', input: { act: 'fail' } },
          { name: 'long', input: { act: 'sleep', ms: 600_000 } },
        ],
      });
      await visit(world(), `${PATH}/${id}`, async (page) => {
        const dialog = page.getByRole('dialog');
        const row = page.getByRole('row').filter({ hasText: 'broken' });
        await row.getByText('Failed').waitFor();
        const read = async () => (await flows.show(id)).jobs.map(({ id: job }) => job);
        const [broken = ''] = await read();
        await page.getByRole('button', { name: 'Retry all failed' }).click();
        await dialog.getByRole('button', { name: 'Retry all failed' }).click();
        const attempt = async () => (await clientOf(world()).status(broken)).attempt;
        await expect.poll(attempt, { timeout: 30_000 }).toBe(2);
        await page.getByRole('button', { name: 'Cancel all' }).click();
        await dialog.getByRole('button', { name: 'Cancel all' }).click();
        await page.getByRole('row').filter({ hasText: 'long' }).getByText('Cancelled').waitFor();
        await expect.poll(async () => (await flows.show(id)).counts.open).toBe(0);
      });
    });

    it('show hundreds of jobs as a few boxes, which open, and page through them in a table', async () => {
      const pages: FlowJobRequest[] = Array.from({ length: 298 }, (_, n) => ({
        ...{ name: `page-${n}`, input: SAY, after: ['index'] },
      }));
      const { flows } = clientOf(world());
      const { id } = await flows.run({
        jobs: [
          { name: 'index', input: { act: 'fail' } },
          ...pages,
          { name: 'report', input: SAY, after: pages.map(({ name }) => name) },
        ],
      });
      await expect.poll(async () => (await flows.show(id)).status).toBe('FAILED');
      const viewport = { width: 390, height: 780 };
      const use: Parameters<typeof visit>[2] = async (page) => {
        const boxes = page.locator('.flow-frame .box');
        await boxes.locator('.name', { hasText: '298 × page-…' }).waitFor();
        expect(await boxes.count()).toBe(3);
        await expectAccessible(page);
        await expectNoSidewaysScroll(page);
        await page.getByLabel('Group jobs that are alike').uncheck();
        await expect.poll(() => boxes.count()).toBe(300);
        await page.getByLabel('Group jobs that are alike').check();
        await boxes.nth(1).click();
        await expect.poll(() => boxes.count()).toBe(300);
        const width = async () =>
          Number(await page.locator('.flow-frame svg').getAttribute('width'));
        const before = await width();
        await page.locator('.flow-frame').focus();
        await page.keyboard.press('+');
        await expect.poll(width).toBeGreaterThan(before);

        const rows = page.getByRole('table').getByRole('row');
        expect(await rows.count()).toBe(101);
        await page.getByRole('button', { name: 'Show more' }).click();
        await expect.poll(() => rows.count()).toBe(201);
        await page.getByLabel('Find a job of the flow').fill('page-297');
        await expect.poll(() => rows.count()).toBe(2);
        await rows.last().getByText('Failed').waitFor();
      };
      await visit(world(), `${PATH}/${id}`, use, { viewport });
    });
  });
}
