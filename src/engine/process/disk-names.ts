// Names of container disks: `<id>.<generation>.<random part>`. The random part gives two calls that
// create the same container at once separate disks. Pure, apart from the random part.
import { randomBytes } from 'node:crypto';
import type { ContainerSpec } from '../engine.ts';

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

export function isDiskOf(name: string, { generation, id }: DiskOwner): boolean {
  const owner = parseDiskName(name);
  return owner?.id === id && owner.generation === generation;
}
