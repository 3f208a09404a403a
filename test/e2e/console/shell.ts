// Tests of the console's frame: sign-in, its end, a lost platform, keyboard and screen readers.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createPlatform } from '../../../src/client.ts';
import { openPage } from '../../support/browser.ts';
import { fixture, Process } from '../../support/processes.ts';
import { expectAccessible, expectNoSidewaysScroll, visit, type World } from './world.ts';

/** Chromium reports every refused request to its console. */
const REFUSED = /Failed to load resource: the server responded with a status of 40[13]/;
const LOST = /Failed to load resource|ERR_CONNECTION_REFUSED/;

export function describeShell(world: () => World): void {
  describe('the frame', () => {
    it('signs in with a key, keeps the session over a reload, and signs out', async () => {
      const { browser, platform } = world();
      const { close, complaints, page } = await openPage(browser);
      await page.goto(`${platform.url}/`);
      expect(page.url()).toBe(`${platform.url}/console/`);
      const key = page.getByLabel('API key');
      await expectAccessible(page);

      await key.fill('mr_wrong');
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('alert').waitFor();

      await key.fill(platform.adminKey);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.reload();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();

      const storage = await page.evaluate<string>(
        'JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href])',
      );
      expect(storage).not.toContain(platform.adminKey);

      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByText('You are signed out.').waitFor();
      await page.reload();
      await page.getByLabel('API key').waitFor();
      expect(complaints.filter((text) => !REFUSED.test(text))).toEqual([]);
      await close();
    });

    it('asks for a key again once the key of the session is revoked', async () => {
      const { platform } = world();
      const { keys } = createPlatform({ url: platform.url, key: platform.adminKey });
      const { id, key } = await keys.create({
        name: 'short',
        scopes: ['endpoints:read', 'jobs:read'],
      });
      await visit(
        world(),
        '/',
        async (page) => {
          await page.getByRole('heading', { name: 'Overview' }).waitFor();
          await keys.delete(id);
          await page.getByText('Your session has ended.').waitFor();
        },
        { key, allow: REFUSED },
      );
    });

    it('needs no key in millrace dev', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'millrace-console-'));
      const dev = new Process(['dev', fixture('square.ts'), '--port', '0', '--data', folder]);
      const { close, complaints, page } = await openPage(world().browser);
      try {
        await page.goto(`${await dev.find(/(http:\/\/127\.0\.0\.1:\d+)/)}/`);
        await page.getByRole('link', { name: 'square' }).click();
        await page.getByRole('link', { name: 'Playground' }).waitFor();
        expect(await page.getByRole('button', { name: 'Sign out' }).count()).toBe(0);
        expect(complaints).toEqual([]);
      } finally {
        await close();
        await dev.end();
        await rm(folder, { recursive: true, force: true });
      }
    });

    it('loads its first page with at most 150 KB', async () => {
      await visit(world(), '/', async (page) => {
        await page.getByRole('link', { name: 'quiet' }).waitFor();
        const sizes = await page.evaluate<number[]>(
          `performance.getEntriesByType('resource')
            .filter(({ name }) => name.includes('/console/'))
            .map(({ encodedBodySize }) => encodedBodySize)`,
        );
        expect(sizes.length).toBeGreaterThan(3);
        expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(150_000);
      });
    });

    it('is usable by keyboard, and no page scrolls sideways on a phone', async () => {
      await visit(
        world(),
        '/',
        async (page) => {
          const search = page.getByRole('searchbox');
          await search.waitFor();
          await page.keyboard.press('Tab');
          expect(await page.evaluate('document.activeElement?.className')).toBe('skip');
          await page.keyboard.press('/');
          expect(await search.evaluate((field) => field.matches(':focus'))).toBe(true);
          await page.getByRole('button', { name: 'Menu' }).click();
          await page.getByLabel('Theme').selectOption('dark');
          expect(await page.evaluate('document.documentElement.dataset.theme')).toBe('dark');
          await expectAccessible(page);
          await expectNoSidewaysScroll(page);
        },
        { viewport: { width: 360, height: 740 } },
      );
    });

    it('shows that the platform is lost, and goes on when it is back', async () => {
      const { platform } = world();
      await visit(
        world(),
        '/',
        async (page) => {
          await page.getByRole('link', { name: 'quiet' }).waitFor();
          await platform.kill();
          const bar = page.getByText('The platform does not answer.');
          await bar.waitFor();
          await platform.restart();
          await bar.waitFor({ state: 'detached' });
          await page.getByRole('link', { name: 'quiet' }).waitFor();
        },
        { allow: LOST },
      );
    });
  });
}
