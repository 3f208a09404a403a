// Runs one batch with OpenAI's own client while processes are killed, and checks that each line has one result.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI, { toFile } from 'openai';
import { PlatformProcess } from '../processes.ts';
import { createRandom } from '../random.ts';
import { KilledWorker } from '../workers/killed-worker.ts';
import { TERMS } from './kill-run.ts';

const URL_PATH = '/v1/chat/completions';
const POLL_MS = 100;

export interface BatchRun {
  /** Base URL of the endpoint, now: `http://…/v2/demo`. */
  endpointUrl: () => string;
  apiKey: string;
  lines: number;
  kills: number;
  seed: number;
  /** Longest time of a job, ms. */
  jobMs: number;
  /** Kills a process, and starts it again. */
  kill: (n: number, random: () => number) => Promise<void>;
}

export interface BatchRunResult {
  status: string;
  counts: { total: number; completed: number; failed: number } | undefined;
  kills: number;
  /** One line for each result that is wrong, missing or there twice. */
  wrong: string[];
}

/** The lines are in as many parts as there are kills, and one more: those of a part wait for the kill before it. */
export async function runBatchUnderKills(run: BatchRun): Promise<BatchRunResult> {
  const gates = await mkdtemp(join(tmpdir(), 'millrace-gates-'));
  try {
    return await runWithGates(run, (kill) => join(gates, String(kill)));
  } finally {
    await rm(gates, { recursive: true });
  }
}

async function runWithGates(
  run: BatchRun,
  gateOf: (kill: number) => string,
): Promise<BatchRunResult> {
  const random = createRandom(run.seed);
  const client = () =>
    new OpenAI({ baseURL: `${run.endpointUrl()}/openai/v1`, apiKey: run.apiKey });
  const lines = Array.from({ length: run.lines }, (_, n) => {
    const part = Math.floor((n * (run.kills + 1)) / run.lines);
    const gate = part > 0 && { gate: gateOf(part) };
    return JSON.stringify({
      custom_id: `line-${n}`,
      method: 'POST',
      url: URL_PATH,
      body: { n, ms: Math.floor(random() * run.jobMs), ...gate },
    });
  });
  const input = await toFile(Buffer.from(`${lines.join('\n')}\n`), 'input.jsonl');
  const file = await client().files.create({ file: input, purpose: 'batch' });
  const { id } = await client().batches.create({
    ...{ input_file_id: file.id, endpoint: URL_PATH, completion_window: '24h' },
  });
  let kills = 0;
  for (;;) {
    // A killed platform refuses connections for a moment.
    const batch = await client()
      .batches.retrieve(id)
      .catch(() => undefined);
    const { completed = 0, failed = 0 } = batch?.request_counts ?? {};
    if (batch && batch.status !== 'in_progress') {
      const { error_file_id, output_file_id, request_counts: counts, status } = batch;
      const read = async (of: string | undefined) =>
        of ? (await (await client().files.content(of)).text()).trimEnd().split('\n') : [];
      const results = [await read(output_file_id), await read(error_file_id)] as const;
      return { status, counts, kills, wrong: findFlaws(run.lines, results) };
    }
    const share = (run.lines * (kills + 1)) / (run.kills + 1);
    if (kills < run.kills && completed + failed >= share) {
      await run.kill(kills++, random);
      await writeFile(gateOf(kills), '');
    } else {
      await sleep(POLL_MS);
    }
  }
}

function findFlaws(lines: number, [answers, failures]: readonly [string[], string[]]): string[] {
  const wrong: string[] = [];
  const seen = new Set<string>();
  for (const [index, text] of [...answers, ...failures].entries()) {
    const { custom_id, error, response } = JSON.parse(text);
    const n = Number(String(custom_id).slice('line-'.length));
    const isRefused = n % 10 === 3;
    const isRight =
      error === null &&
      isRefused === index >= answers.length &&
      (isRefused ? response.status_code === 400 : response.body.square === n * n);
    if (!isRight || seen.has(custom_id)) wrong.push(text);
    seen.add(custom_id);
  }
  for (let n = 0; n < lines; n++) if (!seen.has(`line-${n}`)) wrong.push(`line-${n} is missing`);
  return wrong;
}

const ENDPOINT = 'requests';

/** Every second kill is that of a worker or its supervisor. */
export async function runBatchOnOnePlatform(
  run: Omit<BatchRun, 'apiKey' | 'endpointUrl' | 'kill'>,
): Promise<BatchRunResult> {
  const platform = await PlatformProcess.start({ endpoints: [ENDPOINT], args: TERMS });
  try {
    const worker = new KilledWorker(platform, {
      ...{ id: 'w1', endpoint: ENDPOINT, handler: 'requests.ts' },
      jobsPerThread: 16,
    });
    const kill = async (n: number, random: () => number) => {
      if (n % 2 === 1) {
        await (random() < 0.5 ? worker.endProcess('SIGKILL') : worker.endSupervisor('SIGKILL'));
        return;
      }
      await platform.kill();
      await platform.restart();
    };
    const { adminKey: apiKey } = platform;
    const endpointUrl = () => `${platform.url}/v2/${ENDPOINT}`;
    return await runBatchUnderKills({ ...run, apiKey, endpointUrl, kill });
  } finally {
    await platform.close();
  }
}
