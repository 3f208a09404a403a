// Tests of the end of a browser's session: by time, and by a sign-out in another tab.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { openPage } from '../../support/browser.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { visit, type World } from './world.ts';

/** Chromium reports every refused request to its console. */
const REFUSED = /Failed to load resource: the server responded with a status of 401/;
const IDLE_S = 4;

async function signIn(page: Page, { adminKey, url }: PlatformProcess): Promise<void> {
  await page.goto(`${url}/console/`);
  await page.getByLabel('API key').fill(adminKey);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

export function describeSessions(world: () => World): void {
  describe.concurrent('a session', () => {
    it('ends in every tab when one of them signs out', async () => {
      const { platform } = world();
      await visit(
        world(),
        '/',
        async (page) => {
          const other = await page.context().newPage();
          await other.goto(`${platform.url}/console/limits`);
          await other.getByRole('heading', { name: 'Quotas' }).waitFor();
          await page.getByRole('button', { name: 'Sign out' }).click();
          await page.getByText('You are signed out.').waitFor();
          await other.getByText('Your session has ended.').waitFor();
        },
        { allow: REFUSED },
      );
    });

    it('ends after its longest time although the page uses it, and when nothing uses it', async () => {
      const times = ['--session-seconds', '15', '--session-idle-seconds', String(IDLE_S)];
      const platform = await PlatformProcess.start({ endpoints: [], args: times });
      const { close, complaints, page } = await openPage(world().browser);
      try {
        await signIn(page, platform);
        await page.getByText('Your session has ended.').waitFor({ timeout: 60_000 });
        await signIn(page, platform);
        await page.getByLabel('API key').waitFor({ state: 'detached' });
        await page.goto('about:blank');
        await sleep((IDLE_S + 2) * 1_000);
        await page.goto(`${platform.url}/console/limits`);
        await page.getByLabel('API key').waitFor();
        expect(complaints.filter((text) => !REFUSED.test(text))).toEqual([]);
      } finally {
        await close();
        await platform.close();
      }
    });
  });
}
