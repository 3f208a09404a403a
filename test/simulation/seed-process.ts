// Plays seeds 1 to N (first argument) in a process of its own, with the sources next to it, and prints the
// failed seeds. Second argument: the kind of world.
import { playSeeds } from './play-seeds.ts';

const [, , count, world] = process.argv;
const kind = world === 'nodes' ? 'nodes' : 'platform';
const { wrong } = await playSeeds({ kind, first: 1, count: Number(count) });
console.log(wrong.join('\n'));
