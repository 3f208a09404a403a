// Simulations and histories detect broken promises: each test breaks one in a copy of the sources, and expects the matching message.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { recordAbsences } from '../histories/absence-run.ts';
import { describeViolations } from '../histories/report.ts';
import { chooseSeed } from '../support/random.ts';
import { NODE_BREAKS, QUEUE_BREAKS } from './breaks.ts';
import { describeGuards, playSeeds } from './broken-copy.ts';

describeGuards({
  name: 'the simulation',
  breaks: QUEUE_BREAKS,
  play: playSeeds('platform', 200),
});

describeGuards({
  name: 'the simulation of nodes',
  breaks: NODE_BREAKS,
  play: playSeeds('nodes', 250),
});

/** By promise. */
const SEEN: Readonly<Record<string, RegExp>> = {
  'a report with an older token does not change a job': /old-attempt-counts/,
  'the platform extends leases after its restart': /attempt-lost/,
};

describeGuards({
  name: 'histories',
  breaks: QUEUE_BREAKS.flatMap((one) => {
    const seen = SEEN[one.promise];
    return seen ? [{ ...one, seen }] : [];
  }),
  async play(copy) {
    const bin = join(copy, 'main.ts');
    const main = join(copy, 'src/cli/main.ts');
    await writeFile(bin, `import { main } from '${main}';\nawait main(process.argv.slice(2));\n`);
    const history = await recordAbsences({ seed: chooseSeed(1), bin });
    return describeViolations(history).join('\n');
  },
});
