// `millrace conformance`: plays one side of a worker protocol against somebody's other side, and prints
// what of the protocol holds there. The checks are in conformance/.

import { DEED_LINES } from '../../conformance/check-inputs.ts';
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
  asPlatform: flag({ help: 'listens, and tests the worker that comes' }),
  asWorker: flag({ help: 'tests the platform at --url' }),
  protocol: choice({
    choices: ['millrace', 'runpod'],
    default: 'millrace',
    help: 'millrace: docs/protocol.md; runpod: what workers of that cloud speak',
  }),
  link: choice({
    choices: ['http', 'grpc'],
    help: 'carrier of the protocol millrace; without it the scheme of --url says it, else http',
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
    help: 'how long --as-platform waits for the first word of the worker, ms',
  }),
  url: text({
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'for --as-worker: of the platform; for runpod all before /<endpoint>/job-take',
  }),
  endpoint: text({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINT',
    help: 'for --as-worker: an endpoint that nobody else uses',
  }),
  key: text({ placeholder: 'KEY', env: 'MILLRACE_KEY', help: 'for --as-worker: key of a worker' }),
  jobsKey: text({
    placeholder: 'KEY',
    help: 'for --as-worker: key that may submit, read and cancel jobs; without it --key',
  }),
  jobsUrl: text({
    placeholder: 'URL',
    help: 'for --as-worker: where the job API is, if not at --url',
  }),
  only: list({
    placeholder: 'AREA',
    help: 'word of the second column: runs its checks, and those that all others need; an unknown word lists them',
  }),
  json: flag({ help: 'prints one JSON object instead of the table' }),
  logLevel: logLevelOption('silent'),
};

export type ConformanceValues = OptionValues<typeof options>;

export const conformanceCommand: Command = {
  name: 'millrace conformance',
  summary: 'tests a worker or a platform of somebody else against a worker protocol',
  description: [
    '--as-platform listens, gives jobs to the worker that comes, disturbs it, and looks at what it ' +
      'does. With a command behind -- it starts that as the worker, with the addresses and the key ' +
      'in its environment, and ends it by SIGTERM, which is a check too; without one it prints what ' +
      'the worker needs and says when to send the signal.',
    `The worker's handler has to know these inputs. ${DEED_LINES.join('. ')}.`,
    '--as-worker plays a worker on a platform: it submits jobs of its own, takes them, and says ' +
      'right and wrong things about them. Leases have to run out for that in real time. The endpoint ' +
      'must have no workers and no other jobs.',
  ],
  positionals: [
    { name: '[command…]', help: 'behind --: what starts the worker under test, and its arguments' },
  ],
  options,
  examples: [
    'millrace conformance --as-platform -- python3 my_worker.py',
    'millrace conformance --as-platform --port 9000 --host 0.0.0.0',
    'millrace conformance --as-worker --url http://127.0.0.1:8000 --endpoint test --key mr_…',
    'millrace conformance --as-platform --protocol runpod -- python3 -u handler.py',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'every check holds, but for those that do not apply' },
    { code: EXIT.failed, meaning: 'a check fails, or nobody was there to be tested' },
    { code: EXIT.usage, meaning: 'wrong usage' },
    { code: EXIT.interrupted, meaning: 'interrupted' },
  ],
  run,
};

const WORDS = { holds: 'holds', fails: 'FAILS', 'left out': 'left out' } as const;

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const { asPlatform, asWorker, json, protocol } = values;
  if (asPlatform === asWorker) throw new UsageError('say --as-platform or --as-worker');
  if (asWorker && positionals.length > 0)
    throw new UsageError(`${positionals[0]}: takes no command`);
  if (protocol === 'runpod' && values.link)
    throw new UsageError('--link is of --protocol millrace');
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
