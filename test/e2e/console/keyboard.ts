// Tests of dialogs, forms and the menu with the keyboard alone.
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { clientOf, ENDPOINT, expectAccessible, visit, type World } from './world.ts';

function readFocus(page: Page): Promise<string> {
  return page.evaluate<string>(
    '(document.activeElement?.closest("dialog") ? "dialog: " : "") + document.activeElement?.textContent',
  );
}

export function describeKeyboard(world: () => World): void {
  describe.concurrent('the keyboard', () => {
    it('opens a dialog, stays in it, leaves it with Escape, and is where it was', async () => {
      const { id } = await clientOf(world()).run({ act: 'say' }, { policy: { delay: 600_000 } });
      await visit(world(), `/endpoints/${ENDPOINT}/jobs`, async (page) => {
        await page.getByLabel(`Select ${id}`).check();
        await page.getByRole('button', { name: 'Cancel', exact: true }).focus();
        await page.keyboard.press('Enter');
        await page.getByRole('dialog').waitFor();
        await expectAccessible(page);
        const seen = new Set<string>();
        for (let n = 0; n < 6; n++) {
          seen.add(await readFocus(page));
          await page.keyboard.press('Tab');
        }
        expect([...seen].filter((text) => text.startsWith('dialog')).toSorted()).toEqual([
          'dialog: Back',
          'dialog: Cancel',
        ]);
        await page.keyboard.press('Escape');
        await page.getByRole('dialog').waitFor({ state: 'hidden' });
        expect(await readFocus(page)).toBe('Cancel');
        expect(await page.evaluate('document.getAnimations().length')).toBe(0);
      });
      await clientOf(world()).cancel(id);
    });

    it('enters a form that it opens, and returns to the button behind it', async () => {
      await visit(world(), '/templates', async (page) => {
        const button = page.getByRole('button', { name: 'Create a template' });
        await button.focus();
        await page.keyboard.press('Enter');
        await page.locator('textarea:focus').waitFor();
        await page.getByRole('button', { name: 'Back' }).focus();
        await page.keyboard.press('Enter');
        await page.locator('button:focus', { hasText: 'Create a template' }).waitFor();
      });
    });

    it('opens the palette, which leads to pages, endpoints, jobs and tags', async () => {
      const client = clientOf(world());
      const { id } = await client.run({ act: 'say' }, { policy: { tags: ['palette'] } });
      const use = async (page: Page) => {
        const field = page.getByRole('combobox', { name: /Page, endpoint/ });
        const options = page.getByRole('option');
        const search = async (text: string) => {
          await page.keyboard.press('Control+k');
          await field.fill(text);
        };
        await page.getByRole('heading', { name: 'Limits' }).waitFor();
        await search('templ');
        await expectAccessible(page);
        await page.keyboard.press('Enter');
        await page.getByRole('heading', { name: 'Templates' }).waitFor();

        await search(`jobs ${ENDPOINT}`);
        await options.filter({ hasText: /^console Jobs$/ }).waitFor();
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('ArrowUp');
        await page.keyboard.press('Enter');
        await page.getByLabel('Status').waitFor();

        await search(id);
        await options.filter({ hasText: `Job of ${ENDPOINT}` }).waitFor();
        await page.keyboard.press('Enter');
        await page.getByRole('heading', { name: 'Job', exact: true }).waitFor();
        expect(page.url()).toContain(id);

        await search('palette');
        await options.filter({ hasText: `Jobs of ${ENDPOINT} with the tag “palette”` }).click();
        await page.getByRole('link', { name: id }).waitFor();
        expect(page.url()).toContain('tag=palette');

        await page.getByRole('button', { name: 'Search' }).click();
        await field.fill('00000000-0000-7000-8000-000000000000');
        await page.getByText('Nothing found').waitFor();
        await page.keyboard.press('Escape');
        await field.waitFor({ state: 'detached' });
      };
      // The endpoints that do not have the job say so.
      await visit(world(), '/limits', use, { allow: /status of 404/ });
    });

    it('closes the menu of a phone with Escape', async () => {
      const viewport = { width: 360, height: 740 };
      const use = async (page: Page) => {
        const menu = page.getByRole('button', { name: 'Menu' });
        await menu.focus();
        await page.keyboard.press('Enter');
        await page.getByRole('link', { name: 'Limits', exact: true }).focus();
        await page.keyboard.press('Escape');
        expect(await menu.getAttribute('aria-expanded')).toBe('false');
        expect(await readFocus(page)).toBe('Menu');
      };
      await visit(world(), '/', use, { viewport });
    });
  });
}
