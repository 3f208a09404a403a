// Plays seeds 1 to N (first argument) in a process of its own, with the sources next to it, and prints the
// failed seeds.
import { playSeeds } from './play-seeds.ts';

const { wrong } = await playSeeds({ first: 1, count: Number(process.argv[2]) });
console.log(wrong.join('\n'));
