// The store of the simulation's worlds: what is proved on it holds as far as it is a store.
import { MemoryStore } from '../../simulation/memory-store.ts';
import { describeStore } from './store.ts';

describeStore('in memory', () => new MemoryStore());
