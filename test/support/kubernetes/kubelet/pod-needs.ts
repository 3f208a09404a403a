// Reads what a container needs before it starts: Secrets and claims.
import { join } from 'node:path';
import { z } from 'zod';
import type { KubeClient } from '../client.ts';
import { KubeError } from '../objects.ts';
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

/** Its data; undefined if it does not exist. */
export async function readConfigMap(
  client: KubeClient,
  { namespace }: Namespaced,
  name: string,
): Promise<Record<string, string> | undefined> {
  const found = await client.find(`/api/v1/namespaces/${namespace}/configmaps/${name}`);
  return found && secretSchema.parse(found).data;
}

/** @returns the variables, or why they are not complete */
export async function readVariables(
  client: KubeClient,
  pod: Pod,
  { env, envFrom }: PodContainer,
): Promise<Record<string, string> | string> {
  const variables: Record<string, string> = pod.spec.enableServiceLinks
    ? await describeServices(client, pod)
    : {};
  for (const { configMapRef } of envFrom) {
    const found = await readConfigMap(client, pod, configMapRef.name);
    if (!found) return `configmap "${configMapRef.name}" not found`;
    Object.assign(variables, found);
  }
  const read = { secret: readSecret, configmap: readConfigMap };
  const known = new Map<string, Record<string, string> | undefined>();
  for (const { name, value, valueFrom } of env) {
    const { configMapKeyRef, fieldRef, secretKeyRef } = valueFrom ?? {};
    const from = secretKeyRef ?? configMapKeyRef;
    if (!from) {
      variables[name] = fieldRef ? readField(pod, fieldRef.fieldPath) : (value ?? '');
      continue;
    }
    const kind = secretKeyRef ? 'secret' : 'configmap';
    const id = `${kind} ${from.name}`;
    if (!known.has(id)) known.set(id, await read[kind](client, pod, from.name));
    const source = known.get(id);
    if (!source && !from.optional) return `${kind} "${from.name}" not found`;
    const found = source?.[from.key];
    if (found === undefined && !from.optional) {
      return `couldn't find key ${from.key} in ${kind} ${pod.namespace}/${from.name}`;
    }
    if (found !== undefined) variables[name] = found;
  }
  return variables;
}

function readField({ name, namespace }: Pod, path: string): string {
  const fields: Readonly<Record<string, string>> = {
    ...{ 'metadata.name': name, 'metadata.namespace': namespace },
  };
  const value = fields[path];
  if (value === undefined) throw new Error(`the kubelet stand-in has no field ${path}`);
  return value;
}

const servicePorts = z.array(z.looseObject({ port: z.number() }));

/** The links of old times, that Kubernetes still adds for each Service with an address. */
async function describeServices(client: KubeClient, { namespace }: Pod) {
  const path = `/api/v1/namespaces/${namespace}/services`;
  const { items } = await client.list(path).catch((error: unknown) => {
    // The stand-in has no Services.
    if (error instanceof KubeError && error.code === 404) return { items: [] };
    throw error;
  });
  const links = items.flatMap(({ metadata, spec }) => {
    const { clusterIP: address, ports } = spec ?? {};
    if (typeof address !== 'string' || address === 'None') return [];
    const [first] = servicePorts.parse(ports);
    const word = metadata.name.toUpperCase().replaceAll('-', '_');
    return [
      [`${word}_SERVICE_HOST`, address],
      [`${word}_SERVICE_PORT`, `${first?.port}`],
      [`${word}_PORT`, `tcp://${address}:${first?.port}`],
    ];
  });
  return Object.fromEntries(links);
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
