// Tests of the list of jobs and of the page of one job.
import { describe, expect, it } from 'vitest';
import {
  clientOf,
  ENDPOINT,
  expectAccessible,
  expectNoSidewaysScroll,
  visit,
  type World,
} from './world.ts';

const PATH = `/endpoints/${ENDPOINT}/jobs`;

export function describeJobs(world: () => World): void {
  describe('the pages of jobs', () => {
    it('filter jobs and page through them', async () => {
      const client = clientOf(world());
      const ids = await Promise.all(
        Array.from({ length: 60 }, async () => (await client.run({ act: 'say', count: 1 })).id),
      );
      const failed = await client.run({ act: 'fail' });
      await client.wait(failed.id);
      await visit(world(), PATH, async (page) => {
        const links = page.getByRole('table').getByRole('link');
        await expect.poll(() => links.count()).toBe(50);
        const newest = new Set(await links.allTextContents());
        await page.getByRole('button', { name: 'Older' }).click();
        await page.getByText('Page 2').waitFor();
        const older = async () => new Set(await links.allTextContents());
        await expect.poll(async () => (await older()).isDisjointFrom(newest)).toBe(true);
        await expect.poll(async () => (await older()).size).toBeGreaterThan(0);
        await page.getByRole('button', { name: 'Newer' }).click();

        await page.getByLabel('Status').selectOption('FAILED');
        await page.getByRole('link', { name: failed.id }).waitFor();
        await expect.poll(() => page.url()).toContain('status=FAILED');
        await page.getByLabel('Status').selectOption('');
        await page.getByLabel('Job ID').fill(ids[30] ?? '');
        await page.getByRole('link', { name: ids[30] ?? '' }).waitFor();
        await expect.poll(() => links.count()).toBe(1);
        await page.reload();
        await page.getByRole('link', { name: ids[30] ?? '' }).waitFor();
        await expect.poll(() => links.count()).toBe(1);
        await expectAccessible(page);
      });
    });

    it('cancel and retry several jobs, and purge the queue after a question', async () => {
      const client = clientOf(world());
      const sleepers = await Promise.all(
        [1, 2].map(async () => (await client.run({ act: 'sleep', ms: 600_000 })).id),
      );
      const waiting = await client.run({ act: 'say' }, { policy: { delay: 600_000 } });
      await visit(world(), PATH, async (page) => {
        for (const id of sleepers) await page.getByLabel(`Select ${id}`).check();
        await page.getByRole('button', { name: 'Cancel', exact: true }).click();
        const dialog = page.getByRole('dialog');
        await dialog.getByText('Cancel 2 jobs?').waitFor();
        await dialog.getByRole('button', { name: 'Cancel' }).click();
        await page.getByText('Cancelled 2 jobs.').waitFor();

        await page.getByRole('button', { name: 'Purge queue' }).click();
        await dialog.getByRole('button', { name: 'Back' }).click();
        expect((await client.status(waiting.id)).status).toBe('IN_QUEUE');
        await page.getByRole('button', { name: 'Purge queue' }).click();
        await dialog.getByRole('button', { name: 'Purge queue' }).click();
        await page.getByText('Cancelled 1 job.').waitFor();
        expect((await client.status(waiting.id)).status).toBe('CANCELLED');
      });
    });

    it('retry several jobs of one error, which the address of the page keeps', async () => {
      const client = clientOf(world());
      const failed = await Promise.all(
        [1, 2].map(async () => (await client.run({ act: 'fail' })).id),
      );
      await Promise.all(failed.map((id) => client.wait(id)));
      await visit(world(), `${PATH}?status=FAILED`, async (page) => {
        await page.getByLabel('Error').selectOption('handler_error');
        await expect.poll(() => page.url()).toContain('status=FAILED&error=handler_error');
        await page.reload();
        expect(await page.getByLabel('Error').inputValue()).toBe('handler_error');
        for (const id of failed) await page.getByLabel(`Select ${id}`).check();
        await page.getByRole('button', { name: 'Retry', exact: true }).click();
        const dialog = page.getByRole('dialog');
        await dialog.getByText('Queue 2 jobs again?').waitFor();
        await dialog.getByRole('button', { name: 'Retry' }).click();
        await page.getByText('Queued again: 2 jobs.').waitFor();
        const attempts = async () =>
          Promise.all(failed.map(async (id) => (await client.wait(id)).attempt));
        await expect.poll(attempts, { timeout: 30_000 }).toEqual([2, 2]);
        await page.getByLabel('Error').selectOption('lease_expired');
        await page.getByText('No job matches the filters').waitFor();
      });
    });

    it('show a running job with its chunks and its log until it ends', async () => {
      const { id } = await clientOf(world()).run({ act: 'chunks', count: 150, ms: 25 });
      await visit(world(), `${PATH}/${id}`, async (page) => {
        await page.getByText(/Attempt 1 started/).waitFor();
        await page
          .getByText(/chunks yielded/)
          .first()
          .waitFor();
        await page.getByText('Running').waitFor();
        await page.getByLabel('Timeline').getByText('Completed').waitFor();
        await page.getByText('150 chunks.').waitFor();
        await expectAccessible(page);
      });
    });

    it('show why a job failed, retry it, and run it again with another input', async () => {
      const client = clientOf(world());
      const { id } = await client.run({ act: 'fail', text: 'for a reason' });
      await client.wait(id);
      await visit(
        world(),
        `${PATH}/${id}`,
        async (page) => {
          await page
            .getByText(/for a reason/)
            .first()
            .waitFor();
          await page
            .getByText(/console\.ts/)
            .first()
            .waitFor();
          const stack = await page.getByLabel('Stack', { exact: true }).textContent();
          expect(stack?.split('\n').every((frame) => frame.includes('console.ts'))).toBe(true);
          await expectAccessible(page);
          await expectNoSidewaysScroll(page);
          await page.getByRole('button', { name: 'Retry' }).click();
          await page.getByRole('dialog').getByRole('button', { name: 'Retry' }).click();
          await page
            .getByText(/Attempt \d of run 2 (?:started|failed)/)
            .first()
            .waitFor();
          await page.getByRole('button', { name: 'Edit and run again' }).click();
          await page.getByRole('radio', { name: 'JSON', exact: true }).check();
          await expect
            .poll(() => page.getByLabel('Input (JSON)').inputValue())
            .toContain('for a reason');
        },
        { viewport: { width: 360, height: 740 } },
      );
    });

    it('list the failed jobs of all endpoints, on a phone as cards', async () => {
      const client = clientOf(world());
      const { id } = await client.run({ act: 'fail', text: 'for the list' });
      await client.wait(id);
      await visit(
        world(),
        '/failed-jobs',
        async (page) => {
          const row = page.getByRole('row').filter({ hasText: 'for the list' }).first();
          await row.getByText('handler_error').waitFor();
          await row.getByRole('link', { name: ENDPOINT }).waitFor();
          await row.getByRole('button', { name: `Copy ${id}` }).waitFor();
          expect(await row.getByRole('cell').first().getAttribute('data-label')).toBe('Endpoint');
          await expectAccessible(page);
          await expectNoSidewaysScroll(page);
          await page.getByLabel('Error').selectOption('lease_expired');
          await page.getByText('No failed job has this error').waitFor();
          await page.getByLabel('Error').selectOption('');
          await row.getByRole('link', { name: id }).click();
          await page.getByRole('heading', { name: 'Job' }).waitFor();
        },
        { viewport: { width: 360, height: 740 } },
      );
    });

    it('say that a job does not exist', async () => {
      await visit(
        world(),
        `${PATH}/none`,
        async (page) => {
          await page.getByRole('alert').waitFor();
        },
        { allow: /status of 404/ },
      );
    });
  });
}
