// `millrace conformance`: plays one side of a worker protocol against somebody's other side, and prints
// what of the protocol holds there. The checks are in conformance/.

import { CHECK_INPUT_LINES } from '../../conformance/check-inputs.ts';
import type { Row } from '../../conformance/checks.ts';
import { type Command, EXIT } from '../command.ts';
import {
  choice,
  flag,
  integer,
  list,
  type OptionValues,
  parseOptions,
  text,
  UsageError,
} from '../options.ts';
import { print } from '../output.ts';
import { createTerminalLog, logLevelOption } from '../terminal-log.ts';
import { checkPlatform } from './conformance-platform.ts';
import { checkWorker } from './conformance-worker.ts';

const options = {
  asPlatform: flag({ help: 'listen, and test the worker that connects' }),
  asWorker: flag({ help: 'test the platform at --url' }),
  protocol: choice({
    choices: ['millrace', 'runpod'],
    default: 'millrace',
    help: 'protocol to test: millrace (docs/protocol.md) or runpod',
  }),
  link: choice({
    choices: ['http', 'grpc'],
    help: 'carrier of the protocol millrace; default: by the scheme of --url, else http',
  }),
  host: text({
    default: '127.0.0.1',
    placeholder: 'HOST',
    help: 'address that --as-platform listens on',
  }),
  port: integer({
    min: 0,
    max: 65_535,
    default: 0,
    placeholder: 'PORT',
    help: 'port of --as-platform; 0 picks a free one',
  }),
  waitMs: integer({
    min: 1,
    max: 3_600_000,
    default: 60_000,
    placeholder: 'MS',
    help: "how long --as-platform waits for the worker's first call, ms",
  }),
  url: text({
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'for --as-worker: URL of the platform; for runpod the part before /<endpoint>/job-take',
  }),
  endpoint: text({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINT',
    help: 'for --as-worker: ID of an endpoint without workers and jobs',
  }),
  key: text({ placeholder: 'KEY', env: 'MILLRACE_KEY', help: 'for --as-worker: worker key' }),
  jobsKey: text({
    placeholder: 'KEY',
    help: 'for --as-worker: key that may submit, read and cancel jobs; default: --key',
  }),
  jobsUrl: text({
    placeholder: 'URL',
    help: 'for --as-worker: URL of the job API; default: --url',
  }),
  only: list({
    placeholder: 'AREA',
    help: 'area (second column of the table): run its checks and those that all others need; an unknown area lists all',
  }),
  json: flag({ help: 'print one JSON object instead of the table' }),
  logLevel: logLevelOption('silent'),
};

export type ConformanceValues = OptionValues<typeof options>;

export const conformanceCommand: Command = {
  name: 'millrace conformance',
  summary: 'test a worker or a platform against a worker protocol',
  description: [
    '--as-platform listens, gives jobs to the worker that connects, injects faults, and checks how the ' +
      'worker reacts. With a command after -- it starts that command as the worker, with addresses and key ' +
      'in its environment, and stops it with SIGTERM, which is a check too. Without a command it prints ' +
      'the settings of the worker and says when to send the signal.',
    `The worker's handler must support these inputs. ${CHECK_INPUT_LINES.join('. ')}.`,
    '--as-worker acts as a worker of a platform: it submits jobs, takes them, and sends valid and invalid ' +
      'reports. It waits for leases to expire, so it takes a while. The endpoint must have no workers and ' +
      'no other jobs.',
  ],
  positionals: [
    {
      name: '[command…]',
      help: 'after --: the command that starts the worker under test, with its arguments',
    },
  ],
  options,
  examples: [
    'millrace conformance --as-platform -- python3 my_worker.py',
    'millrace conformance --as-platform --port 9000 --host 0.0.0.0',
    'millrace conformance --as-worker --url http://127.0.0.1:8000 --endpoint test --key mr_…',
    'millrace conformance --as-platform --protocol runpod -- python3 -u handler.py',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'all checks that apply hold' },
    { code: EXIT.failed, meaning: 'a check fails, or no worker or platform could be tested' },
    { code: EXIT.usage, meaning: 'wrong usage' },
    { code: EXIT.interrupted, meaning: 'interrupted' },
  ],
  run,
};

const WORDS = { holds: 'holds', fails: 'FAILS', 'left out': 'left out' } as const;

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const { asPlatform, asWorker, json, protocol } = values;
  if (asPlatform === asWorker) throw new UsageError('give --as-platform or --as-worker');
  if (asWorker && positionals.length > 0)
    throw new UsageError(`${positionals[0]}: --as-worker takes no command`);
  if (protocol === 'runpod' && values.link)
    throw new UsageError('--link needs --protocol millrace');
  const log = createTerminalLog(values.logLevel);
  const onRow = (row: Row) => {
    if (!json) void print(describeRow(row));
  };
  const rows = asPlatform
    ? await checkWorker({ values, command: positionals, log, onRow })
    : await checkPlatform({ values, log, onRow });
  const holds = rows.every(({ result }) => result !== 'fails');
  const side = asPlatform ? 'worker' : 'platform';
  const report = { protocol, side, holds, checks: rows };
  void print(json ? `${JSON.stringify(report, null, 2)}\n` : summarize(rows));
  return holds ? EXIT.ok : EXIT.failed;
}

function describeRow({ area, detail, result, rule }: Row): string {
  const line = `${WORDS[result].padEnd(9)}${area.padEnd(13)}${rule}\n`;
  return detail === undefined ? line : `${line}${' '.repeat(22)}${detail}\n`;
}

function summarize(rows: readonly Row[]): string {
  const count = (result: Row['result']) => rows.filter((row) => row.result === result).length;
  const [holding, failing, missing] = [count('holds'), count('fails'), count('left out')];
  return `\n${holding} hold, ${failing} fail, ${missing} left out\n`;
}
