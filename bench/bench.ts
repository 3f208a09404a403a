// Runs the benchmarks, `npm run bench [-- --rounds N] [figure…]`, and prints each figure beside its
// floor of the same run. `hostile` prints its own table: `npm run bench hostile [-- --only TEXT]`. So does `gpu`, which runs only if it
// is named: `npm run bench gpu [-- --minutes 10 --sizes 1,16,40 --json FILE --only TEXT]`.
import { parseArgs } from 'node:util';
import { measureBacklog } from './backlog.ts';
import { measureBatches } from './batch.ts';
import { measureCrowd } from './crowd.ts';
import { measureFirstJob } from './first-job.ts';
import { reportGpu } from './gpu.ts';
import { reportHostile } from './hostile.ts';
import { median } from './load.ts';
import {
  type Figure,
  measureChunks,
  measureEcho,
  measureJobs,
  measurePickUp,
  measureRoundTrip,
} from './measures.ts';
import { measureModelProcess } from './model-process.ts';
import { measureNeighbours } from './neighbours.ts';
import { measureNodes } from './nodes.ts';
import { measurePayloads } from './payloads.ts';
import { measurePostgres } from './postgres.ts';
import { measureProcessor } from './processor.ts';
import { measureProxy } from './proxy.ts';
import { measureColdStart, measureIdleMemory } from './starts.ts';
import { watchStolenTime } from './stolen-time.ts';
import { measureCancel, measureRecovery } from './stops.ts';
import { measureWarmUp } from './warm-up.ts';

const MEASURES: Record<string, () => Promise<Figure[]>> = {
  jobs: measureJobs,
  processor: measureProcessor,
  roundtrip: measureRoundTrip,
  pickup: measurePickUp,
  chunks: measureChunks,
  echo: measureEcho,
  coldstart: measureColdStart,
  memory: measureIdleMemory,
  cancel: measureCancel,
  recovery: measureRecovery,
  payload: measurePayloads,
  firstjob: measureFirstJob,
  proxy: measureProxy,
  crowd: measureCrowd,
  backlog: measureBacklog,
  neighbours: measureNeighbours,
  batch: measureBatches,
  warmup: measureWarmUp,
  postgres: measurePostgres,
  nodes: measureNodes,
  process: measureModelProcess,
};

const HOSTILE = 'hostile';
const GPU = 'gpu';

const { values, positionals } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    only: { type: 'string' },
    minutes: { type: 'string' },
    sizes: { type: 'string' },
    json: { type: 'string' },
  },
  allowPositionals: true,
});
const names = positionals.length > 0 ? positionals : [...Object.keys(MEASURES), HOSTILE];
const figures = names.filter((name) => name !== HOSTILE && name !== GPU);

const readStolen = watchStolenTime();
if (figures.length > 0) {
  console.log(`median of ${values.rounds} rounds; every round measures its own floors\n`);
  console.log('| figure | value | floor | ratio |\n|---|---|---|---|');
}
for (const name of figures) {
  const measure = MEASURES[name];
  if (!measure)
    throw new Error(
      `no figure "${name}"; there are ${Object.keys(MEASURES).join(', ')}, ${HOSTILE}, ${GPU}`,
    );
  const rounds: Figure[][] = [];
  for (let round = 0; round < Number(values.rounds); round++) rounds.push(await measure());
  for (const [index, figure] of (rounds[0] ?? []).entries()) {
    printFigure(
      figure,
      rounds.flatMap((round) => round[index] ?? []),
    );
  }
}
if (names.includes(HOSTILE)) await reportHostile(values);
if (names.includes(GPU)) await reportGpu(values);
console.log(`\nprocessor time stolen by other virtual machines: ${readStolen().toFixed(1)} %`);

function printFigure({ name, unit, floors }: Figure, rounds: Figure[]): void {
  const value = median(rounds.map((round) => round.value));
  for (const [index, floor] of floors.entries()) {
    const floorOf = (round: Figure) => round.floors[index]?.value ?? Number.NaN;
    const ratio = median(rounds.map((round) => round.value / floorOf(round)));
    const shown = index === 0 ? `${format(value)} ${unit}` : '';
    const floorShown = `${floor.name}: ${format(median(rounds.map(floorOf)))}`;
    console.log(`| ${index === 0 ? name : ''} | ${shown} | ${floorShown} | ${ratio.toFixed(2)} |`);
  }
}

function format(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(2);
}
