// Tests of the page of versions with real versions, and of what the workers of an endpoint run.
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { createClient, createPlatform } from '../../../src/client.ts';
import { createVersionedEndpoint, handlerOf, upload } from '../../support/version-project.ts';
import { expectAccessible, visit, type World } from './world.ts';

async function deploy(page: Page, version: number, label: 'Deploy' | 'Roll back'): Promise<void> {
  const row = page.getByRole('row').filter({ has: page.getByText(`${version}`, { exact: true }) });
  await row.getByRole('button', { name: label }).click();
  await page.getByRole('dialog').getByRole('button', { name: label }).click();
  await page.getByRole('heading', { name: `Rollout of version ${version}` }).waitFor();
}

export function describeVersions(world: () => World): void {
  describe.concurrent('versions', () => {
    it('are deployed and rolled back, one that fails changes nothing, and workers show their jobs', async () => {
      const { adminKey: key, url } = world().platform;
      const platform = createPlatform({ url, key });
      const { id } = await createVersionedEndpoint(platform, { workersMin: 1, workersMax: 1 });
      for (const name of ['first', 'second']) {
        await upload(platform, id, { 'handler.ts': handlerOf(name) });
      }
      await upload(platform, id, {
        'handler.ts': handlerOf('third', 'throw new Error("weights are missing");'),
      });
      const client = createClient({ url, key, endpoint: id });
      const done = (page: Page) => page.getByText('Done', { exact: true }).waitFor(LONG);
      await visit(world(), `/endpoints/${id}/versions`, async (page) => {
        for (const [version, label] of STEPS) {
          await deploy(page, version, label);
          await done(page);
          const number = page.getByRole('cell', { name: `${version}`, exact: true });
          await page
            .getByRole('row')
            .filter({ hasText: 'Running' })
            .filter({ has: number })
            .waitFor();
        }
        await deploy(page, 3, 'Deploy');
        await page.getByText('Version 1 keeps running.').waitFor(LONG);
        await page.getByText(/weights are missing/).waitFor();
        await expectAccessible(page);
        expect((await client.runsync({})).output).toEqual({ version: 'first' });

        const running = await client.run({ ms: 600_000 });
        await page.getByRole('link', { name: 'State', exact: true }).click();
        const workers = page.getByRole('region', { name: 'Workers', exact: true });
        await workers.getByRole('link', { name: running.id }).waitFor(LONG);
        await page.getByText(/^Total \$[\d.]+\/h$/).waitFor();
        await expectAccessible(page);
        await workers.getByRole('link', { name: / worker$/ }).click();
        const parts = page.getByRole('list', { name: 'Parts of the start' });
        await parts.getByText(/^install .* m?s$/).waitFor(LONG);
        await expectAccessible(page);
        await client.cancel(running.id);
      });
    });
  });
}

const STEPS = [
  [1, 'Deploy'],
  [2, 'Deploy'],
  [1, 'Roll back'],
] as const;
/** Each rollout starts workers. */
const LONG = { timeout: 90_000 };
