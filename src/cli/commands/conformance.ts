// `millrace conformance`: plays one side of a worker protocol against another implementation of the other
// side, and prints which rules of the protocol hold. The checks are in conformance/.
import type { Log } from '../../base/log.ts';
import { escapeLine } from '../../base/text/printable.ts';
import { createClient } from '../../client.ts';
import {
  CHECK_INPUT_LINES,
  type CheckResult,
  runConformanceChecks,
} from '../../conformance/checks.ts';
import {
  CommandError,
  type CommandGroup,
  defineVerb,
  EXIT,
  type ExitMeanings,
} from '../command.ts';
import type { Positional } from '../option-parser.ts';
import {
  choice,
  keyOption,
  type OptionValues,
  requiredText,
  text,
  UsageError,
} from '../options.ts';
import { print } from '../output.ts';
import { throughProxy } from '../resources/client-options.ts';
import { createTerminalLog } from '../terminal-log.ts';
import { openLink } from '../worker/platform-link.ts';
import {
  checkWorker,
  chooseAreas,
  link,
  sharedOptions,
  workerOptions,
} from './conformance-worker.ts';

const platformOptions = {
  url: requiredText({
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'URL of the platform; for runpod the part before /<endpoint>/job-take',
  }),
  endpoint: requiredText({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINT',
    help: 'ID of an endpoint without workers and jobs',
  }),
  key: keyOption(requiredText({ placeholder: 'KEY', env: 'MILLRACE_KEY', help: 'worker key' })),
  jobsKey: text({
    placeholder: 'KEY',
    help: 'key that may submit, read and cancel jobs; default: --key',
  }),
  jobsUrl: text({ placeholder: 'URL', help: 'URL of the job API; default: --url' }),
  link: choice({
    ...link,
    help: 'transport of the protocol millrace; default: by the scheme of --url',
  }),
  ...sharedOptions,
};

type PlatformValues = OptionValues<typeof platformOptions>;

const exitCodes: ExitMeanings = {
  ok: 'all checks that apply hold',
  failed: 'a check fails, or there was nothing to test',
  interrupted: 'interrupted',
};

const workerPositionals: readonly Positional[] = [
  {
    name: '[-- command…]',
    help: 'command that starts the worker under test, with its arguments',
  },
];

const workerVerb = defineVerb({
  summary: 'tests a worker: listens as a platform and checks what the worker does',
  description: [
    'Gives jobs to the worker that connects, injects faults, and checks how the worker reacts. With a ' +
      'command after --, the test starts that command as the worker, with addresses and key in its ' +
      'environment, and stops it with SIGTERM, which is a check too. Without a command, the test prints the ' +
      'settings of the worker and says when to send the signal.',
    `The worker's handler must support these inputs. ${CHECK_INPUT_LINES.join('. ')}.`,
  ],
  positionals: workerPositionals,
  options: workerOptions,
  examples: [
    'millrace conformance worker -- python3 my_worker.py',
    'millrace conformance worker --port 9000 --host 0.0.0.0',
    'millrace conformance worker --protocol runpod -- python3 -u handler.py',
  ],
  exitCodes,
  async run({ values, positionals: command }) {
    checkLink(values);
    return judge('worker', values, (test) => checkWorker({ ...test, values, command }));
  },
});

const platformVerb = defineVerb({
  summary: 'tests a platform: acts as a worker of it and checks its answers',
  description: [
    'Submits jobs, takes them, and sends valid and invalid reports. It waits for leases to expire, so it ' +
      'takes a while. The endpoint must have no workers and no other jobs.',
  ],
  options: platformOptions,
  examples: [
    'millrace conformance platform --url http://127.0.0.1:8000 --endpoint test --key mr_…',
    'millrace conformance platform --protocol runpod --url URL/runpod/v2 --endpoint test --key mr_…',
  ],
  exitCodes,
  async run({ values }) {
    checkLink(values);
    return judge('platform', values, (test) => checkPlatform({ ...test, values }));
  },
});

export const conformanceCommands: CommandGroup = {
  name: 'millrace conformance',
  description: [
    'Plays one side of a worker protocol against your implementation of the other side, and prints which ' +
      'rules hold.',
  ],
  verbs: { worker: workerVerb, platform: platformVerb },
  examples: [
    'millrace conformance worker -- python3 my_worker.py',
    'millrace conformance platform --url http://127.0.0.1:8000 --endpoint test --key mr_…',
  ],
};

