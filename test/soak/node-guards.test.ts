// Proves that the simulation of nodes detects a broken cluster: each test breaks one rule of nodes that share a database,
// in a copy of the sources, and expects the seeds to fail with the matching message.
import { NODE_BREAKS } from './breaks.ts';
import { describeGuards, playSeeds } from './broken-copy.ts';

describeGuards({
  name: 'the simulation of nodes',
  breaks: NODE_BREAKS,
  play: playSeeds('nodes', 250),
});
