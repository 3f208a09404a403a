// Checks the manifests of deploy/kubernetes: a real API server validates each as if it were applied.
import { Ajv } from 'ajv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Cluster } from '../support/kubernetes/cluster.ts';
import { startRealCluster } from './api-server.ts';
import {
  buildManifests,
  createManifest,
  findKubectlTrouble,
  type Manifest,
} from './manifest-files.ts';
import { SERVICE_MONITOR } from './service-monitors.ts';

const HOOK_MS = 240_000;
const NAMESPACE = 'millrace';

const trouble = findKubectlTrouble();
if (trouble !== undefined)
  console.warn(`test/kubernetes/manifests.test.ts is left out: ${trouble}`);

const build = (folder: string) => buildManifests(`deploy/kubernetes/${folder}`);

/** The kind belongs to another project, so an API server alone does not know it. */
const isServiceMonitor = new Ajv().compile(SERVICE_MONITOR);

describe.skipIf(trouble !== undefined)('the manifests', () => {
  let cluster: Cluster | undefined;

  beforeAll(async () => {
    ({ cluster } = await startRealCluster());
    await cluster.admin.create('/api/v1/namespaces', { metadata: { name: NAMESPACE } });
  }, HOOK_MS);

  afterAll(() => cluster?.close(), HOOK_MS);

  async function tryOut(manifest: Manifest): Promise<unknown> {
    if (!cluster) throw new Error('the cluster has not started');
    return createManifest(cluster.admin, NAMESPACE, manifest, '?dryRun=All');
  }

  it.each(['base', 'monitoring'])('are valid for %s, and all in the namespace', async (folder) => {
    const manifests = build(folder);
    for (const manifest of manifests) {
      expect(manifest.metadata.namespace).toBe(NAMESPACE);
      if (manifest.kind === 'ServiceMonitor') expect(isServiceMonitor(manifest)).toBe(true);
      else expect(await tryOut(manifest)).toMatchObject(manifest);
    }
    const kinds = manifests.map(({ kind }) => kind);
    const wanted = ['StatefulSet', 'Service', 'Role', 'NetworkPolicy', 'PodDisruptionBudget'];
    expect(kinds).toEqual(expect.arrayContaining(wanted));
    expect(kinds.includes('ServiceMonitor')).toBe(folder === 'monitoring');
    // Nothing for the whole cluster.
    expect(kinds.filter((kind) => kind.startsWith('Cluster'))).toEqual([]);
  });

  it('would not pass with an unknown field', async () => {
    const found = build('base').find(({ kind }) => kind === 'StatefulSet');
    if (!found) throw new Error('no StatefulSet');
    const wrong = { ...found, spec: { ...z.looseObject({}).parse(found['spec']), replicass: 2 } };
    expect(await tryOut(found)).toMatchObject(found);
    expect(await tryOut(wrong)).not.toMatchObject(wrong);
  });
});
