// Reads and writes of objects: conflicts, selectors, patches, removals, finalizers and owners.
import { describe, expect, it } from 'vitest';
import { KubeClient } from '../../support/kubernetes/client.ts';
import type { ClusterStage } from './contract.ts';

const secret = (name: string, part: object = {}) => ({ metadata: { name, ...part } });

export function describeObjects(stage: ClusterStage): void {
  const conflict = { code: 409, reason: 'Conflict' };
  const notFound = { code: 404, reason: 'NotFound' };

  async function createSecrets(...all: [name: string, labels: Record<string, string>][]) {
    for (const [name, labels] of all) {
      await stage.client.create(stage.path('secrets'), secret(name, { labels }));
    }
  }

  async function listNames(plural: string, query: string): Promise<string[]> {
    const { items } = await stage.client.list(`${stage.path(plural)}?${query}`);
    return items.map(({ metadata }) => metadata.name);
  }

  describe('creating', () => {
    it('gives an object a UID and a version', async () => {
      const created = await stage.client.create(stage.path('secrets'), {
        ...secret('new'),
        stringData: { key: 'text' },
      });
      expect(created).toMatchObject({ kind: 'Secret', type: 'Opaque', data: { key: 'dGV4dA==' } });
      expect(created.metadata.uid).toMatch(/^[0-9a-f-]{36}$/);
      expect(Number(created.metadata.resourceVersion)).toBeGreaterThan(0);
      expect(await stage.client.get(stage.path('secrets', 'new'))).toEqual(created);
    });

    it('refuses a name that exists', async () => {
      await stage.client.create(stage.path('secrets'), secret('twice'));
      const again = stage.client.create(stage.path('secrets'), secret('twice'));
      await expect(again).rejects.toMatchObject({ code: 409, reason: 'AlreadyExists' });
    });

    it('adds a suffix to a generated name', async () => {
      const metadata = { generateName: 'part-' };
      const created = await stage.client.create(stage.path('secrets'), { metadata });
      expect(created.metadata.name).toMatch(/^part-.{5}$/);
    });

    it.each([
      ['an upper-case name', secret('Upper')],
      ['a label value with a space', secret('labelled', { labels: { a: 'b c' } })],
      ['too many bytes', { ...secret('large'), data: { a: 'A'.repeat(1_500_000) } }],
      ['a key with a slash', { ...secret('keyed'), data: { 'a/b': '' } }],
    ])('refuses %s', async (_what, body) => {
      const created = stage.client.create(stage.path('secrets'), body);
      await expect(created).rejects.toMatchObject({ code: 422, reason: 'Invalid' });
    });

    it.each([
      ['no container', { containers: [] }],
      ['a request above its limit', withResources({ requests: { cpu: 2 }, limits: { cpu: 1 } })],
      ['GPUs by request only', withResources({ requests: { 'nvidia.com/gpu': 1 } })],
      ['a deadline of 0 s', { ...withResources({}), activeDeadlineSeconds: 0 }],
    ])('refuses a pod with %s', async (_what, spec) => {
      const body = { metadata: { name: 'wrong' }, spec: { restartPolicy: 'Never', ...spec } };
      const created = stage.client.create(stage.path('pods'), body);
      await expect(created).rejects.toMatchObject({ code: 422, reason: 'Invalid' });
    });

    it('refuses an unknown namespace, and another one than that of the path', async () => {
      const nowhere = '/api/v1/namespaces/nowhere/secrets';
      await expect(stage.client.create(nowhere, secret('a'))).rejects.toMatchObject(notFound);
      const other = secret('a', { namespace: 'other' });
      const created = stage.client.create(stage.path('secrets'), other);
      await expect(created).rejects.toMatchObject({ code: 400, reason: 'BadRequest' });
    });
  });

  describe('reading', () => {
    it('knows no object of an unknown name, and no unknown path', async () => {
      const one = stage.client.get(stage.path('pods', 'nobody'));
      await expect(one).rejects.toMatchObject(notFound);
      await expect(stage.client.get(stage.path('spoons'))).rejects.toMatchObject({ code: 404 });
      expect(await stage.client.list(stage.path('pods'))).toMatchObject({ items: [] });
    });

    it.each([
      ['labelSelector=app%3Da', ['one', 'two']],
      ['labelSelector=app%3Da,tier!%3Dx', ['two']],
      ['labelSelector=app%20in%20(a,b)', ['one', 'three', 'two']],
      ['labelSelector=app%20notin%20(a)', ['three']],
      ['labelSelector=tier', ['one']],
      ['labelSelector=!tier', ['three', 'two']],
      ['fieldSelector=metadata.name%3Dtwo', ['two']],
    ])('selects by %s', async (query, expected) => {
      await createSecrets(['one', { app: 'a', tier: 'x' }], ['two', { app: 'a' }]);
      await createSecrets(['three', { app: 'b' }]);
      // A token that a real server makes for the default account has no such label.
      const found = await listNames('secrets', query);
      expect(found.filter((name) => !name.startsWith('default-token')).sort()).toEqual(expected);
    });

    it('lists metadata only, and null for none', async () => {
      const type = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1';
      const list = async (query: string) => {
        const path = `${stage.path('secrets')}?${query}`;
        const { body } = await stage.client.call('GET', path, { accept: type });
        return body.json();
      };
      await createSecrets(['one', { app: 'a' }]);
      const found = await list('labelSelector=app');
      expect(found).toMatchObject({ items: [{ metadata: { name: 'one', labels: { app: 'a' } } }] });
      expect(JSON.stringify(found)).not.toContain('"type"');
      expect(await list('labelSelector=nothing')).toMatchObject({ items: null });
    });

    it('finds the events of an object', async () => {
      for (const uid of ['a', 'b']) {
        const namespace = stage.namespace;
        await stage.client.create(stage.path('events'), {
          metadata: { name: `of-${uid}`, namespace },
          involvedObject: { kind: 'Pod', namespace, name: 'p', uid },
          reason: 'FailedScheduling',
          message: 'no node',
          type: 'Warning',
        });
      }
      expect(await listNames('events', 'fieldSelector=involvedObject.uid%3Db')).toEqual(['of-b']);
    });

    it('refuses an unknown token', async () => {
      const stranger = new KubeClient({ ...stage.cluster.access, token: 'stranger' });
      const read = stranger.get(stage.path('pods'));
      await expect(read).rejects.toMatchObject({ code: 401, reason: 'Unauthorized' });
      await stranger.close();
    });
  });

  describe('changing', () => {
    it('refuses an old version and another UID', async () => {
      const first = await stage.client.create(stage.path('secrets'), secret('a'));
      const path = stage.path('secrets', 'a');
      await stage.client.patch(path, { metadata: { labels: { changed: 'yes' } } });
      await expect(stage.client.replace(path, first)).rejects.toMatchObject(conflict);
      const { resourceVersion } = first.metadata;
      const old = stage.client.patch(path, { metadata: { resourceVersion } });
      await expect(old).rejects.toMatchObject(conflict);
      const metadata = { name: 'a', uid: 'another' };
      await expect(stage.client.replace(path, { metadata })).rejects.toMatchObject(conflict);
      const wrong = stage.client.patch(path, { metadata: { uid: 'another' } });
      await expect(wrong).rejects.toMatchObject({ code: 422, reason: 'Invalid' });
    });

    it('merges a patch, and keeps the version if nothing changes', async () => {
      const labels = { a: '1', b: '2' };
      await stage.client.create(stage.path('secrets'), secret('a', { labels }));
      const path = stage.path('secrets', 'a');
      const patch = { metadata: { labels: { a: null, c: '3' }, annotations: { note: 'x' } } };
      const patched = await stage.client.patch(path, patch);
      expect(patched.metadata.labels).toEqual({ b: '2', c: '3' });
      const again = await stage.client.patch(path, patch);
      expect(again.metadata.resourceVersion).toBe(patched.metadata.resourceVersion);
      const added = [{ op: 'add', path: '/metadata/annotations/a~1b', value: 'y' }];
      const other = await stage.client.patch(path, added, 'json-patch');
      expect(other.metadata.annotations).toEqual({ note: 'x', 'a/b': 'y' });
    });

    it('never changes data of an immutable Secret', async () => {
      const body = { ...secret('a'), immutable: true, stringData: { key: 'text' } };
      await stage.client.create(stage.path('secrets'), body);
      const path = stage.path('secrets', 'a');
      const changed = stage.client.patch(path, { stringData: { key: 'other' } });
      await expect(changed).rejects.toMatchObject({ code: 422, reason: 'Invalid' });
      const noted = await stage.client.patch(path, { metadata: { annotations: { end: '1' } } });
      expect(noted.metadata.annotations).toEqual({ end: '1' });
    });

    it('writes the status on its own path only', async () => {
      await stage.runPod('never', 'exit 0', { nodeSelector: { is: 'nowhere' } });
      const path = stage.path('pods', 'never');
      const status = { message: 'written' };
      expect(await stage.client.patch(path, { status })).not.toMatchObject({ status });
      expect(await stage.client.patch(`${path}/status`, { status })).toMatchObject({ status });
    });

    it('changes no pod but its deadline, which only becomes shorter', async () => {
      await stage.runPod('never', 'exit 0', { nodeSelector: { is: 'nowhere' } });
      const path = stage.path('pods', 'never');
      const patch = (spec: object) => stage.client.patch(path, { spec });
      const refusal = { code: 422, reason: 'Invalid' };
      await expect(patch({ nodeSelector: { is: 'here' } })).rejects.toMatchObject(refusal);
      await patch({ activeDeadlineSeconds: 500 });
      await expect(patch({ activeDeadlineSeconds: 600 })).rejects.toMatchObject(refusal);
      expect(await patch({ activeDeadlineSeconds: 400 })).toMatchObject({
        spec: { activeDeadlineSeconds: 400 },
      });
    });
  });

  describe('removing', () => {
    it('refuses a wrong precondition, and removes at once', async () => {
      const { metadata } = await stage.client.create(stage.path('secrets'), secret('a'));
      const path = stage.path('secrets', 'a');
      const wrong = stage.client.remove(path, { preconditions: { uid: 'another' } });
      await expect(wrong).rejects.toMatchObject(conflict);
      await stage.client.remove(path, { preconditions: { uid: metadata.uid } });
      await expect(stage.client.remove(path)).rejects.toMatchObject(notFound);
    });

    it('removes a pod without a node at once', async () => {
      await stage.runPod('never', 'exit 0', { nodeSelector: { is: 'nowhere' } });
      await stage.client.remove(stage.path('pods', 'never'));
      expect(await stage.client.find(stage.path('pods', 'never'))).toBeUndefined();
    });

    it('waits for finalizers', async () => {
      const body = secret('kept', { finalizers: ['test.millrace.dev/keep'] });
      await stage.client.create(stage.path('secrets'), body);
      const path = stage.path('secrets', 'kept');
      await stage.client.remove(path);
      expect((await stage.client.get(path)).metadata.deletionTimestamp).toBeTruthy();
      const finalizers = ['test.millrace.dev/keep', 'test.millrace.dev/more'];
      const added = stage.client.patch(path, { metadata: { finalizers } });
      await expect(added).rejects.toMatchObject({ code: 422 });
      await stage.client.patch(path, { metadata: { finalizers: null } });
      expect(await stage.client.find(path)).toBeUndefined();
    });

    it('removes what an object owned', async () => {
      const { metadata } = await stage.client.create(stage.path('secrets'), secret('owner'));
      const { name, uid } = metadata;
      const ownerReferences = [{ apiVersion: 'v1', kind: 'Secret', name, uid }];
      await stage.client.create(stage.path('secrets'), secret('owned', { ownerReferences }));
      await stage.client.create(stage.path('secrets'), secret('other'));
      await stage.client.remove(stage.path('secrets', 'owner'));
      await stage.untilGone(stage.path('secrets', 'owned'));
      expect(await stage.client.find(stage.path('secrets', 'other'))).toBeDefined();
    });
  });
}

function withResources(resources: object): object {
  return { containers: [{ name: 'main', image: 'none', resources }] };
}
