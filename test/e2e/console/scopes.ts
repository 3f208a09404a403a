// Tests that pages offer only what the scopes of the key allow.
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { createPlatform } from '../../../src/client.ts';
import { clientOf, ENDPOINT, visit, type World } from './world.ts';

const ACTIONS =
  /^(Create|Delete|Change|Save|Rotate|Revoke|Terminate|Stop|Start|Restart|Deploy|Roll back|Retry|Cancel|Purge|Run)\b/;
const REFUSED = /Failed to load resource: the server responded with a status of 40[34]/;

/** Pages on which a key with all scopes may act. */
async function listPages(world: World): Promise<string[]> {
  const { adminKey: key, url } = world.platform;
  const { endpoints, pods, templates } = createPlatform({ url, key });
  const { id: template } = await templates.create({ name: 'scoped', image: 'none', args: 'true' });
  const managed = await endpoints.create({ name: 'scoped', templateId: template, workersMax: 0 });
  const pod = await pods.create({
    ...{ name: 'scoped', image: 'none', args: 'sleep 600' },
    cpu: { id: 'cpu', vcpuCount: 2, memory: 1 },
  });
  const client = clientOf(world);
  const job = await client.run({ act: 'fail' });
  await client.wait(job.id);
  const flow = await client.flows.run({ jobs: [{ name: 'only', input: { act: 'fail' } }] });
  const batch = await client.batches.submit('{"id":"a","input":{"act":"sleep","ms":600000}}');
  const ofQueue = `/endpoints/${ENDPOINT}`;
  return [
    ...['/', '/pods', `/pods/${pod.id}`, '/templates', '/keys'],
    ...['/network-volumes', '/registries', '/billing'],
    ...[`${ofQueue}/flows/${flow.id}`, `${ofQueue}/batches/${batch.id}`],
    ...[`${ofQueue}/jobs`, `${ofQueue}/jobs/${job.id}`, `/endpoints/${managed.id}/settings`],
  ];
}

/** Pages without an action. */
const OTHER_PAGES = [
  ...['/catalog', '/limits', '/nodes', '/gpus'],
  ...['/batches', `/endpoints/${ENDPOINT}/batches`, `/endpoints/${ENDPOINT}/flows`],
  ...[`/endpoints/${ENDPOINT}`, `/endpoints/${ENDPOINT}/versions`],
];

const CONTENT = 'main :is(table, dl, form, .empty, [role=alert])';
/** A key that may read nothing of an endpoint sees only its name. */
const CONTENT_WAIT_MS = 3_000;

async function open(page: Page, { platform }: World, path: string): Promise<string[]> {
  await page.goto(`${platform.url}/console${path}`);
  await page.getByRole('heading', { level: 1 }).waitFor();
  const content = page.locator(CONTENT).first();
  await content.waitFor({ timeout: CONTENT_WAIT_MS }).catch(() => {});
  const names = await page.getByRole('button').allTextContents();
  return names.filter((name) => ACTIONS.test(name.trim()));
}

export function describeScopes(world: () => World): void {
  describe.concurrent('a key', () => {
    it('is offered no action on any page if it may only read, or only take jobs', async () => {
      const { keys } = createPlatform({
        url: world().platform.url,
        key: world().platform.adminKey,
      });
      const acting = await listPages(world());
      const all = [...acting, ...OTHER_PAGES];
      const create = async (scopes: string[]) =>
        (await keys.create({ name: 'limited', scopes })).key;
      const reader = await create(['jobs:read', 'endpoints:read', 'pods:read', 'keys:read']);
      const worker = await create(['worker']);
      const check = (pages: readonly string[], isOffered: boolean, key?: string) =>
        visit(
          world(),
          '/',
          async (page) => {
            for (const path of pages) {
              const offered = await open(page, world(), path);
              expect(offered.length > 0, `${path}: ${offered.join(', ')}`).toBe(isOffered);
            }
          },
          { ...(key !== undefined && { key }), allow: REFUSED },
        );
      await Promise.all([
        check(acting, true),
        check(all, false, reader),
        check(all, false, worker),
      ]);
    });

    it('sees the names of variables if it may only read pods, and that their values are hidden', async () => {
      const { adminKey, url } = world().platform;
      const { keys, pods } = createPlatform({ url, key: adminKey });
      const { id } = await pods.create({
        ...{ name: 'secret', image: 'none', args: 'sleep 600', env: { TOKEN: 's3cret' } },
        cpu: { id: 'cpu', vcpuCount: 2, memory: 1 },
      });
      const { key } = await keys.create({ name: 'pods only', scopes: ['pods:read'] });
      await visit(
        world(),
        `/pods/${id}`,
        async (page) => {
          await page.getByText('TOKEN (values hidden: your key lacks pods:write)').waitFor();
          expect(await page.content()).not.toContain('s3cret');
        },
        { key, allow: REFUSED },
      );
    });
  });
}
