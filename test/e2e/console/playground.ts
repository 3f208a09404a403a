// Tests of the playground: jobs from the first chunk to the end, and outputs that a page must not trust.
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { ENDPOINT, expectAccessible, expectNoSidewaysScroll, visit, type World } from './world.ts';

const PATH = `/endpoints/${ENDPOINT}/playground`;

async function run(page: Page, input: object, mode = 'Stream'): Promise<void> {
  await openJson(page);
  await page.getByLabel('Input (JSON)').fill(JSON.stringify(input));
  await page.getByRole('radio', { name: mode, exact: true }).check();
  await page.getByRole('button', { name: 'Run', exact: true }).click();
}

async function openJson(page: Page): Promise<void> {
  await page.getByRole('radio', { name: 'JSON', exact: true }).check();
}

function result(page: Page) {
  return page.getByLabel('Result');
}

export function describePlayground(world: () => World): void {
  describe('the playground', () => {
    it('shows the chunks of a stream while it runs, and its end', async () => {
      await visit(world(), PATH, async (page) => {
        await run(page, { act: 'say', text: 'word', count: 40, ms: 60 });
        await result(page)
          .getByText(/word1 word2/)
          .waitFor();
        await result(page).getByText('Running').waitFor();
        await result(page).getByText('Completed').waitFor();
        await result(page)
          .getByText(/word39 word40/)
          .waitFor();
        await result(page).getByText('First chunk').waitFor();
        await expectAccessible(page);
        await page.reload();
        await page.getByText('Recent runs in this tab').waitFor();
      });
    });

    it('runs a job in one call, and a job that it asks for until it ends', async () => {
      const use = async (page: Page) => {
        for (const mode of ['Runsync', 'Run']) {
          await run(page, { act: 'say', text: mode, count: 2 }, mode);
          await result(page).getByText('Completed').waitFor();
          await result(page)
            .getByText(new RegExp(`${mode}2`))
            .waitFor();
          // The result is below the form, and the page has scrolled to it.
          expect((await result(page).boundingBox())?.y).toBeLessThan(100);
        }
      };
      await visit(world(), PATH, use, { viewport: { width: 360, height: 740 } });
    });

    it('says where the JSON is wrong, and why a job failed', async () => {
      await visit(world(), PATH, async (page) => {
        await openJson(page);
        await page.getByLabel('Input (JSON)').fill('{\n"act": \n}');
        await page.getByText('The input is not JSON: "}" does not belong here.').waitFor();
        await page.getByRole('button', { name: 'Line 3, column 1' }).click();
        await page.keyboard.type('7');
        await page.getByText(/is not JSON/).waitFor({ state: 'detached' });
        await page.getByLabel('Insert a file as base64').setInputFiles({
          name: 'a.txt',
          mimeType: 'text/plain',
          buffer: Buffer.from('abc'),
        });
        await page.getByRole('button', { name: 'Line 3, column 2' }).waitFor();
        await expectAccessible(page);
        expect(await page.getByRole('button', { name: 'Run', exact: true }).isDisabled()).toBe(
          true,
        );
        await run(page, { act: 'sing' });
        await result(page).getByText('input_invalid').first().waitFor();
        await run(page, { act: 'fail', text: 'on purpose' });
        await result(page)
          .getByText(/on purpose/)
          .first()
          .waitFor();
      });
    });

    it('cancels a running job', async () => {
      await visit(world(), PATH, async (page) => {
        await run(page, { act: 'sleep', ms: 600_000 }, 'Run');
        await result(page).getByText('Running').waitFor();
        await page.getByRole('button', { name: 'Cancel the job' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Cancel the job' }).click();
        await result(page).getByText('Cancelled').waitFor();
      });
    });

    it('shows images, and runs neither markup nor SVG of a handler', async () => {
      await visit(world(), PATH, async (page) => {
        await run(page, { act: 'picture' });
        await expect.poll(() => result(page).locator('img').count()).toBe(2);
        const width = await result(page)
          .locator('img')
          .first()
          .evaluate((image) => Reflect.get(image, 'naturalWidth'));
        expect(width).toBe(1);
        await run(page, { act: 'hostile' });
        await result(page)
          .getByText(/onerror=/)
          .waitFor();
        await result(page).getByText('Completed').waitFor();
        expect(await result(page).locator('img, svg, script, iframe').count()).toBe(0);
        expect(await page.title()).not.toContain('owned');
      });
    });

    it('stays usable with a text of 20 MB and with 10,000 chunks', async () => {
      await visit(world(), PATH, async (page) => {
        await run(page, { act: 'large', count: 19_000_000 });
        await result(page).getByText('Completed').waitFor();
        await result(page).getByRole('button', { name: 'Download the chunks' }).waitFor();
        expect((await result(page).textContent())?.length).toBeLessThan(200_000);

        await run(page, { act: 'chunks', count: 10_000 });
        await result(page).getByText('10,000 chunks.').waitFor();
        await result(page).getByText('9,900 earlier chunks are not shown.').waitFor();
        const saved = page.waitForEvent('download');
        await result(page).getByRole('button', { name: 'Download the chunks' }).click();
        expect((await saved).suggestedFilename()).toMatch(/-chunks\.json$/);
        await expectNoSidewaysScroll(page);
      });
    });
  });
}
