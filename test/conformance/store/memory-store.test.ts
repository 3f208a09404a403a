// Runs the store suite on the simulation's store, so that results of the simulation hold for real stores.
import { MemoryStore } from '../../simulation/memory-store.ts';
import { describeStore } from './store.ts';

describeStore('in memory', () => new MemoryStore());
