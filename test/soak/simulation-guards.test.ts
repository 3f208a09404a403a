// Proves that the simulation detects a broken queue: each test breaks one promise in a copy of the sources
// and expects the seeds to fail with the matching message.
import { QUEUE_BREAKS } from './breaks.ts';
import { describeGuards } from './broken-copy.ts';

describeGuards({ name: 'the simulation', kind: 'platform', seeds: 200, breaks: QUEUE_BREAKS });
