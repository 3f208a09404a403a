// V8 gives each generator function that an expression makes a hidden class of its own. It keeps all that the function
// refers to, until the next collection of the old generation: about 8 KB for each job.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const HOT = [
  'submissions.ts',
  'admission.ts',
  'time/recorded-time.ts',
  'reports/reports.ts',
  'reports/streams.ts',
  'leases/renewals.ts',
  'leases/handover.ts',
];

it.each(HOT)('%s makes no generator function for each operation', (name) => {
  const file = fileURLToPath(new URL(`../../../src/queue/${name}`, import.meta.url));
  const text = readFileSync(file, 'utf8').replaceAll(/^(?:export )?function\*/gm, '');
  expect(text).not.toContain('function*');
});
