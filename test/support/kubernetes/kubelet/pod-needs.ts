// Reads what a container needs before it starts: Secrets and claims.

import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { type KubeClient, KubeError } from '../client.ts';
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

const SECRET_MODE = 0o644;

export interface Mount {
  /** In the container. */
  path: string;
  /** Folder of this machine. */
  source: string;
  isReadOnly: boolean;
}

interface VolumeTerms {
  client: KubeClient;
  /** Of the kubelet, for claims. */
  root: string;
  /** Of the pod. */
  folder: string;
  pod: Pod;
}

/** @returns the mounts, or why one is not there */
export async function prepareVolumes(
  terms: VolumeTerms,
  { volumeMounts }: PodContainer,
): Promise<Mount[] | string> {
  const mounts: Mount[] = [];
  for (const { mountPath: path, name, readOnly: isReadOnly = false } of volumeMounts) {
    const source = await prepareVolume(terms, name);
    if (typeof source !== 'string') return source.problem;
    mounts.push({ path, source, isReadOnly });
  }
  return mounts;
}

async function prepareVolume(
  { client, folder: podFolder, pod, root }: VolumeTerms,
  name: string,
): Promise<string | { problem: string }> {
  const volume = pod.spec.volumes.find((each) => each.name === name);
  const { configMap, persistentVolumeClaim: claim, secret } = volume ?? {};
  const group = pod.spec.securityContext.fsGroup;
  const folder = claim
    ? await findClaimFolder({ client, root, pod, claim: claim.claimName })
    : join(podFolder, 'volumes', name);
  await mkdir(folder, { recursive: true });
  if (group !== undefined && process.getuid?.() === 0) {
    await chown(folder, 0, group);
    await chmod(folder, 0o2775);
  }
  const isFiles = secret !== undefined || configMap !== undefined;
  if (!isFiles) return folder;
  const files = secret
    ? await readSecret(client, pod, secret.secretName)
    : await readConfigMap(client, pod, configMap?.name ?? '');
  if (!files) return { problem: `volume "${name}": its Secret or ConfigMap not found` };
  for (const [file, content] of Object.entries(files)) {
    const path = join(folder, file);
    await writeFile(path, content);
    await chmod(path, (secret ?? configMap)?.defaultMode ?? SECRET_MODE);
    if (group !== undefined && process.getuid?.() === 0) await chown(path, 0, group);
  }
  return folder;
}

const dockerConfigSchema = z.looseObject({
  auths: z.record(
    z.string(),
    z.looseObject({ username: z.string().optional(), password: z.string().optional() }),
  ),
});

/** Of a registry with logins, `HOST/private/…`. */
export const REGISTRY_LOGIN = { username: 'puller', password: 'secret of the registry' };

export class Images {
  /** `none`: the arguments are a command of this machine. */
  readonly #entryPoints = new Map<string, readonly string[]>([['none', []]]);

  readonly #variables = new Map<string, Readonly<Record<string, string>>>();

  /** Program and arguments before those of the container, and the image's own variables. */
  set(
    image: string,
    entryPoint: readonly string[],
    variables: Readonly<Record<string, string>> = {},
  ): void {
    this.#entryPoints.set(image, entryPoint);
    this.#variables.set(image, variables);
  }

  env(image: string): Readonly<Record<string, string>> {
    return this.#variables.get(image) ?? {};
  }

  entryPoint(image: string): readonly string[] {
    return this.#entryPoints.get(image) ?? [];
  }

  /** `logins`: the content of `.dockerconfigjson` Secrets. @returns why the image cannot be pulled */
  findTrouble(image: string, logins: readonly string[]): string | undefined {
    const failed = `failed to pull and unpack image "${image}": failed to resolve reference`;
    if (image.endsWith(':missing')) return `rpc error: ${failed}: ${image}: not found`;
    const [host = '', kind] = image.split('/');
    const isAllowed = logins.some((text) => {
      const login = dockerConfigSchema.parse(JSON.parse(text)).auths[host];
      const { password, username } = REGISTRY_LOGIN;
      return login?.username === username && login.password === password;
    });
    if (kind !== 'private' || isAllowed) return undefined;
    return `rpc error: ${failed}: authorization failed: 401 Unauthorized`;
  }
}
