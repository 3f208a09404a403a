// The store of the simulation's worlds: what is proved on it holds as far as it is a store.
import { MemoryStore } from '../../simulation/memory-store.ts';
import { describeStore } from './store.ts';

describeStore('in memory', () => new MemoryStore());
describeStore(
  'in memory, with few jobs live',
  () => new MemoryStore({ windowJobs: 2, readyJobs: 2, endedJobs: 1 }),
);
