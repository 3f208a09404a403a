// Builds manifests with kubectl, and gives them to an API server.
import { execFileSync } from 'node:child_process';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import type { KubeClient, KubeObject } from '../support/kubernetes/client.ts';

const manifestSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: z.looseObject({ name: z.string(), namespace: z.string().optional() }),
});
export type Manifest = z.infer<typeof manifestSchema>;

/** Kubernetes 1.20 knows the same fields of it in the version before. */
const OLD_VERSIONS: Readonly<Record<string, string>> = { 'policy/v1': 'policy/v1beta1' };

export function findKubectlTrouble(): string | undefined {
  try {
    execFileSync('kubectl', ['kustomize', '--help'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'kubectl with `kustomize` is not installed';
  }
}

export function buildManifests(folder: string): Manifest[] {
  const text = execFileSync('kubectl', ['kustomize', folder]).toString();
  return parseAllDocuments(text).map((each) => manifestSchema.parse(each.toJS()));
}

/** @returns the object as the API server stores it: without fields that it does not know */
export async function createManifest(
  admin: KubeClient,
  namespace: string,
  manifest: Manifest,
  query = '',
): Promise<KubeObject> {
  const apiVersion = OLD_VERSIONS[manifest.apiVersion] ?? manifest.apiVersion;
  const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const plural = `${manifest.kind.toLowerCase()}s`.replace(/ys$/, 'ies');
  const path = `${root}/namespaces/${namespace}/${plural}${query}`;
  const answer = await admin.create(path, { ...manifest, apiVersion });
  return { ...answer, apiVersion: manifest.apiVersion };
}
