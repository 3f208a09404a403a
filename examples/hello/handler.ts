// The least that is a handler: a function of the job.
import type { Job } from 'millrace';

interface Greeted {
  name?: string;
}

export default async function hello({ input }: Job<Greeted>) {
  return { greeting: `Hello, ${input.name ?? 'world'}!` };
}
