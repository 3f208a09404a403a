// The least a handler can do: what is measured is everything around it.
export default async function noop(job: { input: unknown }): Promise<unknown> {
  return job.input;
}