const WORDS = { holds: 'holds', fails: 'FAILS', 'left out': 'left out' } as const;

function checkLink({ link, protocol }: Pick<PlatformValues, 'link' | 'protocol'>): void {
  if (protocol === 'runpod' && link) throw new UsageError('--link needs --protocol millrace');
}

interface Test {
  log: Log;
  onRow: (row: CheckResult) => void;
}

type SharedValues = OptionValues<typeof sharedOptions>;

async function judge(
  side: 'worker' | 'platform',
  { json, logLevel, protocol }: SharedValues,
  run: (test: Test) => Promise<CheckResult[]>,
): Promise<number> {
  const onRow = (row: CheckResult) => {
    if (!json) void print(describeRow(row));
  };
  const rows = await run({ log: createTerminalLog(logLevel), onRow });
  const holds = rows.every(({ result }) => result !== 'fails');
  const report = { protocol, side, holds, checks: rows };
  void print(json ? `${JSON.stringify(report, null, 2)}\n` : summarize(rows));
  return holds ? EXIT.ok : EXIT.failed;
}

function describeRow({ area, detail, result, rule }: CheckResult): string {
  const line = `${WORDS[result].padEnd(9)}${area.padEnd(13)}${rule}\n`;
  return detail === undefined ? line : `${line}${' '.repeat(22)}${escapeLine(detail)}\n`;
}

function summarize(rows: readonly CheckResult[]): string {
  const count = (result: CheckResult['result']) =>
    rows.filter((row) => row.result === result).length;
  const [holding, failing, missing] = [count('holds'), count('fails'), count('left out')];
  return `\n${holding} hold, ${failing} fail, ${missing} left out\n`;
}

interface PlatformUnderTest extends Test {
  values: PlatformValues;
}

/** @throws UsageError, CommandError if no platform answers */
async function checkPlatform({ log, onRow, values }: PlatformUnderTest): Promise<CheckResult[]> {
  const place = readAddress(values);
  if (values.protocol === 'runpod') {
    const { RunPodProbe, runPodPlatformChecks } = await import(
      '../../conformance/runpod/platform-checks.ts'
    );
    const checks = chooseAreas(runPodPlatformChecks, values.only);
    const probe = new RunPodProbe(place);
    await probe.checkReachable().catch(rejectSilence);
    return runConformanceChecks(checks, probe, onRow);
  }
  const { platformChecks } = await import('../../conformance/platform/platform-checks.ts');
  const { realTime } = await import('../../conformance/platform/scripted-worker.ts');
  const checks = chooseAreas(platformChecks, values.only);
  const { endpoint, jobsKey, jobsUrl, url } = place;
  const client = createClient({ url: jobsUrl, endpoint, key: jobsKey, ...throughProxy(jobsUrl) });
  await client.health().catch(rejectSilence);
  const rest = { ca: undefined, clientCert: undefined, clientKey: undefined };
  const unused = { stateDir: undefined, workerId: undefined, runpodJoinText: false };
  const target = { url, endpoint, link: values.link, ...rest, ...unused };
  const link = await openLink({ ...target, key: place.key }, log);
  const wrongKeyLink = await openLink({ ...target, key: `mr_${'x'.repeat(43)}` }, log);
  const terms = { leaseMs: 15_000, renewEveryMs: 5_000, takeWaitMs: 20_000 };
  const stage = {
    ...{ link, wrongKeyLink, client, time: realTime, terms },
    submitted: [],
    workers: [],
  };
  try {
    return await runConformanceChecks(checks, stage, onRow);
  } finally {
    await link.close();
    await wrongKeyLink.close();
  }
}

function rejectSilence(error: unknown): never {
  const reason = error instanceof Error ? error.message : String(error);
  throw new CommandError(`the job API does not answer: ${reason}`);
}

function readAddress(values: PlatformValues) {
  const { endpoint, key, url } = values;
  const jobsUrl = values.jobsUrl ?? url;
  if (!/^https?:/i.test(jobsUrl)) throw new UsageError('--jobs-url URL is required with gRPC');
  return { url, endpoint, key, jobsUrl, jobsKey: values.jobsKey ?? key };
}
