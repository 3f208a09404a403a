// Sampled mutation testing, `npm run test:mutants`: makes small changes to the sources, one at a time in a scratch
// copy, and prints those that no related test notices.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createFindTests, type FindTests } from './import-graph.ts';
import { listMutations, type Mutation } from './mutations.ts';
import { createRunTests, endRuns, type RunTests } from './test-runs.ts';

const HELP = `Usage: npm run test:mutants -- [options]

Change the sources in ways that a test should notice, and print the changes that none notices.

Options:
  --seed TEXT   draws the mutants (default 1)
  --count N     mutants to draw (default 200)
  --only TEXT   draw only mutants whose place (file:line) starts with TEXT; may be repeated
  --list        print the drawn mutants and run none
`;

const MODULES = ['queue', 'store', 'worker', 'control', 'api', 'transport'];
/** Test files to run for each mutant, the nearest first: the same on every machine. */
const NEAREST = 12;
/** Test files to run for a mutant that survives the first ones, including these. */
const NEAREST_FOR_SURVIVORS = 24;
/** Time after which a mutant counts as hanging, ms, also on a busy machine. */
const limitFor = (testsMs: number) => 40_000 + 6 * testsMs;
const BASELINE_LIMIT_MS = 3_600_000;
const MIN_KILLED = 0.85;

type Mutant = Mutation & { file: string; line: number; from: string; lineText: string };

/** A mutant that behaves as the original does, with the reason: equivalent-mutants.json. */
type Equivalent = { file: string; lineText: string; from: string; to: string; reason: string };

type Draw = { seed: string; count: number; only: readonly string[] };

/**
 * Each mutant has its own lot, so a change of the sources affects only the drawn mutants that it
 * touches.
 */
function drawMutants(root: string, { seed, count, only }: Draw): Mutant[] {
  const files = MODULES.flatMap((name) => globSync(`src/${name}/**/*.ts`, { cwd: root }));
  const all = files.flatMap((file) => {
    const source = readFileSync(join(root, file), 'utf8');
    return listMutations(file, source).map((mutation) => locate(file, source, mutation));
  });
  return all
    .filter(({ file, line }) => only.some((place) => `${file}:${line}`.startsWith(place)))
    .map((mutant) => ({ mutant, lot: drawLot(seed, mutant) }))
    .sort((a, b) => (a.lot < b.lot ? -1 : 1))
    .slice(0, count)
    .map(({ mutant }) => mutant);
}

function drawLot(seed: string, { file, lineText, from, replacement }: Mutant): string {
  const text = [seed, file, lineText, from, replacement].join('\n');
  return createHash('sha256').update(text).digest('hex');
}

function locate(file: string, source: string, mutation: Mutation): Mutant {
  const line = source.slice(0, mutation.start).split('\n').length;
  const lineText = source.split('\n')[line - 1]?.trim() ?? '';
  return {
    ...mutation,
    file,
    line,
    lineText,
    from: source.slice(mutation.start, mutation.end),
  };
}

function describe({ file, line, from, replacement }: Mutant): string {
  const oneLine = (text: string) => text.replaceAll(/\s+/g, ' ');
  return `${file}:${line}  ${oneLine(from)}  →  ${oneLine(replacement)}`;
}

function findReason(mutant: Mutant, equivalents: readonly Equivalent[]): string | undefined {
  return equivalents.find(
    ({ file, lineText, from, to }) =>
      file === mutant.file &&
      lineText === mutant.lineText &&
      from === mutant.from &&
      to === mutant.replacement,
  )?.reason;
}

/** Copies the sources of the working tree, committed or not. */
function copyRepository(): string {
  const scratch = mkdtempSync(join(tmpdir(), 'mutants-'));
  const git = ['ls-files', '--cached', '--others', '--exclude-standard'];
  for (const file of execFileSync('git', git, { encoding: 'utf8' }).trim().split('\n')) {
    if (existsSync(file)) cpSync(file, join(scratch, file), { recursive: true });
  }
  for (const folder of ['node_modules', 'dist']) {
    if (existsSync(folder)) symlinkSync(join(process.cwd(), folder), join(scratch, folder));
  }
  mkdirSync(join(scratch, 'tmp'));
  // Postgres and pods run as other users.
  chmodSync(scratch, 0o755);
  chmodSync(join(scratch, 'tmp'), 0o1777);
  return scratch;
}

