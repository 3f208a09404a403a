// Yields `count` small chunks as fast as the worker takes them.
export default async function* chunks(job: { input: { count: number } }) {
  for (let i = 0; i < job.input.count; i++) yield { i, text: 'token' };
}
