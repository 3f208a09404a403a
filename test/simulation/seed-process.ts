// Plays a few seeds in a process of its own, on whatever sources lie beside it: prints what went wrong.
import { playSeeds } from './play-seeds.ts';

const { wrong } = await playSeeds({ first: 1, count: Number(process.argv[2]) });
console.log(wrong.join('\n'));
