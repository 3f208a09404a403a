// A platform on a stand-in of the Kubernetes API is killed in the middle of its work: the short form of
// test/kubernetes/kills.test.ts and test/soak/kills.test.ts.
import { it } from 'vitest';
import { startCluster } from '../../support/kubernetes/cluster.ts';
import { runKillRounds } from '../../support/kubernetes/kill-world.ts';
import { GPU_NODE } from '../../support/kubernetes/kube-platform.ts';
import { chooseSeed } from '../../support/random.ts';

it('leaves exactly the objects of the pods in the namespace after the platform was killed', async () => {
  const { cluster } = await startCluster({ nodes: [GPU_NODE], secondMs: 100 });
  try {
    await runKillRounds({ cluster, rounds: 1, seed: chooseSeed(1) });
  } finally {
    await cluster.close();
  }
});
