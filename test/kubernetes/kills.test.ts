// A platform on a real API server, with the account of deploy/kubernetes, is killed while pods and endpoints change.
import { it } from 'vitest';
import { runKillRounds } from '../support/kubernetes/kill-world.ts';
import { GPU_NODE } from '../support/kubernetes/kube-platform.ts';
import { chooseSeed } from '../support/random.ts';
import { createAccount } from './access.ts';
import { startRealCluster } from './api-server.ts';

const ROUNDS = 6;

it('leaves exactly the objects of the pods in the namespace after the platform was killed', async () => {
  const { cluster } = await startRealCluster({ nodes: [GPU_NODE] });
  const createAccess = (namespace: string) => createAccount(cluster.admin, namespace);
  try {
    await runKillRounds({ cluster, rounds: ROUNDS, seed: chooseSeed(1), createAccess });
  } finally {
    await cluster.close();
  }
});
