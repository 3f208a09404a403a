// Prints what a job's handler logged, once or until the job ends.
import type { Client } from '../../client.ts';
import { flag } from '../options.ts';
import { print, printStyled } from '../output.ts';
import { formatLogLine } from '../terminal-log.ts';

export const followOptions = {
  follow: flag({ help: 'print new lines until the job ends; also -f' }),
  json: flag({ help: 'print lines of JSON on a terminal too' }),
};

interface LogRequest {
  client: Client;
  job: string;
  follow: boolean;
  /** Prints NDJSON on a terminal too; without a terminal the log is always NDJSON. */
  json: boolean;
}

export async function printLog({ client, follow, job, json }: LogRequest): Promise<void> {
  const isPretty = process.stdout.isTTY === true && !json;
  if (!follow) {
    const { lines, note } = await client.log(job);
    printLines(lines + note, isPretty);
    return;
  }
  for await (const { lines, note } of client.followLog(job)) printLines(lines + note, isPretty);
}

function printLines(lines: string, isPretty: boolean): void {
  if (!isPretty) {
    void print(lines);
    return;
  }
  for (const line of lines.split('\n')) {
    if (line !== '') void printStyled(`${formatLogLine(line)}\n`);
  }
}
