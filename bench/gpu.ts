// Measures parking on this machine's GPU: `npm run bench gpu [-- --minutes 10 --sizes 1,16,40 --json FILE]`, or, with a built `dist`
// and nothing else, `node bench/gpu.ts`. Each row stands alone: one that fails, or for which no time is left, does not stop the others.
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { createModelProcess, type ModelProcess } from 'millrace/process';
import { benchFile, type Platform, startPlatform } from './processes.ts';

const run = promisify(execFile);
const BIN = fileURLToPath(new URL('../bin/millrace.js', import.meta.url));
const TURNS = 6;
/** A job that runs while urgent ones come, and the urgent ones. */
const LONG = { count: 600, pauseMs: 20 };
const URGENT = 5;

export interface GpuOptions {
  minutes?: string | undefined;
  sizes?: string | undefined;
  json?: string | undefined;
  only?: string | undefined;
}

/** Figures of a row, ms unless the name says otherwise. */
type Figures = Record<string, number | string | boolean>;

interface Row {
  name: string;
  /** It is not begun with less time, ms, and is given up after this. */
  limitMs: number;
  measure: () => Promise<Figures>;
}

interface Result {
  row: string;
  tookMs: number;
  figures?: Figures;
  error?: string;
}

type Way = 'hooks' | 'driver';

export async function reportGpu(options: GpuOptions): Promise<void> {
  const { json, minutes = '10', only = '', sizes = '1,16,40' } = options;
  const endAt = performance.now() + Number(minutes) * 60_000;
  const results: Result[] = [];
  const rows = listRows(sizes.split(',').map(Number)).filter(({ name }) => name.includes(only));
  console.log('| row | took, s | figures |\n|---|---|---|');
  for (const row of rows) {
    const result = await play(row, endAt);
    results.push(result);
    console.log(`| ${result.row} | ${(result.tookMs / 1_000).toFixed(1)} | ${describe(result)} |`);
    if (json !== undefined) writeFileSync(json, `${JSON.stringify(results, null, 2)}\n`);
  }
  const failed = results.filter(({ error }) => error !== undefined).length;
  console.log(`\n${results.length - failed} rows measured, ${failed} not`);
}

/** Every process that the row has started ends with it. */
async function play({ limitMs, measure, name: row }: Row, endAt: number): Promise<Result> {
  const startedAt = performance.now();
  const leftMs = endAt - startedAt;
  if (leftMs < limitMs / 2) return { row, tookMs: 0, error: 'no time is left' };
  const timer = new AbortController();
  const late = delay(Math.min(limitMs, leftMs), undefined, { signal: timer.signal }).then(() => {
    throw new Error('it took too long');
  });
  late.catch(() => undefined);
  const end = (): Omit<Result, 'figures' | 'error'> => ({
    row,
    tookMs: Math.round(performance.now() - startedAt),
  });
  try {
    const figures = await Promise.race([measure(), late]);
    return { ...end(), figures };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { ...end(), error: text.slice(0, 500) };
  } finally {
    timer.abort();
    await closeAll();
  }
}

const open = new Set<() => Promise<void>>();

async function closeAll(): Promise<void> {
  const closing = [...open].map((close) => close().catch(() => undefined));
  open.clear();
  // A process that hangs in the driver does not end.
  await Promise.race([Promise.all(closing), delay(20_000, undefined, { ref: false })]);
}

function describe({ error, figures = {} }: Result): string {
  if (error !== undefined)
    return `NOT MEASURED: ${error.replaceAll('\n', ' ').replaceAll('|', '/')}`;
  return Object.entries(figures)
    .map(([name, value]) => `${name} ${typeof value === 'number' ? format(value) : value}`)
    .join(', ');
}

