// Returns its input, so that benchmarks measure only the cost around a handler.
export default async function noop(job: { input: unknown }): Promise<unknown> {
  return job.input;
}