/** Runs the tests without a mutant and returns each file's duration. Failing files are omitted. */
async function measureTests(
  runTests: RunTests,
  tests: readonly string[],
): Promise<Map<string, number>> {
  const { files } = await runTests({ tests, limitMs: BASELINE_LIMIT_MS, all: true });
  const failed = tests.filter((test) => files.get(test)?.passed !== true);
  if (failed.length > 0) print(`left out, they fail without a mutant: ${failed.join(' ')}`);
  return new Map([...files].filter(([, { passed }]) => passed).map(([file, { ms }]) => [file, ms]));
}

function splitIntoRounds(tests: readonly string[]): string[][] {
  return [tests.slice(0, NEAREST), tests.slice(NEAREST, NEAREST_FOR_SURVIVORS)];
}

type Trial = { scratch: string; runTests: RunTests; durations: ReadonlyMap<string, number> };

/** Returns what killed the mutant; undefined if it survived. */
async function tryMutant(
  mutant: Mutant,
  rounds: readonly (readonly string[])[],
  trial: Trial,
): Promise<string | undefined> {
  const path = join(trial.scratch, mutant.file);
  const source = readFileSync(path, 'utf8');
  writeFileSync(
    path,
    source.slice(0, mutant.start) + mutant.replacement + source.slice(mutant.end),
  );
  try {
    for (const near of rounds) {
      const killer = await findKiller(near, trial);
      if (killer !== undefined) return killer;
    }
    return undefined;
  } finally {
    writeFileSync(path, source);
  }
}

async function findKiller(
  near: readonly string[],
  { durations, runTests }: Trial,
): Promise<string | undefined> {
  const tests = near.filter((test) => durations.has(test));
  if (tests.length === 0) return undefined;
  const testsMs = tests.reduce((sum, test) => sum + (durations.get(test) ?? 0), 0);
  const { verdict, files } = await runTests({ tests, limitMs: limitFor(testsMs) });
  if (verdict === 'passed') return undefined;
  if (verdict === 'timed out') return 'no end';
  return tests.find((test) => files.get(test)?.passed === false) ?? 'run failed';
}

const tally = { killed: 0, survived: [] as Mutant[], equivalent: 0 };

function printSummary(drawn: number): void {
  const { killed, survived, equivalent } = tally;
  const judged = killed + survived.length;
  for (const mutant of survived) print(`survived: ${describe(mutant)}`);
  const percent = judged === 0 ? 100 : Math.floor((100 * killed) / judged);
  print(`killed ${killed} of ${judged} (${percent} %), ${equivalent} equivalent, ${drawn} drawn`);
}

async function tryAll(mutants: readonly Mutant[], findTests: FindTests, scratch: string) {
  const path = new URL('equivalent-mutants.json', import.meta.url);
  const equivalents: Equivalent[] = JSON.parse(readFileSync(path, 'utf8'));
  const judged = mutants.filter((mutant) => findReason(mutant, equivalents) === undefined);
  tally.equivalent = mutants.length - judged.length;
  const runTests = createRunTests(scratch);
  const roundsOf = ({ file }: Mutant) => splitIntoRounds(findTests(file));
  const tests = new Set(judged.flatMap((mutant) => roundsOf(mutant).flat()));
  print(`running ${tests.size} test files without a mutant`);
  const durations = await measureTests(runTests, [...tests]);
  for (const mutant of judged) {
    const killer = await tryMutant(mutant, roundsOf(mutant), { scratch, runTests, durations });
    if (killer === undefined) tally.survived.push(mutant);
    else tally.killed += 1;
    const at = `${tally.killed + tally.survived.length}/${judged.length}`;
    print(
      `${at} ${killer === undefined ? 'SURVIVED' : 'killed'} ${describe(mutant)} ${killer ?? ''}`,
    );
  }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      count: { type: 'string', default: '200' },
      only: { type: 'string', multiple: true, default: [''] },
      list: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return print(HELP);
  const { only, seed } = values;
  const drawn = drawMutants('.', { seed, count: Number(values.count), only });
  if (values.list) return drawn.forEach((mutant) => void print(describe(mutant)));
  const scratch = copyRepository();
  process.once('SIGINT', () => process.exit(130));
  process.once('SIGTERM', () => process.exit(143));
  process.once('exit', () => {
    endRuns(scratch);
    rmSync(scratch, { recursive: true, force: true });
    printSummary(drawn.length);
  });
  const files = globSync('{src,test,handlers,examples}/**/*.ts', { exclude: ['**/node_modules'] });
  await tryAll(drawn, createFindTests('.', files), scratch);
  if (tally.killed < MIN_KILLED * (tally.killed + tally.survived.length)) process.exitCode = 1;
}

await main();
