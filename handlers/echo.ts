// Answers with its input: to try a set-up out, and to measure what the way there and back costs.
//
//   { "hello": "world" }   →   { "hello": "world" }
//
// It has no schema on purpose: ten megabytes of input are not walked through.
import type { Job } from 'millrace';

export default async function echo(job: Job): Promise<unknown> {
  return job.input;
}
