// What `millrace jobs` prints of one job: its record with times and input, what its handler logged, and why it waits.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Client, JobDetails, JobRecord, WaitCode } from '../../client.ts';
import { flag } from '../options.ts';
import { print, printNote, printStyled } from '../output.ts';
import { formatLogLine } from '../terminal-log.ts';

/** A larger input is not printed on request of a person, bytes. */
const MAX_SHOWN = 16_384;

/** Times are ISO 8601. @throws ApiError, UnreachableError */
export async function readDetails(client: Client, job: string): Promise<object> {
  return joinDetails(await client.status(job), await client.details(job));
}

function joinDetails(
  { error, output, progress, waitReason, ...record }: JobRecord,
  { availableAt, endedAt, expiresAt, input, timeline, ...details }: JobDetails,
): object {
  const { queuedAt, startedAt, submittedAt, ...more } = details;
  return {
    ...more,
    ...record,
    submittedAt: toIso(submittedAt),
    ...(queuedAt !== submittedAt && { queuedAt: toIso(queuedAt) }),
    ...(availableAt !== undefined && { availableAt: toIso(availableAt) }),
    startedAt: toIso(startedAt),
    endedAt: toIso(endedAt),
    expiresAt: toIso(expiresAt),
    timeline: timeline.map(({ at, nextAt, ...entry }) => ({
      at: toIso(at),
      ...entry,
      ...(nextAt !== undefined && { nextAt: toIso(nextAt) }),
    })),
    ...(waitReason && { waitReason }),
    input,
    ...(progress !== undefined && { progress }),
    ...(output !== undefined && { output }),
    ...(error && { error }),
  };
}

/** For a person: a large input is described by its size. */
export function shortenInput(shown: object): object {
  if (!('input' in shown)) return shown;
  const bytes = Buffer.byteLength(JSON.stringify(shown.input));
  return bytes <= MAX_SHOWN ? shown : { ...shown, input: `(${bytes} bytes; --json prints them)` };
}

function toIso(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

export const followOptions = {
  follow: flag({ alias: '-f', help: 'print new lines until the job ends; also -f' }),
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

/** Most jobs start sooner, and need no note. */
const NOTE_EVERY_MS = 3_000;

/** Prints each new reason until the job has left the queue or the signal aborts. Never rejects. */
export async function noteWaits(client: Client, job: string, signal: AbortSignal): Promise<void> {
  let told: WaitCode | undefined;
  while (!signal.aborted) {
    try {
      await sleep(NOTE_EVERY_MS, undefined, { signal });
      const { status, waitReason } = await client.status(job);
      if (signal.aborted || status !== 'IN_QUEUE') return;
      if (!waitReason || waitReason.code === told) continue;
      told = waitReason.code;
      printNote(`millrace jobs submit: job ${job} waits (${told}): ${waitReason.message}\n`);
    } catch {
      // The stream, which the command follows, reports errors.
      return;
    }
  }
}
