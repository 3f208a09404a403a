// The cluster of the tests, with the stand-in of the Kubernetes API.
import { startCluster } from '../../support/kubernetes/cluster.ts';
import { describeCluster, NODES } from './contract.ts';

describeCluster('the stand-in', async () => (await startCluster({ nodes: NODES })).cluster);
