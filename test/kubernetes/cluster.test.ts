// Runs the suite of the tests' cluster on a real API server: what it expects of the stand-in is true.

import { describeCluster, NODES } from '../conformance/kubernetes/contract.ts';
import { startRealCluster } from '../support/kubernetes/api-server.ts';

describeCluster(
  'a real API server',
  async () => (await startRealCluster({ nodes: NODES })).cluster,
);
