// Property tests with a fixed seed: the same cases in each run, unless SEED names others.
import fc from 'fast-check';
import { chooseSeed } from './random.ts';

fc.configureGlobal({ seed: chooseSeed(1) });

export { fc };
