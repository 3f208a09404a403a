// Resources: pods, templates, decisions.
import { expect, it } from 'vitest';
import type { StoredResource } from '../../../src/store/store.ts';
import { idsOf, store } from './store-under-test.ts';

function makeResource(given: Partial<StoredResource>): StoredResource {
  const base = { kind: 'template' as const, userId: 'ada', parent: '', position: 1 };
  return { ...base, id: 'tpl_1', body: '{"name":"one"}', ...given };
}

async function put(...resources: StoredResource[]): Promise<void> {
  await store.write((tx) => {
    for (const resource of resources) tx.putResource(resource);
  });
}

export function describeResources(): void {
  it('is found by kind and ID until it is removed', async () => {
    const resource = makeResource({});
    await put(resource);
    expect(await store.read((tx) => tx.resource(resource))).toEqual(resource);
    expect(await store.read((tx) => tx.resource({ kind: 'pod', id: 'tpl_1' }))).toBeUndefined();
    await store.write((tx) => tx.removeResource(resource));
    expect(await store.read((tx) => tx.resource(resource))).toBeUndefined();
  });

  it('keeps its owner, parent and position when it changes', async () => {
    await put(makeResource({ parent: 'ep_1' }));
    await put(makeResource({ userId: 'bob', parent: 'ep_2', position: 7, body: '{"name":"two"}' }));
    const kept = await store.read((tx) => tx.resource({ kind: 'template', id: 'tpl_1' }));
    expect(kept).toEqual(makeResource({ parent: 'ep_1', body: '{"name":"two"}' }));
  });

  it('is listed in pages by user and by parent, newest first', async () => {
    await put(
      makeResource({ id: 'a', position: 1 }),
      makeResource({ id: 'b', position: 2, userId: 'bob', parent: 'ep_1' }),
      makeResource({ id: 'c', position: 3, parent: 'ep_1' }),
      makeResource({ id: 'd', position: 4, kind: 'pod' }),
      makeResource({ id: 'e', position: 5 }),
    );
    const list = async (listing: { userId?: string; parent?: string; before?: number }) =>
      idsOf(await store.read((tx) => tx.resources({ kind: 'template', limit: 2, ...listing })));
    expect(await list({})).toEqual(['e', 'c']);
    expect(await list({ before: 3 })).toEqual(['b', 'a']);
    expect(await list({ userId: 'ada' })).toEqual(['e', 'c']);
    expect(await list({ userId: 'ada', before: 3 })).toEqual(['a']);
    expect(await list({ parent: 'ep_1' })).toEqual(['c', 'b']);
    expect(await list({ parent: 'ep_1', userId: 'bob' })).toEqual(['b']);
  });

  it('is unchanged if the operation that changed it fails', async () => {
    const resource = makeResource({});
    await put(resource);
    const failing = store.write((tx) => {
      tx.putResource({ ...resource, body: '{}' });
      tx.removeResource(resource);
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    expect(await store.read((tx) => tx.resource(resource))).toEqual(resource);
  });
}
