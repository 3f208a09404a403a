// How the kubelet stand-in gives a pod its network and file system. By default pods share those of this machine.
import { mkdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Pod } from './pod-schema.ts';
import type { Mount } from './pod-volumes.ts';
import { PortRelays } from './port-relays.ts';

export interface PodRuntime {
  open(pod: Pod): Promise<PodPlace>;
}

export interface PodPlace {
  readonly ip: string;
  readonly env: Readonly<Record<string, string>>;
  /** The command that runs the container's command there. */
  enter(
    command: readonly string[],
    terms: { mounts: readonly Mount[]; isReadOnly: boolean },
  ): string[];
  close(): void;
}

/** Programs see volumes below their working directory, and learn their ports from variables. */
export const HOST_RUNTIME: PodRuntime = {
  async open({ spec }) {
    const [{ ports }] = spec.containers;
    const own = ports.filter(({ protocol }) => protocol === 'TCP');
    const relays = await PortRelays.open(own.map(({ containerPort }) => containerPort));
    return {
      ip: relays.ip,
      env: relays.env,
      enter: (command) => [...command],
      close: () => relays.close(),
    };
  },
};

export async function linkMounts(disk: string, mounts: readonly Mount[]): Promise<void> {
  for (const { path: mountPath, source } of mounts) {
    const path = join(disk, mountPath);
    await mkdir(dirname(path), { recursive: true });
    await symlink(source, path);
  }
}
