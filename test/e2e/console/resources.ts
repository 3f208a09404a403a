// Tests of the pages of pods, templates, the catalog and keys.
import { describe, expect, it } from 'vitest';
import { createPlatform } from '../../../src/client.ts';
import { ENDPOINT, expectAccessible, expectNoSidewaysScroll, visit, type World } from './world.ts';

export function describeResources(world: () => World): void {
  const admin = () => createPlatform({ url: world().platform.url, key: world().platform.adminKey });

  describe('the pages of resources', () => {
    it('show a pod with its log, and terminate it after a question', async () => {
      const { id } = await admin().pods.create({
        name: 'printer',
        image: 'none',
        args: `sh -c 'echo printed; sleep 600'`,
        cpu: { id: 'cpu', vcpuCount: 2, memory: 1 },
      });
      await visit(world(), '/pods', async (page) => {
        await page.getByRole('link', { name: 'printer' }).click();
        await page.getByText('Running').waitFor();
        await page.getByLabel('Log').getByText('printed').waitFor();
        await expectAccessible(page);
        await page.getByRole('button', { name: 'Terminate' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Terminate' }).click();
        await page.getByText('Terminated').waitFor();
      });
      const status = async () => (await admin().pods.get(id)).status;
      await expect.poll(status, { timeout: 30_000 }).toBe('TERMINATED');
    });

    it('create and delete a template, and list the catalog', async () => {
      await visit(
        world(),
        '/templates',
        async (page) => {
          await page.getByRole('button', { name: 'Create a template' }).click();
          const text = page.getByLabel('Create a template (JSON)');
          await text.fill('{ "name": "plain", "image": "" }');
          await page.getByRole('button', { name: 'Create', exact: true }).click();
          await page.getByRole('alert').getByText(/image/).first().waitFor();
          await text.fill('{ "name": "plain", "image": "registry.example.com/plain:1" }');
          await page.getByRole('button', { name: 'Create', exact: true }).click();
          await page.getByRole('rowheader', { name: 'plain' }).waitFor();
          await expectAccessible(page);
          await page.getByRole('button', { name: 'Change plain' }).click();
          const change = page.getByLabel('Change the template plain (JSON)');
          await expect.poll(() => change.inputValue()).toContain('"disk": 20');
          await change.fill('{ "image": "registry.example.com/plain:2" }');
          await page.getByRole('button', { name: 'Save' }).click();
          await page.getByRole('cell', { name: 'registry.example.com/plain:2' }).waitFor();
          const [changed] = (await admin().templates.page()).items;
          expect(changed).toMatchObject({ name: 'plain', disk: 20, version: 2 });
          await page.getByRole('button', { name: 'Delete' }).click();
          await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
          await page.getByText('No templates yet').waitFor();
          await page.getByRole('link', { name: 'Catalog' }).click();
          await page.getByRole('table', { name: '' }).getByText('cpu').first().waitFor();
          await expectAccessible(page);
        },
        { allow: /status of 422/ },
      );
    });

    it('create a schedule after a look at its next ticks, trigger, pause and delete it', async () => {
      await visit(world(), '/schedules', async (page) => {
        await page.getByText('No schedules yet').waitFor();
        await page.getByRole('button', { name: 'Create a schedule' }).click();
        await page.getByLabel('Name').fill('nightly');
        await page.getByLabel('Endpoint').selectOption(ENDPOINT);
        await page.getByLabel('Cron expression').fill('30 2 * * *');
        await page.getByLabel('Time zone').fill('Europe/Berlin');
        await page.getByLabel('Input').fill('{ "text": "a" }');
        await page.getByRole('button', { name: 'Show the next ticks' }).click();
        await page.getByLabel('Next ticks').getByRole('listitem').nth(4).waitFor();
        await expectAccessible(page);
        await page.getByRole('button', { name: 'Create', exact: true }).click();
        const row = page.getByRole('row', { name: /nightly/ });
        await row.getByText('30 2 * * * (Europe/Berlin)').waitFor();
        await row.getByRole('button', { name: 'Trigger' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Trigger' }).click();
        await row.getByRole('link', { name: 'job' }).waitFor();
        await row.getByRole('button', { name: 'Pause' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
        await row.getByText('Paused').waitFor();
        await expectAccessible(page);
        const [schedule] = (await admin().schedules.page()).items;
        expect(schedule).toMatchObject({ status: 'paused', input: { text: 'a' } });
        await row.getByRole('button', { name: 'Delete' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
        await page.getByText('No schedules yet').waitFor();
      });
    });

    it('show what the user may use, and the nodes of the platform', async () => {
      const { vcpuCount, memory } = { vcpuCount: 2, memory: 1 };
      const { id } = await admin().pods.create({
        ...{ name: 'held', image: 'none', args: 'sleep 600' },
        cpu: { id: 'cpu', vcpuCount, memory },
      });
      await visit(world(), '/limits', async (page) => {
        await page.getByRole('meter', { name: 'Quota pods' }).waitFor();
        await page.getByRole('row', { name: /^pods/ }).getByText('1 of 100').waitFor();
        await page.getByText('100 for each endpoint').waitFor();
        await expectAccessible(page);
        await page.getByRole('link', { name: 'Nodes' }).click();
        const node = page.getByRole('region', { name: 'Node local' });
        await node.getByText('Serving').waitFor();
        await node.getByText('process, 1 pod').waitFor();
        await node.getByText(/^1 of \d+ GB$/).waitFor();
        await page.getByText('millrace serve --node-url URL').waitFor();
        await expectAccessible(page);
      });
      await admin().pods.terminate(id);
    });

    it('show each GPU as a tile with the pod that holds it', async () => {
      const { items } = await admin().catalog.gpus.page();
      const { id } = await admin().pods.create({
        ...{ name: 'trainer', image: 'none', args: 'sleep 600' },
        gpu: { id: items[0]?.id ?? '', count: 2 },
      });
      await visit(world(), '/gpus', async (page) => {
        const tiles = page.getByRole('region', { name: 'GPUs of local' }).getByRole('listitem');
        await expect.poll(() => tiles.count()).toBe(8);
        await expect.poll(() => tiles.filter({ hasText: 'Free' }).count()).toBe(6);
        await tiles.filter({ hasText: 'Running' }).first().waitFor();
        await expectAccessible(page);
        await tiles.getByRole('link', { name: 'trainer' }).first().click();
        await page.getByRole('heading', { name: 'trainer' }).waitFor();
      });
      await admin().pods.terminate(id);
    });

    it('create an endpoint, change its settings, and delete it', async () => {
      await admin().templates.create({ name: 'for-endpoint', image: 'none', args: 'sleep 600' });
      await visit(world(), '/', async (page) => {
        const list = Promise.withResolvers<void>();
        await page.route('**/v1/templates*', async (route) => {
          await list.promise;
          await route.continue();
        });
        await page.getByRole('button', { name: 'Create an endpoint' }).click();
        await page.locator('input[name=name]:focus').fill('made-here');
        // Before the templates have come: a field that is replaced would lose what a user has typed.
        await page.locator('select[name=templateId]').focus();
        list.resolve();
        await page.getByLabel('Template').selectOption('for-endpoint');
        await page.locator('select[name=templateId]:focus').waitFor();
        await page.getByLabel('Maximum workers').fill('1');
        await expectAccessible(page);
        await page.getByRole('button', { name: 'Create', exact: true }).click();
        await page.getByRole('heading', { name: 'made-here' }).waitFor();
        await page.getByRole('heading', { name: 'Scaling decisions' }).waitFor();
        await page.getByRole('link', { name: 'Versions' }).click();
        await page.getByText('No versions yet').waitFor();
        await page.getByRole('link', { name: 'Settings' }).click();
        await page.getByLabel('Maximum').fill('2');
        await page.getByLabel('Minimum gives way').selectOption('Yes');
        await page.getByLabel('Execution timeout, s').fill('60');
        await page.getByRole('button', { name: 'Save' }).click();
        await page.getByText('Saved.').waitFor();
        await expectAccessible(page);
        const made = await admin().endpoints.get('made-here');
        expect(made).toMatchObject({ workersMax: 2, executionTimeout: 60_000, yields: true });
        await page.getByRole('button', { name: 'Delete the endpoint' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Delete the endpoint' }).click();
        await page.getByRole('heading', { name: 'Overview' }).waitFor();
      });
      await admin().templates.delete('for-endpoint');
    });

    it('show a new key once, and revoke it', async () => {
      const options = { viewport: { width: 360, height: 740 } };
      const create = async (page: Parameters<Parameters<typeof visit>[2]>[0]) => {
        await page.getByRole('button', { name: 'Create a key' }).click();
        await expectAccessible(page);
        await page.getByLabel('Name').fill('from the console');
        await page.getByRole('checkbox', { name: /jobs:read/ }).check();
        await page.getByRole('button', { name: 'Create', exact: true }).click();
        const key = await page.locator('.secret').textContent();
        await expectNoSidewaysScroll(page);
        await page.getByRole('button', { name: 'Done' }).click();
        const row = page.getByRole('row', { name: /from the console/ });
        await row.getByRole('button', { name: 'Revoke' }).click();
        expect(await page.content()).not.toContain(key);
        await page
          .getByRole('dialog', { name: /Revoke the key/ })
          .getByRole('button', { name: 'Revoke' })
          .click();
        await row.waitFor({ state: 'detached' });
      };
      await visit(world(), '/keys', create, options);
      expect((await admin().keys.page()).items.map(({ name }) => name)).not.toContain(
        'from the console',
      );
    });

    it('are not offered to a key that may not open them', async () => {
      const { key } = await admin().keys.create({ name: 'jobs', scopes: ['jobs:read'] });
      await visit(
        world(),
        '/',
        async (page) => {
          const names = page.getByRole('navigation', { name: 'Main' }).getByRole('link');
          await expect
            .poll(() => names.allTextContents())
            .toEqual(['Overview', 'Failed jobs', 'Batches', 'Schedules', 'Limits']);
          await page.getByRole('link', { name: ENDPOINT, exact: true }).click();
          await page.getByRole('link', { name: 'Jobs', exact: true }).click();
          await page.getByLabel('Status').waitFor();
          await expectAccessible(page);
        },
        { key },
      );
    });
  });
}
