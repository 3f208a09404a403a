// Reads and writes container.json, the engine's record of a container. A pod that runs as the
// platform's own user can damage the file, so its content is validated.

import { randomBytes } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import type { ContainerSpec } from '../engine.ts';

const FILE = 'container.json';

const containerSpec: z.ZodType<ContainerSpec> = z.object({
  id: z.string(),
  generation: z.int(),
  labels: z.record(z.string(), z.string()),
  image: z.string(),
  args: z.string(),
  handler: z.string().nullable(),
  runsVersion: z.literal(true).exactOptional(),
  env: z.record(z.string(), z.string()),
  ports: z.array(z.object({ private: z.int(), protocol: z.enum(['http', 'tcp', 'udp']) })),
  diskGb: z.number(),
  registry: z.object({ server: z.string(), username: z.string(), password: z.string() }).nullable(),
  mounts: z.array(
    z.object({
      kind: z.enum(['persistent', 'network']),
      source: z.string(),
      path: z.string(),
      sizeGb: z.number().exactOptional(),
    }),
  ),
  gpus: z.array(z.string()),
  limits: z.object({ vcpus: z.number(), memoryGb: z.number() }).nullable(),
  network: z.string().nullable(),
});

const diskName = z.object({ disk: z.string(), isDiskLimited: z.boolean() });

interface ContainerFile {
  spec: ContainerSpec;
  /** Name of the disk. */
  disk: string;
  /** Its disk got a quota when it was made. */
  isDiskLimited: boolean;
}

/** `folder` is `…/<id>/<generation>`. Undefined if it contains no such file. */
export async function readContainerFile(
  folder: string,
): Promise<ContainerFile | 'damaged' | undefined> {
  try {
    const content: unknown = JSON.parse(await readFile(join(folder, FILE), 'utf8'));
    const spec = containerSpec.parse(content);
    const { disk, isDiskLimited } = diskName.parse(content);
    const isOwn =
      spec.id === basename(dirname(folder)) && `${spec.generation}` === basename(folder);
    return isOwn && isDiskOf(disk, spec) ? { spec, disk, isDiskLimited } : 'damaged';
  } catch (error) {
    return isMissing(error) ? undefined : 'damaged';
  }
}

export async function writeContainerFile(
  folder: string,
  { disk, isDiskLimited, spec }: ContainerFile,
): Promise<void> {
  const content = JSON.stringify({ ...spec, disk, isDiskLimited });
  const written = join(folder, `${FILE}.new`);
  await writeFile(written, content, { mode: 0o600, flush: true });
  await rename(written, join(folder, FILE));
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

/**
 * Names of container disks: `<id>.<generation>.<random part>`. The random part gives two calls that create the same
 * container at once separate disks.
 */
const DISK_NAME = /^(.+)\.(\d+)\.[0-9a-f]{12}$/;

type DiskOwner = Pick<ContainerSpec, 'id' | 'generation'>;

export function nameDisk({ generation, id }: DiskOwner): string {
  return `${id}.${generation}.${randomBytes(6).toString('hex')}`;
}

/** Undefined for a name that is not a disk's. */
export function parseDiskName(name: string): DiskOwner | undefined {
  const [, id, generation] = DISK_NAME.exec(name) ?? [];
  return id === undefined ? undefined : { id, generation: Number(generation) };
}

function isDiskOf(name: string, { generation, id }: DiskOwner): boolean {
  const owner = parseDiskName(name);
  return owner?.id === id && owner.generation === generation;
}
