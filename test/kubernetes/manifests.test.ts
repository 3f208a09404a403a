// Checks the manifests of deploy/kubernetes: a real API server validates each as if it were applied.
import { execFileSync } from 'node:child_process';
import { loadAllYaml } from '@kubernetes/client-node';
import { Ajv } from 'ajv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startRealCluster } from '../support/kubernetes/api-server.ts';
import type { Cluster } from '../support/kubernetes/cluster.ts';
import { SERVICE_MONITOR } from './service-monitors.ts';

const HOOK_MS = 240_000;
const NAMESPACE = 'millrace';

const manifestSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: z.looseObject({ name: z.string(), namespace: z.string().optional() }),
});
type Manifest = z.infer<typeof manifestSchema>;

function findKubectlTrouble(): string | undefined {
  try {
    execFileSync('kubectl', ['kustomize', '--help'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'kubectl with `kustomize` is not installed';
  }
}

const trouble = findKubectlTrouble();
if (trouble !== undefined)
  console.warn(`test/kubernetes/manifests.test.ts is left out: ${trouble}`);

function build(folder: string): Manifest[] {
  const text = execFileSync('kubectl', ['kustomize', `deploy/kubernetes/${folder}`]).toString();
  // The library's objects have other names for fields that are keywords of TypeScript.
  const plain: unknown = JSON.parse(
    JSON.stringify(loadAllYaml(text)).replaceAll('"_from":', '"from":'),
  );
  return z.array(manifestSchema).parse(plain);
}

/** Kubernetes 1.20 knows the same fields of it in the version before. */
const OLD_VERSIONS: Readonly<Record<string, string>> = { 'policy/v1': 'policy/v1beta1' };

/** The kind belongs to another project, so an API server alone does not know it. */
const isServiceMonitor = new Ajv().compile(SERVICE_MONITOR);

describe.skipIf(trouble !== undefined)('the manifests', () => {
  let cluster: Cluster | undefined;

  beforeAll(async () => {
    ({ cluster } = await startRealCluster());
    await cluster.admin.create('/api/v1/namespaces', { metadata: { name: NAMESPACE } });
  }, HOOK_MS);

  afterAll(() => cluster?.close(), HOOK_MS);

  /** @returns the object as the API server would store it: without fields that it does not know */
  async function tryOut(manifest: Manifest): Promise<unknown> {
    const apiVersion = OLD_VERSIONS[manifest.apiVersion] ?? manifest.apiVersion;
    const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
    const plural = `${manifest.kind.toLowerCase()}s`.replace(/ys$/, 'ies');
    const path = `${root}/namespaces/${NAMESPACE}/${plural}?dryRun=All`;
    const answer = await cluster?.admin.create(path, { ...manifest, apiVersion });
    return { ...answer, apiVersion: manifest.apiVersion };
  }

  it.each(['base', 'monitoring'])('of %s are valid, and all in the namespace', async (folder) => {
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

  it('with an unknown field would be noticed', async () => {
    const found = build('base').find(({ kind }) => kind === 'StatefulSet');
    if (!found) throw new Error('no StatefulSet');
    const wrong = { ...found, spec: { ...z.looseObject({}).parse(found['spec']), replicass: 2 } };
    expect(await tryOut(found)).toMatchObject(found);
    expect(await tryOut(wrong)).not.toMatchObject(wrong);
  });
});
