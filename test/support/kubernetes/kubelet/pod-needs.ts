// Reads what a container needs before it starts: Secrets and claims.
import { join } from 'node:path';
import { z } from 'zod';
import type { KubeClient } from '../client.ts';
import type { Pod, PodContainer } from './pod-schema.ts';

const secretSchema = z.looseObject({ data: z.record(z.string(), z.string()).default({}) });

/** A claim with this annotation is that folder of this machine. */
const FOLDER_ANNOTATION = 'test.millrace.dev/folder';

type Namespaced = Pick<Pod, 'namespace'>;

/** Its decoded data; undefined if it does not exist. */
export async function readSecret(
  client: KubeClient,
  { namespace }: Namespaced,
  name: string,
): Promise<Record<string, string> | undefined> {
  const found = await client.find(`/api/v1/namespaces/${namespace}/secrets/${name}`);
  if (!found) return undefined;
  const { data } = secretSchema.parse(found);
  const decoded = Object.entries(data).map(([key, text]) => [
    key,
    Buffer.from(text, 'base64').toString(),
  ]);
  return Object.fromEntries(decoded);
}

/** @returns the variables, or why they are not complete */
export async function readVariables(
  client: KubeClient,
  pod: Namespaced,
  { env }: PodContainer,
): Promise<Record<string, string> | string> {
  const secrets = new Map<string, Record<string, string> | undefined>();
  const variables: Record<string, string> = {};
  for (const { name, value, valueFrom } of env) {
    const from = valueFrom?.secretKeyRef;
    if (!from) {
      variables[name] = value ?? '';
      continue;
    }
    if (!secrets.has(from.name)) {
      secrets.set(from.name, await readSecret(client, pod, from.name));
    }
    const secret = secrets.get(from.name);
    if (!secret && !from.optional) return `secret "${from.name}" not found`;
    const found = secret?.[from.key];
    if (found === undefined && !from.optional) {
      return `couldn't find key ${from.key} in Secret ${pod.namespace}/${from.name}`;
    }
    if (found !== undefined) variables[name] = found;
  }
  return variables;
}

export interface ClaimWanted {
  client: KubeClient;
  root: string;
  pod: Namespaced;
  claim: string;
}

/** Each claim has its own folder. @throws KubeError 404 */
export async function findClaimFolder({ claim, client, pod, root }: ClaimWanted): Promise<string> {
  const path = `/api/v1/namespaces/${pod.namespace}/persistentvolumeclaims/${claim}`;
  const { metadata } = await client.get(path);
  return metadata.annotations?.[FOLDER_ANNOTATION] ?? join(root, 'claims', metadata.uid);
}
