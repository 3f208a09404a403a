// Takes or returns a text of any size, so that benchmarks measure the platform's cost of it.
interface Input {
  /** Size of the returned text. */
  bytes?: number;
  text?: string;
}

export default async function payload({ input }: { input: Input }): Promise<string | number> {
  return input.bytes === undefined ? (input.text ?? '').length : 'x'.repeat(input.bytes);
}
