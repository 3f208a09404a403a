// Fills the volumes of a pod: claims, Secrets, ConfigMaps and empty folders.
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { KubeClient } from '../client.ts';
import { findClaimFolder, readConfigMap, readSecret } from './pod-needs.ts';
import type { Pod, PodContainer } from './pod-schema.ts';

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
