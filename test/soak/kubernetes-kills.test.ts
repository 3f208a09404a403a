// A platform on a stand-in of the Kubernetes API is killed again and again while pods and endpoints change.
import { it } from 'vitest';
import { startCluster } from '../support/kubernetes/cluster.ts';
import { runKillRounds } from '../support/kubernetes/kill-world.ts';
import { GPU_NODE } from '../support/kubernetes/kube-platform.ts';
import { chooseSeed } from '../support/random.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? 60);

it('leaves exactly the objects of the pods in the namespace after many kills of the platform', async () => {
  const seed = chooseSeed();
  console.log(`kills on Kubernetes: SEED=${seed}`);
  const { cluster } = await startCluster({ nodes: [GPU_NODE], secondMs: 100 });
  try {
    await runKillRounds({ cluster, rounds: ROUNDS, seed });
  } finally {
    await cluster.close();
  }
});
