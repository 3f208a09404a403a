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
    help: 'endpoint ID of the job',
  }),
  follow: flag({ help: 'print new lines until the job ends; also -f' }),
  json: flag({ help: 'print lines as NDJSON; the default unless the output is a terminal' }),
};

export const logsCommand: Command = {
  name: 'millrace logs',
  summary: "show what a job's handler logged",
  description: [
    'Prints the log of all attempts of a job: the lines that the handler wrote with ctx.log and console. ' +
      'The platform keeps 1 MB a job; if more was logged, the last line says how much is missing.',
  ],
  positionals: [{ name: '<job>', help: 'job ID' }],
  options,
  examples: [
    'millrace logs 01912f4e-… --endpoint echo',
    'millrace logs 01912f4e-… --endpoint echo -f',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'done' },
    { code: EXIT.failed, meaning: 'the platform refused the call or does not answer' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const spelled = args.map((arg) => (arg === '-f' ? '--follow' : arg));
  const { values, positionals } = parseOptions(options, spelled);
  const [job, surplus] = positionals;
  if (job === undefined) throw new UsageError('<job> is missing; give the job ID');
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
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
