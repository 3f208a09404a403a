// Watches: order, selectors, versions that are too old, bookmarks and limits of time.
import { describe, expect, it } from 'vitest';
import type { KubeEvent } from '../../support/kubernetes/client.ts';
import type { ClusterStage } from './contract.ts';

export function describeWatches(stage: ClusterStage): void {
  const describeEvent = ({ object, type }: KubeEvent) => `${type} ${object.metadata.name}`;

  async function take(query: string, count: number): Promise<string[]> {
    const seen: string[] = [];
    for await (const event of stage.client.watch(`${stage.path('secrets')}?watch=true&${query}`)) {
      if (seen.push(describeEvent(event)) === count) break;
    }
    return seen;
  }

  const create = (name: string, labels: Record<string, string> = {}) =>
    stage.client.create(stage.path('secrets'), { metadata: { name, labels } });

  describe('watching', () => {
    it('sends each change after a version, in order', async () => {
      const { version } = await stage.client.list(stage.path('secrets'));
      await create('a');
      await create('b');
      const patch = { metadata: { labels: { x: '1' } } };
      await stage.client.patch(stage.path('secrets', 'a'), patch);
      const later = take(`resourceVersion=${version}`, 4);
      await stage.client.remove(stage.path('secrets', 'b'));
      expect(await later).toEqual(['ADDED a', 'ADDED b', 'MODIFIED a', 'DELETED b']);
    });

    it('begins with what exists if it gets no version', async () => {
      await create('only');
      expect(await take('labelSelector=!a', 1)).toEqual(['ADDED only']);
    });

    it('shows an object that leaves the selection as deleted', async () => {
      const { version } = await stage.client.list(stage.path('secrets'));
      await create('outside');
      await create('a', { app: 'x' });
      const path = stage.path('secrets', 'a');
      await stage.client.patch(path, { metadata: { labels: { app: 'y' } } });
      await stage.client.patch(path, { metadata: { labels: { app: 'x' } } });
      const query = `resourceVersion=${version}&labelSelector=app%3Dx`;
      expect(await take(query, 3)).toEqual(['ADDED a', 'DELETED a', 'ADDED a']);
    });

    it('fails with 410 from a version that is too old', async () => {
      const { version } = await stage.client.list(stage.path('secrets'));
      await create('a');
      await stage.cluster.forgetVersions();
      const watch = `${stage.path('secrets')}?watch=true&resourceVersion=${version}`;
      for await (const { object, type } of stage.client.watch(watch)) {
        expect({ type, code: object.code }).toEqual({ type: 'ERROR', code: 410 });
      }
    });

    it('ends after its time, with a bookmark of the last version', async () => {
      const { version } = await stage.client.list(stage.path('secrets'));
      await create('a');
      const limits = 'timeoutSeconds=3&allowWatchBookmarks=true';
      const seen: KubeEvent[] = [];
      const path = `${stage.path('secrets')}?watch=true&resourceVersion=${version}&${limits}`;
      for await (const event of stage.client.watch(path)) seen.push(event);
      expect(seen[0]).toMatchObject({ type: 'ADDED' });
      const bookmarks = seen.filter(({ type }) => type === 'BOOKMARK');
      expect(seen).toHaveLength(1 + bookmarks.length);
      // A server may leave them out.
      for (const { object } of bookmarks) {
        const found = Number(object.metadata.resourceVersion);
        expect(found).toBeGreaterThanOrEqual(Number(seen[0]?.object.metadata.resourceVersion));
      }
    });
  });
}
