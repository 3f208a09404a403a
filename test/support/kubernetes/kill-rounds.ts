// The run of the kill tests on Kubernetes, for the short form on the stand-in and the long ones on both servers.
import type { KubeAccess } from './client.ts';
import type { Cluster } from './cluster.ts';
import { KillWorld } from './kill-world.ts';

const LIMIT_MS = 3 * 60_000;

export interface KillRounds {
  cluster: Cluster;
  rounds: number;
  seed: number;
  /** Default: an administrator's. */
  createAccess?: (namespace: string) => Promise<KubeAccess>;
}

/** @throws Error that says what is wrong with the objects of the namespace, with the seed */
export async function runKillRounds(run: KillRounds): Promise<void> {
  const { cluster, createAccess, rounds, seed } = run;
  const namespace = await cluster.createNamespace();
  const access = (await createAccess?.(namespace)) ?? cluster.access;
  const world = await KillWorld.open({ cluster, namespace, access, seed });
  try {
    for (let round = 0; round < rounds; round++) await world.round();
    await world.settle(LIMIT_MS);
    await world.clear(LIMIT_MS);
  } catch (error) {
    throw new Error(`SEED=${seed}: ${error instanceof Error ? error.message : error}`);
  } finally {
    await world.close();
  }
}
