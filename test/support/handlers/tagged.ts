// Returns the tag of the worker that ran the job, from the worker's environment.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'millrace';

export interface TaggedInput {
  n: number;
  ms: number;
}

export default async function tag(job: Job<TaggedInput>) {
  const { ms, n } = job.input;
  await sleep(ms);
  return { n, tag: process.env['TAG'] ?? 'none' };
}
