// In a guest with project quotas: programs of the pod user write to a volume, or to a pod's disk, of the process engine until its size stops
// them. The sizes are in MB, because the guest's disks are small.
import { spawnSync } from 'node:child_process';
import { mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type Log, silentLog } from '../../../src/base/log.ts';
import type { ContainerSpec } from '../../../src/engine/engine.ts';
import { canLimitFolder } from '../../../src/engine/folder-quotas.ts';
import { ContainerFolders } from '../../../src/engine/process/container-folders.ts';
import { VolumeFolders } from '../../../src/engine/process/volume-folders.ts';
import { reportResult } from './user-mode-linux.ts';

const SOURCE = `network-${'a'.repeat(24)}`;
const GB_PER_MB = 1 / 1_024;
const POD_USER = { name: 'nobody', uid: 65_534, gid: 65_534 };

async function tryVolumes(parent: string) {
  const notes: object[] = [];
  const log: Log = { ...silentLog, info: (note: object) => void notes.push(note) };
  const root = join(parent, 'pods');
  mkdirSync(root);
  const volumes = new VolumeFolders({ root, user: POD_USER, log });
  const file = join(root, 'network-volumes', SOURCE, 'file');
  const provide = (megabytes: number) => volumes.provide(makeSpec(megabytes * GB_PER_MB));
  /** Writes as much as it can, at most 40 MB. */
  const fill = (path = file) => {
    const { uid, gid } = POD_USER;
    const args = ['if=/dev/zero', `of=${path}`, 'bs=1M', 'count=40'];
    const { status, stderr } = spawnSync('dd', args, { uid, gid, encoding: 'utf8' });
    const isFull = /No space left on device|Disk quota exceeded/.test(stderr);
    return { status, megabytes: Math.ceil(statSync(path).size / 1_048_576), isFull };
  };
  await provide(10);
  const first = fill();
  await volumes.growNetwork(SOURCE, 20 * GB_PER_MB);
  // For a container that was created before the volume grew.
  await provide(10);
  const grown = fill();
  await volumes.removeNetwork(SOURCE);
  await provide(30);
  // Nothing of the earlier volume counts.
  const again = fill();
  const isLimitable = canLimitFolder(join(parent, 'not', 'yet'));
  return { first, grown, again, disk: await tryDisk(root, log, fill), isLimitable, notes };
}

/** The disk of a container, and of the next one: nothing of the earlier disk counts. */
async function tryDisk<T>(root: string, log: Log, fill: (path: string) => T) {
  const folders = new ContainerFolders({ root, user: POD_USER, log });
  const spec = { ...makeSpec(1), mounts: [], diskGb: 10 * GB_PER_MB };
  const fills: T[] = [];
  let isLimited = false;
  for (const generation of [1, 2]) {
    await folders.make({ ...spec, generation });
    const made = await folders.find(spec.id);
    if (!made) throw new Error('the container was not made');
    isLimited = made.isDiskLimited;
    fills.push(fill(join(made.disk, 'file')));
    await folders.discard(spec.id);
    for (const { kind, path } of await folders.listDiscarded(spec.id)) {
      if (kind === 'disk') await folders.removeDisk(path);
    }
  }
  return { fills, isLimited };
}

function makeSpec(sizeGb: number): ContainerSpec {
  return {
    ...{ id: 'pod_a', generation: 1, labels: {}, image: 'none', args: '', handler: null, env: {} },
    ...{ ports: [], diskGb: 1, registry: null, gpus: [], limits: null, network: null },
    mounts: [{ kind: 'network', source: SOURCE, path: '/data', sizeGb }],
  };
}

const results: Record<string, unknown> = {};
for (const name of ['xfs', 'ext4', 'plain']) {
  try {
    results[name] = await tryVolumes(join('/mnt', name));
  } catch (error) {
    results[name] = String(error);
  }
}
reportResult(results);
