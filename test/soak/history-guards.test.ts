// Records histories of platforms whose sources have a broken promise, and expects the rules to notice.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { recordAbsences } from '../histories/absence-run.ts';
import { describeViolations } from '../histories/report.ts';
import { chooseSeed } from '../support/random.ts';
import { QUEUE_BREAKS } from './breaks.ts';
import { describeGuards } from './broken-copy.ts';

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