function format(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

/** The quick and the important ones first. */
function listRows(sizes: readonly number[]): Row[] {
  const second = 1_000;
  const [small = 1] = sizes;
  const turnGb = Math.min(5, 5 * small);
  const cycles = (gb: number) => Math.max(2, Math.min(50, Math.round(50 / gb)));
  return [
    { name: 'doctor --try-park', limitMs: 60 * second, measure: tryPark },
    ...(['hooks', 'driver'] as const).map((way) => ({
      name: `job of B behind idle A, ${way}, ${turnGb} GB`,
      limitMs: 150 * second,
      measure: () => takeTurns(way, turnGb),
    })),
    { name: 'urgent job behind a long one', limitMs: 120 * second, measure: () => suspend(small) },
    ...[false, true].map((hasPreload) => ({
      name: `SIGKILL to the next call, ${hasPreload ? 'with' : 'without'} preload`,
      limitMs: 60 * second,
      measure: () => restart(hasPreload, small),
    })),
    ...(['parked', 'waking'] as const).map((when) => ({
      name: `killed while ${when}, by driver`,
      limitMs: 60 * second,
      measure: () => kill(when, small),
    })),
    ...[...sizes].flatMap((gb) =>
      (['hooks', 'driver'] as const).map((way) => ({
        name: `${gb} GB by ${way}`,
        limitMs: (40 + 6 * gb) * second,
        measure: () => cycle(way, gb, way === 'hooks' ? cycles(gb) : Math.ceil(cycles(gb) / 10)),
      })),
    ),
  ];
}

async function tryPark(): Promise<Figures> {
  const doctor = [BIN, 'doctor', '--try-park'];
  const { stdout } = await run(process.execPath, doctor, { timeout: 60_000 }).catch(
    (error: { stdout?: string }) => ({ stdout: error.stdout ?? '' }),
  );
  const line = stdout.split('\n').find((each) => /^\s*park/i.test(each));
  if (line === undefined) throw new Error(`doctor says nothing of parking: ${stdout.slice(-300)}`);
  return { said: line.trim().replaceAll(/\s+/g, ' ') };
}

interface Work {
  digest: number;
  pid: number;
}

async function openModel(way: Way, gb: number, preload: string[] = []): Promise<ModelProcess> {
  const env = { MODEL_GB: String(gb), PARK_BY: way, CUDA_VISIBLE_DEVICES: await findDevice() };
  const args = [benchFile('handlers/gpu-model.py')];
  const model = createModelProcess({ command: 'python3', args, env, preload });
  open.add(() => model.stop());
  await model.start();
  return model;
}

/** UUID of the first device. */
async function findDevice(): Promise<string> {
  if (process.env['CUDA_VISIBLE_DEVICES']?.startsWith('GPU-')) {
    return process.env['CUDA_VISIBLE_DEVICES'];
  }
  const { stdout } = await run('nvidia-smi', ['--query-gpu=uuid', '--format=csv,noheader']);
  return stdout.split('\n')[0]?.trim() ?? '';
}

/** Memory in use on the device, MB; NaN if nvidia-smi does not tell. */
async function readUsedMb(): Promise<number> {
  const args = ['--query-gpu=memory.used', '--format=csv,noheader,nounits'];
  const { stdout } = await run('nvidia-smi', args).catch(() => ({ stdout: 'NaN' }));
  return Number(stdout.split('\n')[0]);
}

/** A model goes and comes back, and must be the same to the bit. */
async function cycle(way: Way, gb: number, most: number): Promise<Figures> {
  const startedAt = performance.now();
  const before = await readUsedMb();
  const model = await openModel(way, gb);
  const first = await model.call<Work>('work', null);
  const startMs = performance.now() - startedAt;
  const loaded = await readUsedMb();
  const times = { park: [] as number[], wake: [] as number[] };
  let leftMb = Number.NaN;
  for (let number = 0; number < most; number += 1) {
    const parkAt = performance.now();
    const { way: parkedBy } = await model.park({ waitMs: 60_000 });
    if (parkedBy !== way) throw new Error(`it was parked by ${parkedBy}`);
    times.park.push(performance.now() - parkAt);
    leftMb = (await readUsedMb()) - before;
    const wakeAt = performance.now();
    const { way: wokenBy } = await model.wake();
    if (wokenBy !== way) throw new Error(`it was woken by ${wokenBy}`);
    times.wake.push(performance.now() - wakeAt);
    const again = await model.call<Work>('work', null);
    if (again.digest !== first.digest || again.pid !== first.pid) {
      throw new Error(
        `cycle ${number}: ${JSON.stringify(again)} in place of ${JSON.stringify(first)}`,
      );
    }
  }
  return {
    'start to first call': startMs,
    'first park': times.park[0] ?? Number.NaN,
    'park, median': median(times.park),
    'wake, median': median(times.wake),
    'wake, longest': Math.max(...times.wake),
    'used MB': loaded - before,
    'left MB': leftMb,
    cycles: most,
    'same to the bit': true,
  };
}

async function restart(hasPreload: boolean, gb: number): Promise<Figures> {
  const { stdout } = await run('python3', ['-c', 'import torch']).then(
    () => ({ stdout: 'torch' }),
    () => ({ stdout: 'json' }),
  );
  const model = await openModel('driver', gb, hasPreload ? [stdout] : []);
  const times: number[] = [];
  for (let number = 0; number < 3; number += 1) {
    const { pid } = await model.call<Work>('work', null);
    // The launcher imports the packages after the start.
    await delay(hasPreload ? 8_000 : 500);
    const startedAt = performance.now();
    process.kill(pid, 'SIGKILL');
    while (model.pid === pid) await delay(1);
    await model.call('work', null);
    times.push(performance.now() - startedAt);
  }
  return { median: median(times), longest: Math.max(...times) };
}

/** Whatever dies, the next call has a model. */
async function kill(when: 'parked' | 'waking', gb: number): Promise<Figures> {
  const model = await openModel('driver', gb);
  const first = await model.call<Work>('work', null);
  await model.park();
  const startedAt = performance.now();
  if (when === 'parked') process.kill(first.pid, 'SIGKILL');
  const waking = model.wake();
  waking.catch(() => undefined);
  if (when === 'waking') {
    await delay(100);
    process.kill(first.pid, 'SIGKILL');
  }
  const { way } = await waking;
  // A model that was back before its death fails one call.
  const again = await model.call<Work>('work', null).catch(() => model.call<Work>('work', null));
  const isSame = again.digest === first.digest;
  return { 'came back': way, 'until the next call': performance.now() - startedAt, same: isSame };
}

/** Two endpoints whose models may not be on the GPU together. */
async function openEndpoints(way: Way, gb: number, changes: object[]) {
  const platform = await startPlatform([], ['--engine', 'process']);
  const ids: string[] = [];
  open.add(async () => {
    // Workers outlive their platform.
    await Promise.all(ids.map((id) => call(platform, `/v1/endpoints/${id}`, undefined, 'DELETE')));
    for (let at = 0; at < 100 && (await hasPods(platform)); at += 1) await delay(100);
    await platform.stop();
  });
  const env = { MODEL_GB: String(gb), PARK_BY: way, ...passOn() };
  const handler = benchFile('handlers/gpu-model.ts');
  const template = { name: 'gpu', image: 'none', handler, env };
  const { id: templateId } = await call(platform, '/v1/templates', template);
  const { gpus } = await call(platform, '/v2/catalog/gpus');
  const gpuTypeIds = (gpus as { id: string }[]).map(({ id }) => id);
  const shared = { templateId, gpuTypeIds, workersMax: 1, idleTimeout: 3_600, minResidenceMs: 0 };
  for (const [place, change] of changes.entries()) {
    const { id } = await call(platform, '/v1/endpoints', {
      ...shared,
      name: `e${place}`,
      ...change,
    });
    ids.push(String(id));
  }
  return { platform, ids };
}

/** What a stand-in for the driver needs; nothing on a real machine. */
function passOn(): Record<string, string> {
  const names = ['CUDA_STAND_IN', 'LD_LIBRARY_PATH', 'NVIDIA_SMI_SAYS', 'MILLRACE_GPU_LEDGER'];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

type Answer = Record<string, unknown>;

async function hasPods(platform: Platform): Promise<boolean> {
  const { pods } = await call(platform, '/v2/pods');
  return Array.isArray(pods) && pods.length > 0;
}

async function call(
  platform: Platform,
  path: string,
  body?: object,
  method = body ? 'POST' : 'GET',
): Promise<Answer> {
  const answer = await fetch(`${platform.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${platform.adminKey}`, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}: ${text.slice(0, 300)}`);
  return text === '' ? {} : JSON.parse(text);
}

async function finish(platform: Platform, endpoint: string, id: unknown): Promise<Answer> {
  for (;;) {
    const record = await call(platform, `/v2/${endpoint}/status/${id}`);
    if (record['status'] === 'COMPLETED') return record;
    if (!['IN_QUEUE', 'IN_PROGRESS'].includes(String(record['status']))) {
      throw new Error(`job ended: ${JSON.stringify(record).slice(0, 400)}`);
    }
    await delay(10);
  }
}

async function complete(platform: Platform, endpoint: string, input: object, policy = {}) {
  const startedAt = performance.now();
  const { id } = await call(platform, `/v2/${endpoint}/run`, { input, policy });
  const { attempt, output } = await finish(platform, endpoint, id);
  return { attempt, output: output as Answer, ms: performance.now() - startedAt };
}

async function takeTurns(way: Way, gb: number): Promise<Figures> {
  const { ids, platform } = await openEndpoints(way, gb, [{}, {}]);
  const [a = '', b = ''] = ids;
  const first = await complete(platform, a, { do: 'work' });
  // A worker that has just started has not said yet that it can be parked.
  await delay(3_000);
  const cold = await complete(platform, b, { do: 'work' });
  await delay(3_000);
  const times: number[] = [];
  const pids = new Set<unknown>();
  for (let turn = 0; turn < TURNS; turn += 1) {
    const { attempt, ms, output } = await complete(platform, turn % 2 === 0 ? a : b, {
      do: 'work',
    });
    if (attempt !== 1) throw new Error(`turn ${turn}: attempt ${attempt}`);
    if (turn > 0) times.push(ms);
    pids.add(output['pid']);
  }
  return {
    'first job of A, cold': first.ms,
    'first job of B, A parks and B starts': cold.ms,
    'job of B, median': median(times),
    longest: Math.max(...times),
    'model processes': pids.size,
  };
}

/** A decode loop that urgent jobs suspend has the same result. */
async function suspend(gb: number): Promise<Figures> {
  const { ids, platform } = await openEndpoints('driver', gb, [
    { preemptible: true },
    { preemptAbovePriority: 0 },
  ]);
  const [slow = '', urgent = ''] = ids;
  const alone = await complete(platform, slow, { do: 'steps', ...LONG });
  await delay(3_000);
  const { id } = await call(platform, `/v2/${slow}/run`, { input: { do: 'steps', ...LONG } });
  const times: number[] = [];
  for (let number = 0; number < URGENT; number += 1) {
    await delay(1_000);
    const { ms } = await complete(platform, urgent, { do: 'work' }, { priority: 5 });
    times.push(ms);
  }
  const { attempt, output } = await finish(platform, slow, id);
  const { pid, value } = output as Answer;
  if (attempt !== 1) throw new Error(`the long job needed ${attempt} attempts`);
  if (value !== alone.output['value'])
    throw new Error(`${value} in place of ${alone.output['value']}`);
  return {
    'urgent job, first (starts its model)': times[0] ?? Number.NaN,
    'urgent job, median of the others': median(times.slice(1)),
    'long job alone': alone.ms,
    'same result, same process': pid === alone.output['pid'],
  };
}

function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? Number.NaN;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({ options: { minutes: text, sizes: text, json: text, only: text } });
  await reportGpu(values);
  process.exit(0);
}
