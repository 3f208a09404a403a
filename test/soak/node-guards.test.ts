// Proves that the simulation of nodes detects a broken cluster: each test breaks one rule of nodes that share a database,
// in a copy of the sources, and expects the seeds to fail with the matching message.
import { NODE_BREAKS } from './breaks.ts';
import { describeGuards } from './broken-copy.ts';

describeGuards({ name: 'the simulation of nodes', kind: 'nodes', seeds: 250, breaks: NODE_BREAKS });
