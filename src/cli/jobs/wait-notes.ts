// Tells the user of `millrace jobs submit --wait` why the job has not started, on standard error.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client, WaitCode } from '../../client.ts';
import { printNote } from '../output.ts';

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
