// Squares a number after a pause; streams the steps on request.
interface Input {
  n: number;
  ms: number;
}

export default async function square(job: {
  input: Input;
}): Promise<{ n: number; square: number }> {
  const { n, ms } = job.input;
  await new Promise((resolve) => setTimeout(resolve, ms));
  return { n, square: n * n };
}
