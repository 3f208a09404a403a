// Proves that the simulation detects a broken queue: each test breaks one promise in a copy of the sources
// and expects the seeds to fail with the matching message.
import { QUEUE_BREAKS } from './breaks.ts';
import { describeGuards, playSeeds } from './broken-copy.ts';

describeGuards({
  name: 'the simulation',
  breaks: QUEUE_BREAKS,
  play: playSeeds('platform', 200),
});
