// Tests of the pages of network volumes, registries and data centers.
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { createPlatform } from '../../../src/client.ts';
import { expectAccessible, expectNoSidewaysScroll, visit, type World } from './world.ts';

const SECRET = 'a secret-4711 ';

async function confirmDeletion(page: Page): Promise<void> {
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
}

export function describeStorage(world: () => World): void {
  const admin = () => createPlatform({ url: world().platform.url, key: world().platform.adminKey });

  describe.concurrent('storage and registries', () => {
    it('create, grow and delete a network volume, but not one that a pod mounts', async ({
      expect,
    }) => {
      await visit(
        world(),
        '/network-volumes',
        async (page) => {
          const declared = page.getByRole('row').filter({ hasText: 'Shared weights' });
          await declared.getByText('Fixed by the catalog file').waitFor();
          expect(await declared.getByRole('button', { name: /Change|Delete/ }).count()).toBe(0);
          await page.getByRole('button', { name: 'Create a volume' }).click();
          await page.locator('input[name=name]:focus').fill('models');
          await page.getByLabel('Size, GB').fill('20');
          await page.getByLabel('Data center').selectOption('North hall');
          await expectAccessible(page);
          await page.getByRole('button', { name: 'Create', exact: true }).click();
          const row = page.getByRole('row').filter({ hasText: 'models' });
          await row.getByRole('cell', { name: '20', exact: true }).waitFor();
          await page.getByRole('button', { name: 'Change models' }).click();
          expect(await page.getByLabel('Size, GB').inputValue()).toBe('20');
          await page.getByLabel('Size, GB').fill('40');
          await page.getByRole('button', { name: 'Save' }).click();
          await row.getByRole('cell', { name: '40', exact: true }).waitFor();
          await page.locator('button:focus', { hasText: 'Change' }).waitFor();
          const volume = (await admin().networkVolumes.page()).items.find(
            ({ name }) => name === 'models',
          );
          expect(volume).toMatchObject({ size: 40, dataCenterId: 'north' });
          const pod = await admin().pods.create({
            ...{ name: 'mounts', image: 'none', args: 'sleep 600' },
            cpu: { id: 'cpu', vcpuCount: 2, memory: 1 },
            mounts: { network: [{ volumeId: volume?.id ?? '', path: '/data' }] },
          });
          await row.getByRole('link', { name: 'pod mounts' }).waitFor();
          await row.getByRole('button', { name: 'Delete' }).click();
          await page.getByRole('dialog').getByText('Mounted by pod mounts.').waitFor();
          await confirmDeletion(page);
          await page.getByRole('alert').getByText(pod.id).waitFor();
          await expectAccessible(page);
          await admin().pods.terminate(pod.id);
          // The pod mounts the volume until its container is gone.
          const remove = page.getByRole('dialog').getByRole('button', { name: 'Delete' });
          const countRows = async () => {
            if (await remove.isEnabled({ timeout: 1_000 }).catch(() => false)) await remove.click();
            return row.count();
          };
          await expect.poll(countRows, { timeout: 60_000, interval: 500 }).toBe(0);
        },
        { allow: /status of 409/ },
      );
    });

    it('create a registry whose secret is never shown, change it, and delete it', async () => {
      const use = async (page: Page) => {
        await page.getByText('No registries yet').waitFor();
        await page.getByRole('button', { name: 'Create a login' }).click();
        await page.getByLabel('Name').fill('own');
        await page.getByLabel('Server').fill('registry.example.com/path');
        await page.getByLabel('User').fill('ci');
        await page.getByLabel('Secret').fill(SECRET);
        expect(await page.getByLabel('Secret').getAttribute('type')).toBe('password');
        expect(await page.getByRole('code').allTextContents()).toContain('docker.io');
        await page.getByRole('button', { name: 'Create', exact: true }).click();
        await page
          .getByRole('alert')
          .getByText(/server/)
          .first()
          .waitFor();
        await page.getByLabel('Server').fill('registry.example.com');
        await expectAccessible(page);
        await expectNoSidewaysScroll(page);
        await page.getByRole('button', { name: 'Create', exact: true }).click();
        await page.getByRole('rowheader', { name: 'own' }).waitFor();
        await page.getByRole('button', { name: 'Change own' }).click();
        expect(await page.getByLabel('Secret').inputValue()).toBe('');
        expect(await page.content()).not.toContain(SECRET.trim());
        await page.getByLabel('User').fill('robot');
        await page.getByRole('button', { name: 'Save' }).click();
        await page.getByRole('cell', { name: 'robot', exact: true }).waitFor();
        await expectNoSidewaysScroll(page);
        await page.getByRole('button', { name: 'Delete' }).click();
        await confirmDeletion(page);
        await page.getByText('No registries yet').waitFor();
      };
      const viewport = { width: 360, height: 740 };
      await visit(world(), '/registries', use, { viewport, allow: /status of 422/ });
    });

    it('list the data centers of the catalog', async () => {
      await visit(world(), '/catalog', async (page) => {
        const row = page.getByRole('region', { name: 'Data centers' }).getByRole('row').nth(1);
        await row.waitFor();
        expect(await row.getByRole('cell').allTextContents()).toEqual([
          'processDefault for pods that name none',
          expect.any(String),
          'Yes',
          '0',
        ]);
        const engine = page.getByRole('region', { name: 'What the engine can do' });
        const stop = engine.getByRole('row').filter({ hasText: 'stop' }).first();
        expect(await stop.getByRole('cell').allTextContents()).toEqual([
          'a stopped pod keeps its disk',
        ]);
        await expectAccessible(page);
      });
    });
  });
}
