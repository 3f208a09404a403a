// `millrace logs`: what a job's handler logged, now or as it goes on.

import { type Command, EXIT } from '../command.ts';
import { flag, parseOptions, requiredText, UsageError } from '../options.ts';
import { print, printStyled } from '../output.ts';
import { formatLogLine } from '../terminal-log.ts';
import { callPlatform, clientOptions, connect } from './client-options.ts';

const options = {
  ...clientOptions,
  endpoint: requiredText({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINT',
    help: 'endpoint of the job',
  }),
  follow: flag({ help: 'go on until the job has ended; also -f' }),
  json: flag({ help: 'the lines as they are, NDJSON; always so where the output is no terminal' }),
};

export const logsCommand: Command = {
  name: 'millrace logs',
  summary: "what a job's handler logged",
  description: [
    'Shows the log of all attempts of a job: what the handler wrote with ctx.log and console. The ' +
      'platform keeps 1 MB a job; a last line says how much was left out.',
  ],
  positionals: [{ name: '<job>', help: 'id of the job' }],
  options,
  examples: [
    'millrace logs 01912f4e-… --endpoint echo',
    'millrace logs 01912f4e-… --endpoint echo -f',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'done' },
    { code: EXIT.failed, meaning: 'refused, or the platform does not answer' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const spelled = args.map((arg) => (arg === '-f' ? '--follow' : arg));
  const { values, positionals } = parseOptions(options, spelled);
  const [job, surplus] = positionals;
  if (job === undefined) throw new UsageError('<job> is missing');
  if (surplus !== undefined) throw new UsageError(`${surplus}: is one argument too many`);
  const client = connect(values);
  const isPretty = process.stdout.isTTY === true && !values.json;
  await callPlatform(async () => {
    if (!values.follow) {
      const { lines, note } = await client.log(job);
      return show(lines + note, isPretty);
    }
    for await (const { lines, note } of client.followLog(job)) show(lines + note, isPretty);
  });
  return EXIT.ok;
}

function show(lines: string, isPretty: boolean): void {
  if (!isPretty) {
    void print(lines);
    return;
  }
  for (const line of lines.split('\n')) {
    if (line !== '') printStyled(`${formatLogLine(line)}\n`);
  }
}
